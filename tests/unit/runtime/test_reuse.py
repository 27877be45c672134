"""Texts that find their beginning in a slot are the texts that read it themselves."""

import random
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
import numpy as np
import pytest
from numpy.typing import NDArray
from tests.unit.runtime.test_batch import WINDOW, Watched, alone, batch_of, job, step, text_of, tokens_of

from perdure.domain.model import Message, Prompt, Sampling, Shape
from perdure.runtime.llamacpp.batch import COPY_MIN_TOKENS, Batch
from perdure.runtime.llamacpp.context import Row
from perdure.runtime.llamacpp.model import Model
from perdure.runtime.llamacpp.plan import ROWS_MAX
from perdure.runtime.llamacpp.template import ChatTemplate
from perdure.runtime.llamacpp.wire import Draw, Drawn


class Cells(Watched):
    """A context whose cells are counted: no token is read twice or out of its place, and slots are in order."""

    def __init__(self, model: Model, *, slots: int) -> None:
        super().__init__(model, slots=slots)
        self.cells: list[list[int]] = [[] for _ in range(slots)]
        self.copies = 0
        self.sick = False

    def decode(self, rows: Sequence[Row]) -> None:
        assert [row.slot for row in rows] == sorted(row.slot for row in rows)
        for row in rows:
            assert row.position == len(self.cells[row.slot])
            self.cells[row.slot].append(row.token)
        super().decode(rows)

    def cut(self, slot: int, length: int) -> int:
        left = super().cut(slot, length)
        assert left <= len(self.cells[slot])
        del self.cells[slot][left:]
        return left

    def copy(self, source: int, slot: int) -> None:
        super().copy(source, slot)
        self.cells[slot] = list(self.cells[source])
        self.copies += 1

    def lose_the_first(self, tokens: int) -> None:
        """As a sliding window does."""
        assert self._library.llama_memory_seq_rm(self._memory, 0, 0, tokens)

    def logits(self, index: int) -> NDArray[np.float32]:
        values = super().logits(index)
        return np.full_like(values, np.nan) if self.sick else values


class History:
    """Many texts in one engine, which share beginnings at random and come, go, fail and are taken up again."""

    def __init__(self, model: Model, slots: int, seed: int) -> None:
        self.chance = chance = random.Random(seed)
        self.slots = slots
        self.context = Cells(model, slots=slots)
        self.batch = Batch(self.context, model, slots=slots, window=WINDOW)
        instructions = [tuple(chance.randrange(3, 259) for _ in range(150)) for _ in range(3)]
        self.known = instructions * 3
        self.live: dict[int, Draw] = {}
        self.got: dict[int, list[Drawn]] = {}

    def run(self, texts: int) -> Iterator[tuple[Draw, list[Drawn], bool]]:
        """Each text with its pieces and whether it came to its end."""
        for run in range(texts):
            while len(self.live) == self.slots or (self.live and self.chance.random() < 0.7):
                yield from self._step()
            self._add(run)
        while self.live:
            yield from self._step()

    def _add(self, run: int) -> None:
        chance = self.chance
        before = chance.choice(self.known)
        prompt = before[: chance.randrange(len(before) + 1) if chance.random() < 0.3 else None]
        prompt += tuple(chance.randrange(3, 259) for _ in range(chance.choice((0, 1, 20, 90))))
        made = job(run, tokens=chance.randrange(1, 40), temperature=float(chance.random() < 0.6))
        made = msgspec.structs.replace(made, prompt=prompt[:600] or (5,))
        self.live[run], self.got[run] = made, []
        self.batch.add(made)

    def _step(self) -> Iterator[tuple[Draw, list[Drawn], bool]]:
        run = self.chance.choice(list(self.live))
        if self.chance.random() < 0.03:
            self.batch.stop(run)
        self.context.sick = self.chance.random() < 0.01
        if self.batch.busy:
            self.batch.step()
        report = self.batch.report()
        for drawn in report.drawn:
            self.got[drawn.run].append(drawn)
        ended = {drawn.run: True for drawn in report.drawn if drawn.end is not None}
        ended |= dict.fromkeys([*report.freed, *(failed.run for failed in report.failed)], False)
        for run, whole in ended.items():
            made, pieces = self.live.pop(run), self.got[run]
            yield made, pieces, whole
            self.known = [*self.known[:9], *self.known[9:][-20:], made.prompt + tokens_of(pieces)]
            if not whole and self.chance.random() < 0.5 and tokens_of(pieces):
                self._take_up(made, pieces)

    def _take_up(self, made: Draw, pieces: list[Drawn]) -> None:
        """After a stop, as after a crash: what was drawn is read before the text goes on."""
        self.live[made.run] = again = msgspec.structs.replace(made, done=tokens_of(pieces))
        self.batch.add(again)


@pytest.mark.parametrize("slots", range(1, 9))
def test_texts_are_the_same_whatever_was_in_the_slots(tiny: Model, slots: int) -> None:
    """Greedy and drawn, beside others, after stops in prompts and texts and after texts that failed:
    each piece as if alone in a slot that was never used.
    """
    history = History(tiny, slots, seed=slots)
    wholes: dict[int, list[Drawn]] = {}
    whole_texts = 0
    for made, pieces, whole in history.run(30):
        if made.run not in wholes:
            wholes[made.run] = alone(tiny, msgspec.structs.replace(made, done=()))
        expected = wholes[made.run]
        assert pieces == (expected if whole else expected[: len(pieces)])
        whole_texts += whole
    history.context.close()
    assert whole_texts > 15
    assert history.batch.tokens_reused > 500
    assert history.context.copies or slots == 1


def test_only_what_is_new_is_read(tiny: Model) -> None:
    """Each turn of a chat reads what the one before has not, of its answer all but the token drawn last."""
    with batch_of(tiny) as (batch, context):
        prompt, before = job(1).prompt, 0
        for turn in range(1, 8):
            made = msgspec.structs.replace(job(turn, tokens=9), prompt=prompt)
            batch.add(made)
            pieces: list[Drawn] = []
            while batch.busy:
                pieces += step(batch).drawn
            assert pieces == alone(tiny, made)
            assert batch.tokens_read + batch.tokens_reused - before == len(prompt)
            before += len(prompt)
            prompt += (*tokens_of(pieces), turn + 10, turn + 11)
        # the first prompt, and of each turn but the last the token drawn last and the two new ones
        assert batch.tokens_read == 20 + 6 * 3
        assert {row.slot for rows in context.calls for row in rows} == {0}


def test_the_same_prompt_again_reads_its_last_token(tiny: Model) -> None:
    """Its logits are wanted."""
    with batch_of(tiny) as (batch, _):
        for made in (job(1, prompt=50), job(1, prompt=50)):
            batch.add(made)
            while batch.busy:
                step(batch)
    assert (batch.tokens_read, batch.tokens_reused) == (51, 49)


def test_who_waits_with_the_same_instructions_reads_them_not(tiny: Model) -> None:
    """Four texts arrive at once: the first reads what they begin with, the others copy it when their turn comes."""
    context = Cells(tiny, slots=4)
    batch = Batch(context, tiny, slots=4, window=WINDOW)
    prompts = [(*job(1, prompt=500).prompt, number, number) for number in range(40, 44)]
    jobs = [msgspec.structs.replace(job(n, tokens=30), prompt=prompt) for n, prompt in enumerate(prompts)]
    for made in jobs:
        batch.add(made)
    pieces: list[Drawn] = []
    while batch.busy:
        pieces += step(batch).drawn
    context.close()
    for made in jobs:
        assert [piece for piece in pieces if piece.run == made.run] == alone(tiny, made)
    assert context.copies == 3
    assert batch.tokens_read + batch.tokens_reused == 4 * 502
    assert batch.tokens_read < 502 + 3 * (2 + ROWS_MAX)


@pytest.mark.parametrize(("common", "copies"), [(COPY_MIN_TOKENS - 1, 0), (COPY_MIN_TOKENS, 1)])
def test_a_few_words_are_read_rather_than_copied(tiny: Model, common: int, copies: int) -> None:
    """And a text that goes on in its slot is not copied out of it, nor is one given up for its first words."""
    context = Cells(tiny, slots=2)
    batch = Batch(context, tiny, slots=2, window=WINDOW)
    long = job(1, prompt=300)
    for prompt in (long.prompt, (*long.prompt[:common], 3, 4), (*long.prompt, 5)):
        batch.add(msgspec.structs.replace(long, prompt=prompt))
        while batch.busy:
            batch.step()
    context.close()
    assert context.copies == copies
    assert batch.tokens_reused == common * copies + len(long.prompt)


def test_a_failed_text_leaves_nothing(tiny: Model) -> None:
    """Its cells may be full of what failed it."""
    context = Cells(tiny, slots=1)
    batch = Batch(context, tiny, slots=1, window=WINDOW)
    context.sick = True
    batch.add(job(1))
    assert step(batch).failed
    context.sick = False
    batch.add(job(1))
    while batch.busy:
        batch.step()
    context.close()
    assert (batch.tokens_read, batch.tokens_reused) == (40, 0)


def test_a_memory_that_cannot_be_cut_is_cleared(tiny: Model) -> None:
    """The state of a recurrent model, a window that has moved on: all is read again, and the text is the same."""

    class Uncut(Cells):
        def cut(self, slot: int, length: int) -> int:
            del length
            return super().cut(slot, 0)

    context = Uncut(tiny, slots=1)
    batch = Batch(context, tiny, slots=1, window=WINDOW)
    for made in (job(1), job(1)):
        batch.add(made)
        pieces: list[Drawn] = []
        while batch.busy:
            pieces += step(batch).drawn
        assert pieces == alone(tiny, made)
    context.close()
    assert (batch.tokens_read, batch.tokens_reused) == (40, 0)


def test_a_text_that_has_lost_its_beginning_is_not_reused(tiny: Model) -> None:
    """As the library says: a slot whose first cells are gone is cleared whole."""
    context = Cells(tiny, slots=1)
    context.decode([Row(5 + n, n, 0, wanted=False) for n in range(9)])
    assert context.cut(0, 6) == 6
    context.lose_the_first(2)
    assert context.cut(0, 5) == 0
    context.decode([Row(5 + n, n, 0, wanted=True) for n in range(9)])
    context.close()


@pytest.fixture(scope="module")
def real(real_words: Model, real_model: Path) -> Iterator[Model]:
    """The bundled model, whole."""
    model = Model(real_words.library, real_model)
    yield model
    model.close()


@pytest.mark.real_model
def test_a_chat_of_ten_turns_with_the_bundled_model(real: Model) -> None:
    """Each answer, greedy and drawn in turn, as if its whole prompt had been read; each turn reads little but its own
    question.
    """
    template = ChatTemplate(real, real.chat_template)
    messages: list[Message] = []
    read: list[tuple[int, int]] = []
    with batch_of(real, slots=2) as (batch, _):
        for turn in range(10):
            messages.append(Message("user", f"Tell me one more thing about the number {turn}."))
            prompt = tuple(template.encode(Prompt(tuple(messages))).tokens)
            made = Draw(turn, prompt, (), Sampling(float(turn % 2), 1.0, turn), 6, Shape())
            before = batch.tokens_read
            batch.add(made)
            pieces: list[Drawn] = []
            while batch.busy:
                pieces += step(batch).drawn
            read.append((len(prompt), batch.tokens_read - before))
            assert pieces == alone(real, made)
            messages.append(Message("assistant", text_of(pieces)))
    assert all(count < 40 for _, count in read[1:])
    assert read[-1][0] > 200
