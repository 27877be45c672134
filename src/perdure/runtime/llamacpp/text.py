"""From token bytes to the parts of an answer, in pieces that end where nothing waits.

A piece ends when no byte waits for the rest of its character and no text waits for what it means. Nothing that is
kept here is then still to be shown, so a text goes on after any piece as if it had never been interrupted.
"""

import codecs
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, Protocol

from perdure.domain.parts import Logprob, Part, Text, joined

_Decoder = codecs.getincrementaldecoder("utf-8")


class Run(NamedTuple):
    """Parts of an answer, and the token ids they were made of."""

    parts: tuple[Part, ...]
    tokens: tuple[int, ...]


class Shown(NamedTuple):
    """A part, and where in the whole text it was read: from one character up to another."""

    part: Part
    start: int
    end: int


class Reader(Protocol):
    """Finds the parts in a text that comes bit by bit."""

    @property
    def waits(self) -> bool:
        """Whether something was read of which it is not certain what it means."""
        ...

    @property
    def stopped(self) -> bool:
        """Whether the answer has ended inside the text."""
        ...

    def read(self, text: str) -> Sequence[Shown]:
        """Take more of the text; what it shows. May raise `TextFailed`."""
        ...

    def close(self, *, whole: bool) -> Sequence[Shown]:
        """What is left when the text is over: `whole`, or cut off at its limit. May raise `TextFailed`."""
        ...


class TextFailed(Exception):
    """A text cannot go on, by its grammar or by what the model wrote; says why."""


class Plain:
    """A text in which nothing is looked for. Implements `Reader`."""

    waits = False
    stopped = False

    def __init__(self) -> None:
        self._at = 0

    def read(self, text: str) -> Sequence[Shown]:
        """All of it, at once."""
        start, self._at = self._at, self._at + len(text)
        return (Shown(Text(text), start, self._at),) if text else ()

    def close(self, *, whole: bool) -> Sequence[Shown]:  # noqa: ARG002 -- nothing waits here, however a text ends
        """Nothing."""
        return ()


class _Told(NamedTuple):
    """A token's probability, and the characters of the text that have bytes of it."""

    start: int
    end: int
    logprob: Logprob


class Pieces:
    """Gathers drawn tokens into pieces. `bytes_of` gives a token's bytes; control tokens have none."""

    def __init__(self, bytes_of: Callable[[int], bytes], reader: Reader) -> None:
        self._bytes_of = bytes_of
        self._reader = reader
        self._decoder = _Decoder("replace")
        self._unfinished = False
        self._length = 0
        self._parts: list[Part] = []
        self._tokens: list[int] = []
        self._told: list[_Told] = []

    @property
    def stopped(self) -> bool:
        """Whether the answer has ended inside the text."""
        return self._reader.stopped

    def go_on(self, done: Iterable[int]) -> None:
        """Read what was drawn, and shown, before. Raises `TextFailed`."""
        for token in done:
            self.add(token)
        self._parts, self._tokens = [], []

    def add(self, token: int, logprob: Logprob | None = None) -> None:
        """Take the next token, with its probability if that is to be shown. Raises `TextFailed`.

        Bytes that can no longer become a character show as U+FFFD, as Python's decoder does with `errors="replace"`.
        """
        self._tokens.append(token)
        data = self._bytes_of(token)
        text = self._decoder.decode(data)
        self._unfinished = bool(self._decoder.getstate()[0])
        start, self._length = self._length, self._length + len(text)
        if logprob is not None and data:
            self._told.append(_Told(start, self._length + self._unfinished, logprob))
        self._show(self._reader.read(text))

    def take(self) -> Run | None:
        """The piece that ends here, if one does."""
        if not self._parts or self._unfinished or self._reader.waits:
            return None
        return self._piece()

    def finish(self, last: int | None = None, *, whole: bool) -> Run:
        """What is left when the text ends, `last` being its end mark; an unfinished character shows as U+FFFD.

        `whole` is false where the text is cut off at its limit. Raises `TextFailed`.
        """
        if last is not None:
            self._tokens.append(last)
        self._show(self._reader.read(self._decoder.decode(b"", final=True)))
        self._show(self._reader.close(whole=whole))
        return self._piece()

    def _show(self, found: Sequence[Shown]) -> None:
        for part, start, end in found:
            if self._told and isinstance(part, Text):
                self._parts.append(Text(part.text, self._tell(start, end)))
            else:
                self._parts.append(part)

    def _tell(self, start: int, end: int) -> tuple[Logprob, ...]:
        """The probabilities of the tokens of a text; a token is told once, where it first shows something."""
        told: list[Logprob] = []
        while self._told and self._told[0].start < end:
            token = self._told.pop(0)
            if token.end > start:
                told.append(token.logprob)
        return tuple(told)

    def _piece(self) -> Run:
        parts = self._parts if len(self._parts) <= 1 else joined(self._parts)
        run = Run(tuple(parts), tuple(self._tokens))
        self._parts, self._tokens = [], []
        self._told.clear()
        return run
