"""Processes that die: children under a living parent, and children under a dead one."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

from perdure.domain.model import Message, Prompt, Shape
from perdure.ports.runtime import Job, Piece, RuntimeCrashed
from perdure.runtime.llamacpp import wire
from perdure.runtime.llamacpp.keeper import UNREADY_DEATHS_MAX, Keeper
from perdure.runtime.llamacpp.supervisor import LlamaRuntime
from tests.integration.runtime.tools import (
    PROMPT,
    draw,
    is_gone,
    make_job,
    rest_until,
    run,
    running,
    text_of,
    tokens_of,
    until,
)


def kill_engine(runtime: LlamaRuntime) -> None:
    _, engine = runtime.processes()
    os.kill(engine, signal.SIGKILL)


def test_a_killed_engine_is_replaced_and_its_text_goes_on_exactly(tiny_model: Path) -> None:
    """What came before the kill can still be taken, then `RuntimeCrashed`; the new engine gives the rest."""

    async def test() -> None:
        async with running(tiny_model) as runtime:
            await runtime.load("m")
            whole = await draw(runtime, make_job(6, tokens=1_000))
            generation = await runtime.generate(make_job(6, tokens=1_000))
            kept: list[Piece] = list(await generation.take())
            kill_engine(runtime)
            more, words = await rest_until(generation, RuntimeCrashed)
            kept += more
            assert "SIGKILL" in words
            await generation.stop()
            assert tokens_of(kept) == tokens_of(whole)[: len(tokens_of(kept))]
            assert runtime.statistics()[0].slots_used == 0

            await runtime.load("m")
            rest = await draw(runtime, make_job(6, tokens=1_000, done=tokens_of(kept)))
            assert tokens_of(kept) + tokens_of(rest) == tokens_of(whole)
            assert runtime.statistics()[0].starts == 2
            assert runtime.fault() is None

    run(test())


def test_a_chat_goes_on_exactly_over_killed_engines(tiny_model: Path) -> None:
    """Each turn finds in its slot what the turn before has left; every other one is killed in the middle of its text,
    and is read whole by the new engine. Each answer is that of an engine that has seen nothing else.
    """

    async def alone(job: Job) -> tuple[int, ...]:
        async with running(tiny_model) as runtime:
            await runtime.load("m")
            return tokens_of(await draw(runtime, job))

    async def test() -> None:
        prompt = PROMPT
        async with running(tiny_model) as runtime:
            for turn in range(4):
                await runtime.load("m")
                job = make_job(turn, prompt=prompt, tokens=800 if turn % 2 else 150)
                kept: list[Piece] = []
                if turn % 2:
                    generation = await runtime.generate(job)
                    kept += await generation.take()
                    assert runtime.statistics()[0].tokens_reused > 150
                    kill_engine(runtime)
                    kept += (await rest_until(generation, RuntimeCrashed))[0]
                    assert runtime.statistics()[0].tokens_reused == 0
                    await runtime.load("m")
                rest = await draw(runtime, msgspec.structs.replace(job, done=tokens_of(kept)))
                assert tokens_of(kept) + tokens_of(rest) == await alone(job)
                prompt += (*tokens_of(kept), *tokens_of(rest), 50 + turn)

    run(test())


LETTERS = Shape("%llguidance {}\nstart: %json " + '{"type": "array", "items": {"type": "string"}, "minItems": 900}')


def test_a_killed_engine_leaves_a_grammar_where_it_was(tiny_model: Path) -> None:
    """The new engine holds the rest of the text to it, token for token as the first one would have."""

    async def test() -> None:
        async with running(tiny_model) as runtime:
            await runtime.load("m")
            job = make_job(6, tokens=700, shape=LETTERS)
            whole = await draw(runtime, job)
            assert text_of(whole)[0] == "["
            generation = await runtime.generate(job)
            kept: list[Piece] = list(await generation.take())
            kill_engine(runtime)
            more, _ = await rest_until(generation, RuntimeCrashed)
            kept += more
            assert 0 < len(tokens_of(kept)) < 700
            await runtime.load("m")
            rest = await draw(runtime, msgspec.structs.replace(job, done=tokens_of(kept)))
            assert tokens_of(kept) + tokens_of(rest) == tokens_of(whole)
            assert text_of(kept) + text_of(rest) == text_of(whole)

    run(test())


def test_pieces_that_arrived_before_a_crash_are_not_lost(tiny_model: Path) -> None:
    """Nobody had taken them yet when the engine died."""

    async def test() -> None:
        async with running(tiny_model) as runtime:
            await runtime.load("m")
            generation = await runtime.generate(make_job(6, tokens=1_900))
            await until(lambda: runtime.statistics()[0].tokens_drawn >= 50)
            kill_engine(runtime)
            await until(lambda: not runtime.statistics()[0].slots_used)
            assert len(tokens_of(await generation.take())) >= 45
            with pytest.raises(RuntimeCrashed):
                await generation.take()
            with pytest.raises(RuntimeCrashed):
                await generation.take()

    run(test())


def test_a_generation_between_two_engines_is_refused(tiny_model: Path) -> None:
    """The model was loaded, and is not any more."""

    async def test() -> None:
        async with running(tiny_model) as runtime:
            await runtime.load("m")
            kill_engine(runtime)
            await until(lambda: not runtime.statistics()[0].loaded)
            with pytest.raises(RuntimeCrashed, match="not running"):
                await runtime.generate(make_job())

    run(test())


def test_a_killed_tokenizer_is_replaced(tiny_model: Path) -> None:
    """The next conversation waits for the new one."""

    async def test() -> None:
        async with running(tiny_model) as runtime:
            before = await runtime.encode("m", Prompt((Message("user", "x"),)))
            tokenizer, _ = runtime.processes()
            os.kill(tokenizer, signal.SIGKILL)
            await until(lambda: tokenizer not in runtime.processes())
            assert await runtime.encode("m", Prompt((Message("user", "x"),))) == before

    run(test())


async def opening() -> wire.Order:
    return wire.Stop(1)


def test_a_child_that_never_gets_ready_is_given_up() -> None:
    """After a few deaths, with pauses that grow, the fault stays and no other is started."""

    async def test() -> None:
        lines: list[str] = []
        losses: list[str] = []
        keeper = Keeper(
            "perdure.runtime.llamacpp.no_such_module",
            wire.EngineReady,
            opening=opening,
            receive=lambda _: None,
            lost=losses.append,
            log=lines.append,
        )
        keeper.start()
        with pytest.raises(Exception, match=r"exit status 1 before it was ready, 3 times"):
            await keeper.ready()
        assert keeper.starts == UNREADY_DEATHS_MAX == len(losses)
        assert [line.rsplit(" ", 2)[1] for line in lines if "another starts" in line] == ["0.05", "0.1"]
        await keeper.close()
        assert keeper.pid is None

    run(test())


def test_a_child_that_speaks_nonsense_is_ended() -> None:
    """A poem in place of frames."""

    async def test() -> None:
        lines: list[str] = []
        keeper = Keeper(
            "this",
            wire.EngineReady,
            opening=opening,
            receive=lambda _: None,
            lost=lambda _: None,
            log=lines.append,
        )
        keeper.start()
        with pytest.raises(Exception, match="before it was ready"):
            await keeper.ready()
        assert "nonsense" in lines[0]
        await keeper.close()

    run(test())


@pytest.mark.parametrize("moment", ["at once", "loaded", "drawing"])
def test_closing_leaves_no_process(tiny_model: Path, moment: str) -> None:
    """Whatever they were at, soon, and as often as one likes."""

    async def test() -> None:
        async with running(tiny_model) as runtime:
            if moment != "at once":
                await runtime.load("m")
            generation = await runtime.generate(make_job(tokens=2_000)) if moment == "drawing" else None
            children = list(runtime.processes())
            began = time.monotonic()
            await runtime.close()
            assert time.monotonic() - began < 1.5
            assert all(is_gone(child) for child in children)
            assert runtime.processes() == []
            if generation is not None:
                await rest_until(generation, RuntimeCrashed)
                await generation.stop()
        assert runtime.fault() is not None

    run(test())


def test_a_child_that_does_not_leave_is_killed(tiny_model: Path) -> None:
    """It does not run at all, so it cannot read that it should."""

    async def test() -> None:
        async with running(tiny_model) as runtime:
            await runtime.load("m")
            children = list(runtime.processes())
            for child in children:
                os.kill(child, signal.SIGSTOP)
            await runtime.close()
            assert all(is_gone(child) for child in children)

    run(test())


PARENT = """
import asyncio, sys
from pathlib import Path
from tests.integration.runtime.tools import make_job, running

async def main():
    async with running(Path(sys.argv[1])) as runtime:
        await runtime.load("m")
        jobs = [make_job(n, prompt=tuple(range(40, 250)) * 4, tokens=1_000) for n in range(4)]
        generations = [await runtime.generate(job) for job in jobs]
        while not runtime.statistics()[0].tokens_read:
            await asyncio.sleep(0)
        print(*runtime.processes(), flush=True)
        await asyncio.Event().wait()

asyncio.run(main())
"""


@contextmanager
def parent_of(model: Path) -> Generator[tuple[subprocess.Popen[str], list[int]]]:
    """A process with a runtime in it that reads four long prompts, and the ids of its children."""
    with subprocess.Popen(
        [sys.executable, "-c", PARENT, str(model)],
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[3],
        process_group=0,
    ) as parent:
        assert parent.stdout is not None
        try:
            children = [int(word) for word in parent.stdout.readline().split()]
            assert len(children) == 2
            yield parent, children
        finally:
            parent.kill()


@pytest.mark.real_model
def test_children_do_not_outlive_a_killed_parent(real_model: Path) -> None:
    """Not even in the midst of a decode call: both are gone within a second."""
    with parent_of(real_model) as (parent, children):
        parent.kill()
        began = time.monotonic()
        assert all(is_gone(child, 1.0 - (time.monotonic() - began)) for child in children)


def test_ctrl_c_is_the_parents_matter(tiny_model: Path) -> None:
    """The terminal sends it to the whole group: the children leave it to the parent to decide."""
    with parent_of(tiny_model) as (parent, children):
        for child in children:
            os.kill(child, signal.SIGINT)
        assert not any(is_gone(child, 0.3) for child in children)
        parent.terminate()
        assert all(is_gone(child, 1.0) for child in children)
