"""`batch` over a real context: fairness, ends, stops, and texts that do not depend on their neighbours."""

import json
import math
import random
from collections.abc import Generator, Sequence
from contextlib import contextmanager

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from perdure.domain.model import Sampling, Shape
from perdure.domain.parts import CallArguments, CallBegin, CallEnd, Part, Text, joined
from perdure.runtime.llamacpp.batch import Batch, share
from perdure.runtime.llamacpp.context import Context, Row
from perdure.runtime.llamacpp.model import Model
from perdure.runtime.llamacpp.notation import CALL_ARGUMENTS, CALL_CLOSE, CALL_OPEN
from perdure.runtime.llamacpp.plan import ROWS_MAX
from perdure.runtime.llamacpp.sampling import draw
from perdure.runtime.llamacpp.wire import Draw, Drawn, Step

WINDOW = 1024


class Watched(Context):
    """A context that keeps the rows of every call."""

    def __init__(self, model: Model, *, slots: int) -> None:
        super().__init__(model, slots=slots, window=WINDOW, threads=1)
        self.calls: list[list[Row]] = []

    def decode(self, rows: Sequence[Row]) -> None:
        self.calls.append(list(rows))
        super().decode(rows)


@contextmanager
def batch_of(model: Model, slots: int = 4) -> Generator[tuple[Batch, Watched]]:
    context = Watched(model, slots=slots)
    try:
        yield Batch(context, model, slots=slots, window=WINDOW), context
    finally:
        context.close()


PLAIN = Sampling(1.0, 1.0, 0)


def job(run: int = 1, *, prompt: int = 20, tokens: int = 40, temperature: float = 1.0) -> Draw:
    words = random.Random(run)
    return Draw(
        run=run,
        prompt=tuple(words.randrange(3, 259) for _ in range(prompt)),
        done=(),
        sampling=Sampling(temperature, 1.0 if run % 3 else 0.9, run),
        tokens_max=tokens,
        shape=Shape(),
    )


def resumed(made: Draw, done: tuple[int, ...]) -> Draw:
    return msgspec.structs.replace(made, done=done)


def step(batch: Batch) -> Step:
    batch.step()
    return batch.report()


def alone(model: Model, made: Draw) -> list[Drawn]:
    """The pieces of a text that has an engine to itself."""
    with batch_of(model, slots=1) as (batch, _):
        batch.add(made)
        pieces: list[Drawn] = []
        while batch.busy:
            pieces += step(batch).drawn
        return pieces


def tokens_of(pieces: Sequence[Drawn]) -> tuple[int, ...]:
    return tuple(token for piece in pieces for token in piece.tokens)


def shown(piece: Drawn) -> str:
    """The text of a piece."""
    return "".join(part.text for part in piece.parts if isinstance(part, Text))


def text_of(pieces: Sequence[Drawn]) -> str:
    return "".join(shown(piece) for piece in pieces)


@given(wanted=st.lists(st.integers(1, 500), min_size=1, max_size=ROWS_MAX))
def test_rows_are_shared_so_that_nobody_stalls(wanted: list[int]) -> None:
    """Nobody gets more than he wants, none is wasted, whoever draws has his row, and the fewest are served first."""
    given_rows = share(wanted, ROWS_MAX)
    assert all(0 <= rows <= want for rows, want in zip(given_rows, wanted, strict=True))
    assert sum(given_rows) == min(ROWS_MAX, sum(wanted))
    assert all(rows == 1 for rows, want in zip(given_rows, wanted, strict=True) if want == 1)
    least_held_back = min((want for rows, want in zip(given_rows, wanted, strict=True) if rows < want), default=None)
    if least_held_back is not None:
        assert all(rows == 0 for rows, want in zip(given_rows, wanted, strict=True) if want > least_held_back)


def test_of_equal_prompts_the_first_is_read_first() -> None:
    """It is answered as soon as if it were alone."""
    assert share([40, 40, 40], ROWS_MAX) == [ROWS_MAX, 0, 0]


def test_no_call_has_more_rows_than_allowed(tiny: Model) -> None:
    """Long prompts and drawing texts together fill the calls; each text that draws has one row in every call."""
    with batch_of(tiny) as (batch, context):
        for run, prompt in enumerate((300, 2, 3, 500), start=1):
            batch.add(job(run, prompt=prompt, tokens=30))
        while batch.busy:
            step(batch)
    assert max(len(rows) for rows in context.calls) == ROWS_MAX
    for rows in context.calls[1:20]:
        assert sum(row.slot == 1 for row in rows) == 1
        assert sum(row.slot in (0, 3) for row in rows) == ROWS_MAX - 2


def test_a_text_ends_at_its_limit(tiny: Model) -> None:
    """With exactly as many tokens, the last piece saying so, and the slot free."""
    pieces = alone(tiny, job(tokens=50))
    assert len(tokens_of(pieces)) == 50
    assert [piece.end for piece in pieces[-2:]] == [None, "length"]


def test_a_text_ends_with_the_models_mark(tiny: Model) -> None:
    """The mark's id is the last token and shows no text. A cold draw after its own mark meets one soon enough."""
    pieces: list[Drawn] = []
    for seed in range(1, 40):
        made = Draw(seed, (5, 6, 7), (), Sampling(60.0, 1.0, seed), 400, Shape())
        pieces = alone(tiny, made)
        if pieces[-1].end == "stop":
            break
    assert pieces[-1].end == "stop"
    assert tiny.ends(tokens_of(pieces)[-1])
    assert not any(tiny.ends(token) for token in tokens_of(pieces)[:-1])


def test_what_is_already_at_its_end_ends_at_once(tiny: Model) -> None:
    """Nothing is read for it, and it takes no slot."""
    with batch_of(tiny, slots=1) as (batch, context):
        batch.add(resumed(job(1, tokens=3), (40, 41, 42)))
        batch.add(resumed(job(2, tokens=9), (40, 2)))
        assert not batch.busy
        assert batch.report().drawn == (Drawn(1, (), (), "length"), Drawn(2, (), (), "stop"))
        assert context.calls == []


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        (Draw(1, (), (), PLAIN, 5, Shape()), "prompt is empty"),
        (Draw(1, (5, 288), (), PLAIN, 5, Shape()), "no token 288"),
        (Draw(1, (5,), (-1,), PLAIN, 5, Shape()), "no token -1"),
        (Draw(1, (5,) * 1000, (), PLAIN, 25, Shape()), "window of 1024"),
        (Draw(1, (5,), (), PLAIN, 5, Shape(calls="xml")), "no notation of calls named xml"),
        (Draw(1, (5,), (), PLAIN, 5, Shape("start: (")), "grammar cannot be used"),
        (Draw(1, (5,), (40, 41), PLAIN, 5, Shape('start: "a"')), "cannot be held to its grammar"),
    ],
)
def test_a_job_that_cannot_be_done_fails_with_a_reason(tiny: Model, wrong: Draw, reason: str) -> None:
    """Before the library sees it, which would abort the process over some of these."""
    with batch_of(tiny) as (batch, _):
        batch.add(wrong)
        (failed,) = batch.report().failed
        assert reason in failed.reason
        assert not batch.busy


def test_logits_that_are_no_numbers_fail_one_job_only(tiny: Model) -> None:
    """The others draw on."""

    class Sick(Watched):
        def logits(self, index: int) -> NDArray[np.float32]:
            values = super().logits(index).copy()
            if self.calls[-1][index].slot == 0:
                values[7] = float("nan")
            return values

    context = Sick(tiny, slots=2)
    batch = Batch(context, tiny, slots=2, window=WINDOW)
    batch.add(job(1, prompt=2))
    batch.add(job(2, prompt=2, tokens=5))
    first = step(batch)
    assert [failed.run for failed in first.failed] == [1]
    pieces = list(first.drawn)
    while batch.busy:
        pieces += step(batch).drawn
    assert tokens_of(pieces) == tokens_of(alone(tiny, job(2, prompt=2, tokens=5)))
    context.close()


@pytest.mark.parametrize("done", [(), (40, 41, 42, 43, 44)])
def test_each_token_is_drawn_at_its_own_position(tiny: Model, done: tuple[int, ...]) -> None:
    """The position is the token's index in the answer, counted from 0, whatever was drawn by an earlier process."""

    class Flat(Watched):
        def logits(self, index: int) -> NDArray[np.float32]:
            return np.zeros_like(super().logits(index))

    made = resumed(job(4, tokens=30), done)
    context = Flat(tiny, slots=1)
    batch = Batch(context, tiny, slots=1, window=WINDOW)
    batch.add(made)
    drawn: list[int] = []
    while batch.busy:
        drawn += tokens_of(step(batch).drawn)
    context.close()
    flat, sampling = np.zeros(tiny.tokens, np.float32), Sampling(temperature=1.0, top_p=1.0, seed=4)
    positions = range(len(done), len(done) + len(drawn))
    assert drawn == [draw(flat, sampling, position) for position in positions]
    assert len(drawn) > 3


@pytest.mark.parametrize("steps", [0, 1, 3, 40])
def test_a_stopped_job_frees_its_slot_at_once(tiny: Model, steps: int) -> None:
    """Before it was read, while it is read (90 tokens are three calls), and while it draws: the only slot serves the
    next job, which is not disturbed by what was there.
    """
    with batch_of(tiny, slots=1) as (batch, _):
        batch.add(job(1, prompt=90, tokens=500))
        for _ in range(steps):
            step(batch)
        batch.stop(1)
        assert batch.report().freed == (1,)
        assert not batch.busy
        batch.add(job(2))
        pieces: list[Drawn] = []
        while batch.busy:
            pieces += step(batch).drawn
    assert pieces == alone(tiny, job(2))


def test_the_counters_tell_reading_from_drawing(tiny: Model) -> None:
    """Prompt rows on one side, drawn tokens on the other."""
    with batch_of(tiny) as (batch, _):
        batch.add(job(1, prompt=70, tokens=10))
        batch.add(job(2, prompt=3, tokens=4))
        last = batch.report()
        while batch.busy:
            last = step(batch)
    assert (last.tokens_read, last.tokens_drawn) == (73, 14)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("prompt", [20, 700])
def test_a_text_can_be_resumed_at_every_piece(tiny: Model, temperature: float, prompt: int) -> None:
    """All resumptions at once, four at a time, coming and going as slots are free: each gives the rest exactly.

    The long prompt is read in many calls, and its text crosses the lengths at which the library changes its way of
    summing.
    """
    made = job(5, prompt=prompt, tokens=40, temperature=temperature)
    whole = alone(tiny, made)
    cuts = list(range(len(whole))) if prompt < 100 else list(range(0, len(whole), 6))
    jobs = [resumed(made, tokens_of(whole[:cut])) for cut in cuts]
    rests = together(tiny, jobs, random.Random(1))
    for cut, rest in zip(cuts, rests, strict=True):
        assert rest == [(piece.parts, piece.tokens, piece.end) for piece in whole[cut:]]


def test_texts_do_not_depend_on_their_neighbours(tiny: Model) -> None:
    """Forty jobs of all lengths, greedy and drawn, arriving at random; some are stopped on the way."""
    chance = random.Random(7)
    jobs = [
        job(n, prompt=chance.randrange(1, 120), tokens=chance.randrange(1, 60), temperature=float(n % 2))
        for n in range(1, 41)
    ]
    stops = {n: chance.randrange(1, 30) for n in range(0, 40, 5)}
    for n, pieces in enumerate(together(tiny, jobs, chance, stops)):
        expected = [(piece.parts, piece.tokens, piece.end) for piece in alone(tiny, jobs[n])]
        assert pieces == (expected[: len(pieces)] if n in stops else expected)


Piece = tuple[tuple[Part, ...], tuple[int, ...], str | None]


def together(
    model: Model, jobs: list[Draw], chance: random.Random, stops: dict[int, int] | None = None
) -> list[list[Piece]]:
    """The pieces of each job, all in one engine of four slots; `stops` gives a job's steps until it is stopped."""
    got: list[list[Piece]] = [[] for _ in jobs]
    ages = dict(stops or {})
    waiting = list(range(len(jobs)))
    live: set[int] = set()
    with batch_of(model) as (batch, _):
        while waiting or live:
            while waiting and len(live) < 4 and chance.random() < 0.7:
                n = waiting.pop(0)
                live.add(n)
                made = jobs[n]
                batch.add(msgspec.structs.replace(made, run=n))
            if batch.busy:
                batch.step()
            for drawn in batch.report().drawn:
                got[drawn.run].append((drawn.parts, drawn.tokens, drawn.end))
                if drawn.end is not None:
                    live.discard(drawn.run)
            for n in [n for n in live if n in ages]:
                ages[n] -= 1
                if ages[n] == 0:
                    batch.stop(n)
                    live.discard(n)
    return got


OBJECT = {
    "type": "object",
    "properties": {"a": {"enum": [1, "é", None]}, "b": {"type": "string", "maxLength": 4}},
    "required": ["a", "b"],
    "additionalProperties": False,
    "x-guidance": {"whitespace_flexible": False},
}
JSON = Shape(f"%llguidance {{}}\nstart: %json {json.dumps(OBJECT)}")


def calling(start: str) -> str:
    """A grammar with this start. `call` is one of `f` or `go`, `TEXT` a few letters."""
    return f"""%llguidance {{}}
start: {start}
TEXT: /[a-zé]{{0,9}}/
call: {json.dumps(CALL_OPEN)} /f|go/ {json.dumps(CALL_ARGUMENTS)} args {json.dumps(CALL_CLOSE)}
args: %json {json.dumps(OBJECT)}"""


CALLS = Shape(calling('TEXT ("\\n" call)+'), calls="tool_call")
BIASED = Shape(calling("TEXT | call+"), calls="tool_call", call_bias=99.0)


def shaped(seed: int, shape: Shape, *, tokens: int = 150, temperature: float = 1.0, top_p: float = 1.0) -> Draw:
    """A text with everything that can be asked of one."""
    sampling = Sampling(temperature, top_p, seed, 0.3, 0.2, ("Zz",), 2)
    return msgspec.structs.replace(job(seed, tokens=tokens), sampling=sampling, shape=shape)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize(
    "shape",
    [JSON, CALLS, BIASED, Shape(calls="tool_call", reasoning="open")],
    ids=["json", "calls", "biased", "free"],
)
def test_a_shaped_text_can_be_resumed_at_every_piece(tiny: Model, shape: Shape, temperature: float) -> None:
    """With its grammar, penalties and probabilities; beside other texts, four at a time."""
    made = shaped(3, shape, tokens=110, temperature=temperature, top_p=0.95)
    whole = alone(tiny, made)
    cuts = list(range(0, len(whole), 1 + len(whole) // 20))
    assert len(cuts) > 5
    rests = together(tiny, [resumed(made, tokens_of(whole[:cut])) for cut in cuts], random.Random(2))
    for cut, rest in zip(cuts, rests, strict=True):
        assert rest == [(piece.parts, piece.tokens, piece.end) for piece in whole[cut:]]


def test_shaped_texts_do_not_depend_on_their_neighbours(tiny: Model) -> None:
    """Plain ones and those with a grammar, each as if alone."""
    jobs = [shaped(n, (JSON, CALLS, Shape())[n % 3], tokens=60, temperature=float(n % 2)) for n in range(1, 13)]
    for n, pieces in enumerate(together(tiny, jobs, random.Random(3))):
        assert pieces == [(piece.parts, piece.tokens, piece.end) for piece in alone(tiny, jobs[n])]


def test_json_is_of_its_schema_or_unfinished(tiny: Model) -> None:
    """Greedy and drawn, whatever the model would rather write; what has ended by itself is whole."""
    for seed in range(1, 13):
        pieces = alone(
            tiny, msgspec.structs.replace(shaped(seed, JSON), sampling=Sampling(float(seed % 3), 1.0, seed))
        )
        assert pieces[-1].end == "stop"
        assert tiny.ends(tokens_of(pieces)[-1])
        value = json.loads(text_of(pieces))
        assert list(value) == ["a", "b"]
        assert value["a"] in (1, "é", None)
        assert len(value["b"]) <= 4


def test_a_bias_towards_calls_is_one_at_the_first_place(tiny: Model) -> None:
    """There it decides, and nowhere else: the text goes on as the model likes."""
    free = msgspec.structs.replace(BIASED, grammar="%llguidance {}\nstart: /[a-z<]{30}/")
    for seed in range(1, 7):
        text = text_of(alone(tiny, shaped(seed, free)))
        assert text[0] == "<"
        assert text.count("<") < 15
    unbiased = msgspec.structs.replace(free, call_bias=0.0)
    assert "".join(text_of(alone(tiny, shaped(seed, unbiased)))[0] for seed in range(1, 7)) != "<" * 6


def test_calls_come_as_parts(tiny: Model) -> None:
    """A name out of the grammar, arguments of the schema bit by bit; the one cut off at the limit stays open."""
    parts = joined(part for piece in alone(tiny, shaped(2, CALLS, tokens=230)) for part in piece.parts)
    calls = [part for part in parts if not isinstance(part, Text)]
    assert len(calls) >= 3
    for begin, arguments, end in zip(calls[0::3], calls[1::3], calls[2::3], strict=False):
        assert begin in (CallBegin("f"), CallBegin("go"))
        assert isinstance(arguments, CallArguments)
        assert end == CallEnd()
        assert list(json.loads(arguments.text)) == ["a", "b"]


def test_where_a_model_has_no_end_mark_the_grammar_ends_the_text(tiny: Model) -> None:
    """With its last token, also when that is the last that is allowed; and so does what was complete before."""

    class Endless:
        tokens, bytes_of, token_text, tokenize = tiny.tokens, tiny.bytes_of, tiny.token_text, tiny.tokenize

        def ends(self, token: int) -> bool:
            return False

    context = Watched(tiny, slots=1)
    batch = Batch(context, Endless(), slots=1, window=WINDOW)
    made = msgspec.structs.replace(job(1, tokens=2), shape=Shape('start: "ab"'))
    batch.add(made)
    pieces: list[Drawn] = []
    while batch.busy:
        pieces += step(batch).drawn
    assert (text_of(pieces), pieces[-1].end) == ("ab", "stop")
    batch.add(resumed(made, tokens_of(pieces)))
    assert batch.report().drawn == (Drawn(1, (), (), "stop"),)
    context.close()


class Falling(Watched):
    """A model that likes each token less than the one before it, and control tokens not at all."""

    def logits(self, index: int) -> NDArray[np.float32]:
        values = np.arange(len(super().logits(index)), dtype=np.float32) / np.float32(-100)
        values[:3] = -9
        return values


def fall(tiny: Model, made: Draw) -> list[Drawn]:
    context = Falling(tiny, slots=1)
    batch = Batch(context, tiny, slots=1, window=WINDOW)
    batch.add(made)
    pieces = list(batch.report().drawn)
    while batch.busy:
        pieces += step(batch).drawn
    context.close()
    return pieces


@pytest.mark.parametrize(
    ("presence", "frequency", "tokens"),
    [
        (0.0, 0.0, (3, 3, 3, 3, 3, 3)),
        (1.0, 0.0, (3, 4, 5, 6, 7, 8)),
        (0.0, 0.016, (3, 4, 3, 5, 4, 6)),
        (-1.0, 0.0, (3,) * 6),
    ],
)
@pytest.mark.parametrize("cut", [0, 1, 3])
def test_penalties_count_what_was_drawn(
    tiny: Model, presence: float, frequency: float, tokens: tuple[int, ...], cut: int
) -> None:
    """By this process or an earlier one; the prompt does not count."""
    sampling = Sampling(0.0, 1.0, 0, presence, frequency)
    pieces = fall(tiny, Draw(1, (3, 3, 4), tokens[:cut], sampling, 6, Shape()))
    assert tokens_of(pieces) == tokens[cut:]


def test_a_stop_text_ends_the_answer_before_it(tiny: Model) -> None:
    """Its tokens are drawn, and what was ended by one ends at once when it is asked for again."""
    likes = [tiny.bytes_of(token).decode() for token in range(3, 9)]
    sampling = Sampling(0.0, 1.0, 0, 1.0, stop=(likes[3] + likes[4],))
    pieces = fall(tiny, Draw(1, (9,), (), sampling, 50, Shape()))
    assert (text_of(pieces), pieces[-1].end) == ("".join(likes[:3]), "stop")
    assert tokens_of(pieces) == (3, 4, 5, 6, 7)
    assert fall(tiny, Draw(1, (9,), tokens_of(pieces), sampling, 50, Shape())) == [Drawn(1, (), (), "stop")]


def test_probabilities_are_the_models_own(tiny: Model) -> None:
    """Before temperature, penalties and grammar: here the model would rather have written something else."""
    sampling = Sampling(0.5, 1.0, 0, 1.0, top_logprobs=2)
    pieces = fall(tiny, Draw(1, (9,), (), sampling, 50, Shape('start: "hi"')))
    (part,) = joined(part for piece in pieces for part in piece.parts)
    assert isinstance(part, Text)
    assert [entry.token for entry in part.logprobs] == ["h", "i"]
    logits = -np.arange(tiny.tokens) / 100
    logits[:3] = -9
    logits -= np.log(np.exp(logits).sum())
    for entry, token in zip(part.logprobs, tokens_of(pieces), strict=False):
        assert math.isclose(entry.logprob, logits[token], rel_tol=1e-5)
        assert [other.token for other in entry.top_logprobs] == [tiny.bytes_of(3).decode(), tiny.bytes_of(4).decode()]
        assert math.isclose(entry.top_logprobs[0].logprob, logits[3], rel_tol=1e-5)
