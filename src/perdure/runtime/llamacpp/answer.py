"""The parts of an answer in its text: what is said, what is reasoned, and which functions are called.

A machine reads the text from left to right, and what it finds is a function of the text alone, however that was cut
into tokens. What may be the beginning of a mark, of a call or of a stop text waits until more is known.

- Reasoning stands between its marks, at the start of an answer only. White space after either mark is not shown.
- A call begins where `notation` says, anywhere in the text of a message. What only looks like the beginning of a call
  is text. A call that is cut off by the limit before its name is whole is not shown; cut inside its mark, it is text
  where the grammar leaves room for that. White space before the first part, if that is a call, and after a call is
  not shown.
- A stop text is looked for in the text of messages, not in reasoning and not in calls.
- Once a call has begun, its arguments are one JSON object, or the text fails: no finished call has anything else.
"""

import json
import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

from perdure.domain.model import Sampling, Shape
from perdure.domain.parts import CallArguments, CallBegin, CallEnd, Part, Reasoning, Text
from perdure.runtime.llamacpp.notation import (
    CALL_ARGUMENTS,
    CALL_CLOSE,
    CALL_MARK,
    CALL_OPEN,
    THINK_CLOSE,
    THINK_OPEN,
)
from perdure.runtime.llamacpp.text import Plain, Reader, Shown, TextFailed

_BLANK = " \t\r\n"
_NAME = re.compile(r'[^"\\\n]*')


def reader_of(shape: Shape, sampling: Sampling) -> Reader:
    """What reads an answer of this shape: no more than it asks for."""
    if shape.calls is None and shape.reasoning == "none" and not sampling.stop:
        return Plain()
    return Answer(shape, sampling.stop)


class Header(NamedTuple):
    """The beginning of a call, read: the function's name, and where its arguments start."""

    name: str
    end: int


def header_at(text: str, at: int) -> Header | bool:
    """The beginning of a call at a place of the text; else whether more text could make one of it."""
    if len(text) - at < len(CALL_OPEN):
        return CALL_OPEN.startswith(text[at:])
    if not text.startswith(CALL_OPEN, at):
        return False
    start = at + len(CALL_OPEN)
    name = _NAME.match(text, start)
    assert name is not None  # noqa: S101 -- the pattern matches the empty text too
    end = name.end()
    if text.startswith(CALL_ARGUMENTS, end) and end > start:
        return Header(text[start:end], end + len(CALL_ARGUMENTS))
    return end == len(text) or (end > start and CALL_ARGUMENTS.startswith(text[end:]))


def waiting(text: str, mark: str) -> int:
    """How many characters at the end of the text may be the beginning of the mark, which is not in it."""
    for size in range(min(len(mark) - 1, len(text)), 0, -1):
        if text.endswith(mark[:size]):
            return size
    return 0


def is_object(text: str) -> bool:
    """Whether the text is one JSON object."""
    if not text.startswith("{"):
        return False
    try:
        json.loads(text, parse_int=str, parse_float=str, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        return False
    return True


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


class Answer:
    """The machine. Implements `Reader`."""

    def __init__(self, shape: Shape, stops: Sequence[str]) -> None:
        self._calls = shape.calls is not None
        self._thinks = shape.reasoning == "marked"
        self._forced = shape.forced
        self._call_due = shape.forced or bool(shape.call_bias)  # no text begins here as a call does
        self._stops = tuple(stop for stop in stops if stop)
        self._longest = max(map(len, self._stops), default=0)
        firsts = {stop[0] for stop in self._stops} | ({CALL_MARK[0]} if self._calls else set())
        self._candidate = re.compile("|".join(map(re.escape, sorted(firsts)))) if firsts else None
        self._text = ""  # read, and not yet shown or left out
        self._at = 0  # how many characters came before it
        self._arguments = ""
        self._shown: list[Shown] = []
        self._last = self._cut = False
        self.stopped = False
        self._state, self._next = self._start, self._say
        if shape.reasoning == "open":
            self._state, self._next = self._skip, self._reason

    @property
    def waits(self) -> bool:
        """See `Reader`."""
        return bool(self._text)

    def read(self, text: str) -> Sequence[Shown]:
        """See `Reader`."""
        if self.stopped:
            return ()
        self._text += text
        while self._text and self._state():
            pass
        shown, self._shown = self._shown, []
        return shown

    def close(self, *, whole: bool) -> Sequence[Shown]:
        """See `Reader`."""
        self._last, self._cut = True, not whole
        shown = [*self.read("")]
        if self._state == self._argue:
            self._break_off(whole=whole)
            shown += self._shown
        return shown

    # Steps: each looks at the text that waits, takes from its front, and says whether there is more to do now.

    def _start(self) -> bool:
        """White space shows only if it belongs to a message."""
        blank = len(self._text) - len(self._text.lstrip(_BLANK))
        if blank == len(self._text) and not self._last and (self._calls or self._thinks):
            return False
        if self._thinks and self._text.startswith(THINK_OPEN, blank):
            self._leave_out(blank + len(THINK_OPEN))
            return self._become(self._skip, then=self._reason)
        if self._thinks and not self._last and THINK_OPEN.startswith(self._text[blank:]):
            return False
        header = header_at(self._text, blank) if self._calls else False
        if isinstance(header, Header):
            return self._call(header.name, header.end)
        return (self._last or not header) and self._become(self._say)

    def _skip(self) -> bool:
        self._leave_out(len(self._text) - len(self._text.lstrip(_BLANK)))
        return bool(self._text) and self._become(self._next)

    def _say(self) -> bool:
        at = 0
        while self._candidate is not None and (found := self._candidate.search(self._text, at)):
            at = found.start()
            header = header_at(self._text, at) if self._calls else False
            if isinstance(header, Header):
                return self._call(header.name, header.end - self._show_text(at))
            if header and not self._last:
                return self._hold(at)
            if header and self._cut and self._is_call(at):
                return self._drop(at)
            stop = self._stop_at(at)
            if stop is True:
                return self._end(at)
            if stop is None and not self._last:
                return self._hold(at)
            at += 1
        return self._hold(len(self._text))

    def _reason(self) -> bool:
        end = self._text.find(THINK_CLOSE)
        if end >= 0:
            self._show(Reasoning(self._text[:end]), end)
            self._leave_out(len(THINK_CLOSE))
            return self._become(self._skip, then=self._say)
        ready = len(self._text) - (0 if self._last else waiting(self._text, THINK_CLOSE))
        self._show(Reasoning(self._text[:ready]), ready)
        return False

    def _argue(self) -> bool:
        end = self._text.find(CALL_CLOSE)
        if end < 0:
            self._show_arguments(len(self._text) - waiting(self._text, CALL_CLOSE))
            return False
        self._show_arguments(end)
        self._end_call()
        self._leave_out(len(CALL_CLOSE))
        return self._become(self._skip, then=self._say)

    # What the steps have in common.

    def _become(self, state: Callable[[], bool], *, then: Callable[[], bool] | None = None) -> bool:
        self._state = state
        self._next = then or self._next
        return True

    def _leave_out(self, size: int) -> None:
        self._text = self._text[size:]
        self._at += size

    def _show(self, part: Part, size: int) -> None:
        """Show the part, which the first characters of the text are, if any."""
        if size:
            self._shown.append(Shown(part, self._at, self._at + size))
            self._leave_out(size)

    def _show_text(self, size: int) -> int:
        self._call_due = self._call_due and not size
        self._show(Text(self._text[:size]), size)
        return size

    def _hold(self, at: int) -> bool:
        self._show_text(at)
        return False

    def _is_call(self, at: int) -> bool:
        """Whether what begins as a call there can be nothing else. Of a forced answer, text is JSON."""
        return (at == 0 and self._call_due) or (not self._forced and self._text.startswith(CALL_MARK, at))

    def _drop(self, at: int) -> bool:
        """Leave out a call without a name: nobody could do anything with it, and it is no text."""
        if self._text[:at].strip(_BLANK):
            self._show_text(at)
        self._leave_out(len(self._text))
        return False

    def _stop_at(self, at: int) -> bool | None:
        """Whether a stop text stands there; None if more text could make one of it."""
        if self._text.startswith(self._stops, at):
            return True
        rest = self._text[at : at + self._longest]
        return None if any(stop.startswith(rest) for stop in self._stops) else False

    def _end(self, at: int) -> bool:
        self._show_text(at)
        self._leave_out(len(self._text))
        self.stopped = True
        return False

    def _call(self, name: str, size: int) -> bool:
        """Begin a call; so many characters of the text are its beginning, and white space before it."""
        self._shown.append(Shown(CallBegin(name), self._at, self._at))
        self._leave_out(size)
        self._call_due = True  # after the first call only calls follow
        self._arguments = ""
        return self._become(self._argue)

    def _show_arguments(self, size: int) -> None:
        self._arguments += self._text[:size]
        self._show(CallArguments(self._text[:size]), size)

    def _end_call(self) -> None:
        if not is_object(self._arguments):
            raise TextFailed("the model wrote arguments of a call that are not a JSON object")
        self._shown.append(Shown(CallEnd(), self._at, self._at))

    def _break_off(self, *, whole: bool) -> None:
        """End a text inside a call. What waits is the closing mark if the arguments are whole, else it is theirs.

        A call that lacks only its closing mark is a call if the model itself ended there.
        """
        if not is_object(self._arguments):
            self._show_arguments(len(self._text))
        self._leave_out(len(self._text))
        if whole:
            self._end_call()
