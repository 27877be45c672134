"""Continuous batching: many texts share each decode call, and come and go between two calls.

Reading and drawing are the same thing here. A text has tokens that the model has not read yet: at first its prompt
and what was drawn before, afterwards the one token drawn last. Each call reads some of them for every text; where a
text has nothing left to read, the next token is drawn. What an earlier text has left in a slot is not read again.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from perdure.domain.model import Sampling
from perdure.domain.parts import Logprob
from perdure.ports.runtime import End
from perdure.runtime.llamacpp.answer import reader_of
from perdure.runtime.llamacpp.context import Row
from perdure.runtime.llamacpp.logprobs import logprob_of
from perdure.runtime.llamacpp.notation import CALL_MARK, TOOL_CALL
from perdure.runtime.llamacpp.plan import ROWS_MAX
from perdure.runtime.llamacpp.sampling import NotNumbers, draw, penalised
from perdure.runtime.llamacpp.slots import Slots
from perdure.runtime.llamacpp.text import Pieces, Run, TextFailed
from perdure.runtime.llamacpp.wire import Draw, Drawn, Failed, Step

if TYPE_CHECKING:
    from perdure.runtime.llamacpp.masks import Grammars, Guide


COPY_MIN_TOKENS = 64
"""A copy takes the whole memory of a slot. To read so many tokens takes several times as long, with any model."""


class Vocabulary(Protocol):
    """What is asked of a model's vocabulary."""

    tokens: int

    def ends(self, token: int) -> bool: ...
    def bytes_of(self, token: int) -> bytes: ...
    def token_text(self, token: int) -> str: ...
    def tokenize(self, text: str, *, controls: bool) -> list[int]: ...


class Decoder(Protocol):
    """What is asked of a model's working memory."""

    def decode(self, rows: Sequence[Row]) -> None: ...
    def logits(self, index: int) -> NDArray[np.float32]: ...
    def cut(self, slot: int, length: int) -> int: ...
    def copy(self, source: int, slot: int) -> None: ...


@dataclass(slots=True)
class _Text:
    """One text under way. `read` is what the model has read of it, `unread[at:]` waits to be read after that.

    `slot` is where, once it has one; `asked` of its tokens are the prompt. `fresh` is it until it has a row of its
    own. `guide` is there where a grammar is, `counts` (how often each token was drawn) where a penalty is. `bias` is
    what the first token of all is drawn with.
    """

    run: int
    asked: int
    sampling: Sampling
    tokens_max: int
    unread: tuple[int, ...]
    drawn: int
    pieces: Pieces
    guide: "Guide | None"
    counts: Counter[int] | None
    bias: NDArray[np.float32] | None
    slot: int = 0
    read: list[int] = field(default_factory=list[int])
    at: int = 0
    fresh: bool = True
    reading: bool = True

    def rows(self, count: int) -> list[Row]:
        """The next `count` tokens to read; logits are wanted after the last one of all."""
        tokens = self.unread[self.at : self.at + count]
        last = len(self.unread) - self.at - 1
        rows = [Row(token, len(self.read) + n, self.slot, n == last) for n, token in enumerate(tokens)]
        self.at += len(tokens)
        self.read += tokens
        self.fresh = self.fresh and not rows
        return rows

    @property
    def waiting(self) -> int:
        return len(self.unread) - self.at

    def add(self, token: int, logprob: Logprob | None) -> None:
        """Take the token that was drawn, which is no end mark. Raises `TextFailed`."""
        self.unread, self.at, self.reading = (token,), 0, False
        if self.counts is not None:
            self.counts[token] += 1
        if self.guide is not None:
            self.guide.add(token)
        self.pieces.add(token, logprob)


def share(wanted: Sequence[int], room: int) -> list[int]:
    """Divide `room` rows: those who want the fewest come first, of equals the one who came first.

    A text that is being drawn wants one row, so it never waits for a prompt; a short prompt does not wait for a long
    one; and of several the first is answered as soon as if it were alone. The longest waits, but not for ever: who
    passes it has a text to draw next, and no more can than there are slots.

    `wanted` are at most `room` many.
    """
    given = [0] * len(wanted)
    for n in sorted(range(len(wanted)), key=wanted.__getitem__):
        given[n] = min(wanted[n], room)
        room -= given[n]
    return given


class Batch:
    """The texts under way in one engine."""

    def __init__(self, decoder: Decoder, vocabulary: Vocabulary, *, slots: int, window: int) -> None:
        self._decoder = decoder
        self._vocabulary = vocabulary
        self._window = window
        self._slots = Slots(slots)
        self._texts: dict[int, _Text] = {}
        self._drawn: list[Drawn] = []
        self._failed: list[Failed] = []
        self._freed: list[int] = []
        self.tokens_drawn = 0
        self.tokens_read = 0
        self.tokens_reused = 0

    @property
    def busy(self) -> bool:
        """Whether there is something to read or to draw."""
        return bool(self._texts)

    def add(self, job: Draw) -> None:
        """Take a text into a free slot. What is wrong with it, or already at its end, shows in the next report."""
        reason = self._objection(job)
        if reason is not None:
            self._failed.append(Failed(job.run, reason))
        elif job.done and self._vocabulary.ends(job.done[-1]):
            self._drawn.append(Drawn(job.run, (), (), End.STOP))
        else:
            self._begin(job)

    def _objection(self, job: Draw) -> str | None:
        if not self._slots.free:
            return "there is no free slot"
        if not job.prompt:
            return "the prompt is empty"
        if len(job.prompt) + max(job.tokens_max, len(job.done)) > self._window:
            return f"{len(job.prompt)} and {job.tokens_max} tokens do not fit into a window of {self._window}"
        for token in (*job.prompt, *job.done):
            if not 0 <= token < self._vocabulary.tokens:
                return f"the model has no token {token}"
        if job.shape.calls not in (None, TOOL_CALL):
            return f"there is no notation of calls named {job.shape.calls}"
        return None

    def _begin(self, job: Draw) -> None:
        """Give the text a slot, unless what was drawn before is all that there is."""
        try:
            text = self._text(job)
        except TextFailed as error:
            self._failed.append(Failed(job.run, str(error)))
            return
        if self._is_over(text):
            self._drawn.append(Drawn(job.run, (), (), End.STOP))
        elif text.drawn >= text.tokens_max:
            self._drawn.append(Drawn(job.run, (), (), End.LENGTH))
        else:
            self._settle(text)

    def _settle(self, text: _Text) -> None:
        """Give the text the slot that suits it best, and read only what is not there yet."""
        text.slot, common = self._slots.take(text.unread, text.read)
        self._leave(text, common)
        self._texts[text.run] = text
        self._borrow(text)

    def _leave(self, text: _Text, common: int) -> None:
        """Of what is in the text's slot, leave the tokens that it begins with."""
        left = self._decoder.cut(text.slot, common)
        self.tokens_reused += left - text.at
        text.at = left
        text.read[:] = text.unread[:left]

    def _borrow(self, text: _Text) -> None:
        """Copy its beginning from another slot where that has more of it."""
        source, common = self._slots.longest(text.unread)
        if common - text.at >= COPY_MIN_TOKENS:
            self._decoder.copy(source, text.slot)
            self._leave(text, common)

    def _text(self, job: Draw) -> _Text:
        sampling, grammar = job.sampling, job.shape.grammar
        pieces = Pieces(self._vocabulary.bytes_of, reader_of(job.shape, sampling))
        pieces.go_on(job.done)
        return _Text(
            run=job.run,
            asked=len(job.prompt),
            sampling=sampling,
            tokens_max=job.tokens_max,
            unread=job.prompt + job.done,
            drawn=len(job.done),
            pieces=pieces,
            guide=None if grammar is None else self._grammars.guide(grammar, job.done),
            counts=Counter(job.done) if sampling.presence_penalty or sampling.frequency_penalty else None,
            bias=self._towards_calls(job.shape.call_bias) if job.shape.call_bias else None,
        )

    def _towards_calls(self, bias: float) -> NDArray[np.float32]:
        biases = np.zeros(self._vocabulary.tokens, np.float32)
        biases[self._vocabulary.tokenize(CALL_MARK, controls=False)[0]] = bias
        return biases

    def _is_over(self, text: _Text) -> bool:
        """Whether the answer has ended without an end mark: by a stop text, or where its grammar wants one and the
        model has none.
        """
        return text.pieces.stopped or (text.guide is not None and text.guide.complete and not self._can_end)

    @cached_property
    def _grammars(self) -> "Grammars":
        from perdure.runtime.llamacpp.masks import Grammars

        return Grammars(self._vocabulary)

    @cached_property
    def _can_end(self) -> bool:
        return any(self._vocabulary.ends(token) for token in range(self._vocabulary.tokens))

    def stop(self, run: int) -> None:
        """Free the slot of a text, wherever it stands. Known or not, the next report has it as freed."""
        text = self._texts.get(run)
        if text is not None:
            self._release(text, text.read)
        self._freed.append(run)

    def step(self) -> None:
        """One decode call for all texts, and a draw for each that has nothing left to read.

        Raises `DecodeFailed`, after which the process must not go on.
        """
        texts = list(self._texts.values())
        rows: list[Row] = []
        ready: list[tuple[int, _Text]] = []
        counts = share([text.waiting for text in texts], ROWS_MAX)
        served = [(text, count) for text, count in zip(texts, counts, strict=True) if count]
        for text, _ in served:
            if text.fresh:  # who has read the same while this one waited?
                self._borrow(text)
        for text, count in sorted(served, key=lambda pair: pair[0].slot):  # neighbours are computed together
            some = text.rows(count)
            rows += some
            self.tokens_read += len(some) if text.reading else 0
            if not text.waiting:
                ready.append((len(rows) - 1, text))
        self._decoder.decode(rows)
        for index, text in ready:
            self._draw(text, index)

    def _draw(self, text: _Text, index: int) -> None:
        try:
            self._go_on(text, self._decoder.logits(index))
        except (NotNumbers, TextFailed) as error:
            self._failed.append(Failed(text.run, str(error)))
            self._release(text, ())  # nobody knows what its cells are worth

    def _go_on(self, text: _Text, logits: NDArray[np.float32]) -> None:
        """Draw the next token, and report the piece that it completes, or the end that it is."""
        weighed = logits
        if text.counts is not None:
            weighed = penalised(weighed, text.counts, text.sampling)
        if text.guide is not None:
            weighed = weighed + text.guide.bias()
        if text.bias is not None and not text.drawn:
            weighed = weighed + text.bias
        token = draw(weighed, text.sampling, text.drawn)
        self.tokens_drawn += 1
        text.drawn += 1
        if self._vocabulary.ends(token):
            self._end(text, End.STOP, text.pieces.finish(token, whole=True))
            return
        others = text.sampling.top_logprobs
        text.add(token, None if others is None else logprob_of(logits, token, others, self._vocabulary))
        if self._is_over(text):
            self._end(text, End.STOP, text.pieces.finish(whole=True))
        elif text.drawn >= text.tokens_max:
            self._end(text, End.LENGTH, text.pieces.finish(whole=False))
        elif (piece := text.pieces.take()) is not None:
            self._drawn.append(Drawn(text.run, piece.parts, piece.tokens, None))

    def _end(self, text: _Text, end: End, last: Run) -> None:
        self._drawn.append(Drawn(text.run, last.parts, last.tokens, end))
        self._release(text, text.read)

    def _release(self, text: _Text, kept: Sequence[int]) -> None:
        """Free its slot, in which `kept` can be found again."""
        del self._texts[text.run]
        self._slots.give_back(text.slot, kept, asked=text.asked)

    def report(self) -> Step:
        """Everything since the last report."""
        step = Step(
            drawn=tuple(self._drawn),
            failed=tuple(self._failed),
            freed=tuple(self._freed),
            tokens_drawn=self.tokens_drawn,
            tokens_read=self.tokens_read,
            tokens_reused=self.tokens_reused,
        )
        self._drawn, self._failed, self._freed = [], [], []
        return step
