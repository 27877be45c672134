"""Texts drawn through child processes: pieces, stops, slots, and resumptions."""

import asyncio
import json
import sys
from pathlib import Path

import msgspec
import pytest

from perdure.domain.errors import InvalidRequest, ModelUnavailable
from perdure.domain.model import JsonSchema, Message, Prompt
from perdure.ports.runtime import End, Job, JobFailed, Piece
from tests.integration.runtime.tools import draw, make_job, rest_of, rest_until, run, running, text_of, tokens_of

LONG = make_job(prompt=tuple(40 + n % 200 for n in range(1_500)), tokens=400)


def test_a_text_is_drawn_in_pieces_up_to_its_limit(tiny_model: Path) -> None:
    """The card, the prompt and the text; the counters and slots agree with what was seen."""

    async def test() -> None:
        async with running(tiny_model) as runtime:
            card = await runtime.card("m")
            assert card is not None
            assert (card.context_length, card.exact, card.size_bytes) == (2048, True, 125_408)
            assert await runtime.models() == [card]
            assert await runtime.card("other") is None
            await runtime.load("m")
            prompt = (await runtime.encode("m", Prompt((Message("user", "Hello"),)))).tokens
            pieces = await draw(runtime, make_job(prompt=prompt))
            assert len(tokens_of(pieces)) == 50
            assert pieces[-1].end is End.LENGTH
            assert all(piece.end is None for piece in pieces[:-1])
            (counts,) = runtime.statistics()
            assert (counts.tokens_drawn, counts.tokens_read) == (50, len(prompt))
            assert (counts.starts, counts.slots, counts.slots_used, counts.loaded) == (1, 4, 0, True)
            assert runtime.fault() is None

    run(test())


def test_the_service_never_loads_the_library(tiny_model: Path) -> None:
    """Nor what only its children need."""

    async def test() -> None:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-c",
            "import sys, perdure.runtime.llamacpp.supervisor, perdure.runtime.llamacpp.bundled;"
            "sys.exit(bool({'numpy', 'jinja2', 'xllamacpp', 'gguf', 'llguidance'} & set(sys.modules)))",
        )
        assert await process.wait() == 0

    run(test())


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_text_goes_on_exactly_where_it_was_left(tiny_model: Path, temperature: float) -> None:
    """After any piece, beside other texts: the rest is the rest."""

    async def test() -> None:
        async with running(tiny_model) as runtime:
            await runtime.load("m")
            whole = await draw(runtime, make_job(5, temperature=temperature))
            others = await asyncio.gather(*(runtime.generate(make_job(n, tokens=2_000)) for n in (8, 9)))
            for cut in range(0, len(whole), 3):
                job = make_job(5, temperature=temperature, done=tokens_of(whole[:cut]))
                rest = await draw(runtime, job)
                assert tokens_of(rest) == tokens_of(whole[cut:])
                assert text_of(rest) == text_of(whole[cut:])
            for other in others:
                await other.stop()

    run(test())


def test_four_texts_at_once_are_what_each_is_alone(tiny_model: Path) -> None:
    """Started and stopped at different moments."""

    async def test() -> None:
        async with running(tiny_model) as runtime:
            await runtime.load("m")
            jobs = [make_job(n, tokens=60 + 10 * n, temperature=n % 2) for n in range(4)]
            alone = [await draw(runtime, job) for job in jobs]
            together = await asyncio.gather(*(draw(runtime, job) for job in jobs))
            assert [tokens_of(pieces) for pieces in together] == [tokens_of(pieces) for pieces in alone]
            assert [text_of(pieces) for pieces in together] == [text_of(pieces) for pieces in alone]

    run(test())


@pytest.mark.proves("B-15")
def test_stopping_frees_the_slot_while_the_prompt_is_read(tiny_model: Path) -> None:
    """When `stop` returns, the next job can have the slot, and is not disturbed by what was in it."""

    async def test() -> None:
        async with running(tiny_model, slots=1) as runtime:
            await runtime.load("m")
            alone = await draw(runtime, make_job(3))
            generation = await runtime.generate(LONG)
            assert runtime.statistics()[0].slots_used == 1
            await generation.stop()
            await generation.stop()
            assert runtime.statistics()[0].slots_used == 0
            assert runtime.statistics()[0].tokens_read < 1_500
            assert await draw(runtime, make_job(3)) == alone

    run(test())


def test_stopping_frees_the_slot_while_tokens_are_drawn(tiny_model: Path) -> None:
    """What was drawn before can still be taken; then the generation says that it was stopped."""

    async def test() -> None:
        async with running(tiny_model, slots=1) as runtime:
            await runtime.load("m")
            whole = await draw(runtime, make_job(3, tokens=1_500))
            generation = await runtime.generate(make_job(3, tokens=1_500))
            seen = list(await generation.take())
            await generation.stop()
            more, words = await rest_until(generation, JobFailed)
            seen += more
            assert "stopped" in words
            assert 0 < len(tokens_of(seen)) < 1_500
            assert tokens_of(whole)[: len(tokens_of(seen))] == tokens_of(seen)
            assert text_of(await draw(runtime, make_job(4)))

    run(test())


def test_more_generations_than_slots_are_a_mistake(tiny_model: Path) -> None:
    """Of the caller's, who counts them."""

    async def test() -> None:
        async with running(tiny_model, slots=1) as runtime:
            await runtime.load("m")
            first = await runtime.generate(LONG)
            with pytest.raises(AssertionError, match="more than 1"):
                await runtime.generate(make_job())
            await first.stop()

    run(test())


def test_stopping_a_text_that_has_ended_is_nothing(tiny_model: Path) -> None:
    """It returns at once."""

    async def test() -> None:
        async with running(tiny_model) as runtime:
            await runtime.load("m")
            generation = await runtime.generate(make_job())
            await rest_of(generation)
            await generation.stop()

    run(test())


def test_cancelling_a_wait_loses_no_piece(tiny_model: Path) -> None:
    """Each wait is given up again and again before something comes; the text is whole."""

    async def test() -> None:
        async with running(tiny_model) as runtime:
            await runtime.load("m")
            expected = await draw(runtime, make_job(2, tokens=300))
            generation = await runtime.generate(make_job(2, tokens=300))
            pieces: list[Piece] = []
            while not pieces or pieces[-1].end is None:
                waiting = asyncio.ensure_future(generation.take())
                await asyncio.sleep(0)
                waiting.cancel()
                try:
                    pieces += await waiting
                except asyncio.CancelledError:
                    pieces += await generation.take()
            assert pieces == expected

    run(test())


@pytest.mark.parametrize(
    ("job", "reason"),
    [
        (make_job(prompt=(5, 9_999)), "no token 9999"),
        (make_job(prompt=()), "prompt is empty"),
        (make_job(tokens=2_040), "window of 2048"),
    ],
)
def test_an_impossible_job_fails_and_the_engine_lives_on(tiny_model: Path, job: Job, reason: str) -> None:
    """With a reason, and its slot is free."""

    async def test() -> None:
        async with running(tiny_model, slots=1) as runtime:
            await runtime.load("m")
            generation = await runtime.generate(job)
            with pytest.raises(JobFailed, match=reason):
                await generation.take()
            await generation.stop()
            assert text_of(await draw(runtime, make_job()))
            assert runtime.statistics()[0].starts == 1

    run(test())


def test_a_conversation_that_cannot_be_encoded_is_the_callers_fault(tiny_model: Path) -> None:
    """A role that the template must not see, half a surrogate pair; a model that is not there is another matter."""

    async def test() -> None:
        async with running(tiny_model) as runtime:
            for bad in (Message("king", "x"), Message("user", "\ud800")):
                with pytest.raises(InvalidRequest) as caught:
                    await runtime.encode("m", Prompt((bad,)))
                assert caught.value.param == "input"
            with pytest.raises(ModelUnavailable):
                await runtime.encode("other", Prompt((Message("user", "x"),)))
            assert await runtime.encode("m", Prompt((Message("user", "x"),)))

    run(test())


def test_the_servers_event_loop_will_do(tiny_model: Path) -> None:
    """uvloop has subprocesses of its own making."""
    uvloop = pytest.importorskip("uvloop")

    async def test() -> None:
        async with asyncio.timeout(30), running(tiny_model) as runtime:
            await runtime.load("m")
            assert len(tokens_of(await draw(runtime, make_job()))) == 50

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(test())


@pytest.mark.real_model
def test_the_bundled_model_goes_on_exactly(real_model: Path) -> None:
    """Greedy and drawn texts, resumed at two places each, all at once."""

    async def test() -> None:
        async with running(real_model) as runtime:
            await runtime.load("m")
            prompt = (await runtime.encode("m", Prompt((Message("user", "Why is the sky blue?"),)))).tokens
            jobs = [make_job(9, prompt=prompt, tokens=16, temperature=temperature) for temperature in (0.0, 1.0)]
            wholes = [await draw(runtime, job) for job in jobs]
            cuts = [(job, whole, cut) for job, whole in zip(jobs, wholes, strict=True) for cut in (1, 9)]
            resumed = [msgspec.structs.replace(job, done=tokens_of(whole[:cut])) for job, whole, cut in cuts]
            rests = await asyncio.gather(*(draw(runtime, job) for job in resumed))
            for (_, whole, cut), rest in zip(cuts, rests, strict=True):
                assert tokens_of(rest) == tokens_of(whole[cut:])
                assert text_of(rest) == text_of(whole[cut:])

    run(test())


PLANET = JsonSchema(
    "planet",
    {
        "type": "object",
        "properties": {
            "planet": {"enum": ["Mars", "Venus"]},
            "moons": {"type": "integer", "maximum": 99, "minimum": 0},
        },
        "required": ["planet", "moons"],
        "additionalProperties": False,
    },
)


@pytest.mark.real_model
def test_the_bundled_model_writes_json_of_a_schema(real_model: Path) -> None:
    """Greedy and drawn; closed by its own end mark, and from any piece on just the same."""

    async def test() -> None:
        async with running(real_model) as runtime:
            await runtime.load("m")
            asked = await runtime.encode("m", Prompt((Message("user", "Name a planet."),), format=PLANET))
            for temperature in (0.0, 1.0):
                job = make_job(4, prompt=asked.tokens, tokens=60, temperature=temperature, shape=asked.shape)
                whole = await draw(runtime, job)
                assert whole[-1].end is End.STOP
                value = json.loads(text_of(whole))
                assert list(value) == ["planet", "moons"]
                assert value["planet"] in ("Mars", "Venus")
                assert 0 <= value["moons"] <= 99
                cut = len(whole) // 2
                rest = await draw(runtime, msgspec.structs.replace(job, done=tokens_of(whole[:cut])))
                assert (tokens_of(rest), text_of(rest)) == (tokens_of(whole[cut:]), text_of(whole[cut:]))

    run(test())
