"""Models that come and go: loaded when needed, kept while used, unloaded for others or when idle, and a file that is
not what it was.

Each of the three takes 2.2 MB: 125 kB of weights, and four slots of 2,048 tokens.
"""

import asyncio
import os
import shutil
import signal
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from perdure.domain.errors import ModelUnavailable
from perdure.domain.model import Message, Prompt
from perdure.ports.runtime import Job, Statistics
from perdure.runtime.llamacpp.host import ModelFile
from perdure.runtime.llamacpp.keeper import UNREADY_DEATHS_MAX
from perdure.runtime.llamacpp.supervisor import LlamaRuntime
from perdure.testing.manual_clock import ManualClock
from perdure.testing.tiny_gguf import write_tiny_model
from tests.integration.runtime.tools import draw, is_gone, make_job, run, tokens_of, until

ONE, TWO = 3_000_000, 5_000_000
HELLO = Prompt((Message("user", "x"),))


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    """Three models with weights of their own."""
    paths = [tmp_path / f"{name}.gguf" for name in "abc"]
    for seed, path in enumerate(paths):
        write_tiny_model(path, seed)
    return paths


@asynccontextmanager
async def serving(files: list[Path], room: int, **settings: Any) -> AsyncGenerator[LlamaRuntime]:
    """A runtime of the models in so many bytes, whose first loads are done."""
    models = [ModelFile(path.stem, path) for path in files]
    runtime = LlamaRuntime(models, models_memory_max_bytes=room, **settings)
    runtime.start()
    try:
        await runtime.warm()
        yield runtime
    finally:
        await runtime.close()


def of(runtime: LlamaRuntime, name: str) -> Statistics:
    return next(each for each in runtime.statistics() if each.model == name)


def loaded(runtime: LlamaRuntime) -> str:
    return "".join(each.model for each in runtime.statistics() if each.loaded)


def engines(runtime: LlamaRuntime, models: int = 3) -> list[int]:
    """The processes but for the tokenizers, of which each model has one. One that has just begun has no name yet."""
    processes = runtime.processes()
    assert len(processes) >= models
    return [pid for pid in processes if b"tokenizer_child" not in Path(f"/proc/{pid}/cmdline").read_bytes()]


def job_of(model: str, tokens: int = 40, done: tuple[int, ...] = ()) -> Job:
    return msgspec.structs.replace(make_job(7, tokens=tokens, done=done), model=model)


async def use(runtime: LlamaRuntime, name: str) -> None:
    """Have the model loaded, and leave it."""
    await runtime.load(name, f"user of {name}")
    runtime.release(f"user of {name}")


async def text(runtime: LlamaRuntime, model: str, tokens: int = 40, done: tuple[int, ...] = ()) -> tuple[int, ...]:
    """The tokens of a text, as a run draws it."""
    job = job_of(model, tokens, done)
    await runtime.load(model, f"{job.ident} of {model}")
    try:
        return tokens_of(await draw(runtime, job))
    finally:
        runtime.release(f"{job.ident} of {model}")


def test_what_fits_side_by_side_is_loaded_at_the_start_and_the_rest_when_it_is_needed(files: list[Path]) -> None:
    """All can be asked from the beginning; the one that was used least recently makes room."""

    async def test() -> None:
        async with serving(files, TWO) as runtime:
            assert loaded(runtime) == "ab"
            assert [card.name for card in await runtime.models()] == ["a", "b", "c"]
            assert sorted(runtime.usable) == ["a", "b", "c"]
            await runtime.encode("c", HELLO)
            assert loaded(runtime) == "ab"
            await use(runtime, "a")
            await use(runtime, "c")
            assert loaded(runtime) == "ac"
            await use(runtime, "b")
            assert loaded(runtime) == "bc"
            assert [each.loads for each in runtime.statistics()] == [1, 2, 1]
            assert len(engines(runtime)) == 2

    run(test())


@pytest.mark.proves("F-13")
def test_texts_are_the_same_after_an_unload_and_go_on_across_one(files: list[Path]) -> None:
    """Room for one model, asked for in turn. The second half of each text comes from another process than the
    first."""

    async def test() -> None:
        async with serving(files, 3 * TWO) as runtime:
            undisturbed = {name: await text(runtime, name) for name in "abc"}
        async with serving(files, ONE) as runtime:
            begun = {name: await text(runtime, name, tokens=20) for name in "abc"}
            ended = {name: await text(runtime, name, done=begun[name]) for name in "abc"}
            assert {name: begun[name] + ended[name] for name in "abc"} == undisturbed
            assert [each.loads for each in runtime.statistics()] == [2, 2, 2]
            assert len(set(undisturbed.values())) == 3

    run(test())


@pytest.mark.proves("F-15")
def test_a_model_in_use_stays_and_the_other_waits_for_it(files: list[Path]) -> None:
    """Neither fails, and nothing is lost of the text under way."""

    async def test() -> None:
        async with serving(files[:2], ONE) as runtime:
            await runtime.load("a", "reader")
            generation = await runtime.generate(job_of("a", 1_000))
            waiting = [asyncio.create_task(runtime.load("b", f"waiting {n}")) for n in range(3)]
            await until(lambda: of(runtime, "b").waiting == 3)
            newcomer = asyncio.create_task(runtime.load("a", "newcomer"))
            await until(lambda: of(runtime, "a").waiting == 1)
            pieces = list(await generation.take())
            while pieces[-1].end is None:
                pieces += await generation.take()
            assert len(tokens_of(pieces)) == 1_000
            assert (loaded(runtime), of(runtime, "b").waiting) == ("a", 3)
            runtime.release("reader")
            await asyncio.gather(*waiting)
            assert (loaded(runtime), newcomer.done()) == ("b", False)
            for n in range(3):
                runtime.release(f"waiting {n}")
            await newcomer
            assert loaded(runtime) == "a"

    run(test())


def test_who_gives_up_waiting_is_not_waited_for(files: list[Path]) -> None:
    """Its caller has left while it waited for memory: the model in use takes newcomers again."""

    async def test() -> None:
        async with serving(files[:2], ONE) as runtime:
            await runtime.load("a", "reader")
            waiting = asyncio.create_task(runtime.load("b", "impatient"))
            await until(lambda: of(runtime, "b").waiting)
            waiting.cancel()
            runtime.release("impatient")
            await runtime.load("a", "newcomer")
            assert (of(runtime, "b").waiting, of(runtime, "b").loads) == (0, 0)

    run(test())


def test_an_idle_model_is_unloaded_after_its_time(files: list[Path]) -> None:
    """Its process is gone, and the one in use is not touched."""
    clock = ManualClock()

    async def test() -> None:
        async with serving(files[:2], TWO, idle_seconds=300, clock=clock.monotonic) as runtime:
            await runtime.load("a", "reader")
            both = engines(runtime, 2)
            clock.advance(299)
            await runtime.look()
            assert loaded(runtime) == "ab"
            clock.advance(1)
            await runtime.look()
            await until(lambda: len(runtime.processes()) == 3)
            assert loaded(runtime) == "a"
            assert sum(map(is_gone, both)) == 1
            assert (await runtime.models())[1].name == "b"
            assert runtime.fault() is None
            await use(runtime, "b")
            assert loaded(runtime) == "ab"

    run(test())


def test_a_single_model_is_idle_from_the_moment_it_is_there(files: list[Path]) -> None:
    """Not from the moment at which it began to be loaded: it would never come to the end of that."""
    clock = ManualClock()

    async def test() -> None:
        model = [ModelFile("a", files[0])]
        runtime = LlamaRuntime(model, models_memory_max_bytes=ONE, idle_seconds=5, clock=clock.monotonic)
        runtime.start()
        try:
            await runtime.card("a")
            clock.advance(100)
            await runtime.look()
            await runtime.warm()
            assert loaded(runtime) == "a"
            clock.advance(5)
            await runtime.look()
            await until(lambda: len(runtime.processes()) == 1)
        finally:
            await runtime.close()

    run(test())


@pytest.mark.proves("F-15")
def test_a_model_that_can_never_fit_is_refused_at_once(files: list[Path]) -> None:
    """With both numbers and the setting; the others stay loaded."""
    with files[2].open("ab") as file:
        file.write(bytes(4_000_000))

    async def test() -> None:
        models = [ModelFile(path.stem, path) for path in files]
        runtime = LlamaRuntime(models, models_memory_max_bytes=4_200_000)
        runtime.start()
        try:
            await runtime.load("a", "reader")
            with pytest.raises(ModelUnavailable, match="models_memory_max_bytes is 4,200,000, and its file takes 4,"):
                await runtime.load("c", "hopeful")
            assert "262,144 bytes" in (of(runtime, "c").fault or "")
            assert (of(runtime, "a").loaded, of(runtime, "c").starts) == (True, 0)
            assert runtime.fault() is None
            assert sorted(runtime.usable) == ["a", "b"]
            assert runtime.slots == 4
        finally:
            await runtime.close()

    run(test())


def test_the_window_narrows_to_what_the_file_leaves(files: list[Path]) -> None:
    """Rather than be refused: both together keep within the memory of all models."""

    async def test() -> None:
        async with serving(files[:1], 1_500_000) as runtime:
            card = await runtime.card("a")
            assert card is not None
            assert card.context_length == 1_280
            assert 1_310_720 < (of(runtime, "a").memory_bytes or 0) <= 1_500_000

    run(test())


def change(path: Path) -> str:
    write_tiny_model(path, seed=9)
    return "its file has changed"


def truncate(path: Path) -> str:
    os.truncate(path, 100_000)
    return "its file has changed"


def vanish(path: Path) -> str:
    path.unlink()
    return r"its file cannot be read \(No such file"


@pytest.mark.proves("F-04")
@pytest.mark.parametrize("spoil", [change, truncate, vanish])
@pytest.mark.parametrize("back", ["moved", "copied"])
def test_a_file_that_is_not_what_it_was_is_noticed_at_load_and_told_to_all_until_it_is_back(
    files: list[Path], spoil: Any, back: str
) -> None:
    """Under the same name it is another file when it was copied back; what it holds decides."""
    path = files[1]
    spare = path.with_suffix(".spare")
    lines: list[str] = []

    async def test() -> None:
        async with serving(files[:2], ONE, log=lines.append) as runtime:
            undisturbed = await text(runtime, "b")
            await use(runtime, "a")
            shutil.copyfile(path, spare)
            path.rename(path.with_suffix(".moved"))
            if spoil is not vanish:
                shutil.copyfile(spare, path)
            else:
                path.touch()
            reason = spoil(path)
            for answer in await asyncio.gather(
                *(runtime.load("b", f"user {n}") for n in range(3)), return_exceptions=True
            ):
                assert isinstance(answer, ModelUnavailable)
                assert answer.message.startswith("The model b cannot be used: its file ")
            with pytest.raises(ModelUnavailable, match=reason):
                await runtime.encode("b", HELLO)
            assert list(runtime.usable) == ["a"]
            for n in range(3):
                runtime.release(f"user {n}")
            await text(runtime, "a")

            (spare if back == "copied" else path.with_suffix(".moved")).replace(path)
            await runtime.look()
            assert sorted(runtime.usable) == ["a", "b"]
            assert await text(runtime, "b") == undisturbed
            assert [line for line in lines if "can be used again" in line] == [
                f"model b ({path}): its file is as it was; the model can be used again"
            ]
            assert "model b is unloaded; it is loaded again when it is needed" in lines

    run(test())


def test_a_caller_notices_that_the_file_is_back_before_anybody_has_looked(files: list[Path]) -> None:
    """The tokenizer, too, had been lost meanwhile."""
    path, spare = files[0], files[0].with_suffix(".spare")

    async def test() -> None:
        async with serving(files[:1], ONE) as runtime:
            before = await runtime.encode("a", HELLO)
            path.rename(spare)
            for child in runtime.processes():
                os.kill(child, signal.SIGKILL)
            await until(runtime.fault)
            with pytest.raises(ModelUnavailable, match="No such file"):
                await runtime.load("a")
            spare.rename(path)
            assert await runtime.encode("a", HELLO) == before
            await runtime.load("a")
            assert runtime.fault() is None

    run(test())


def test_a_child_killed_while_it_loads_is_replaced(files: list[Path]) -> None:
    """Who waits for it does not notice; the memory is counted once."""

    async def test() -> None:
        async with serving(files[:2], ONE) as runtime:
            loading = asyncio.create_task(runtime.load("b", "user"))
            await until(lambda: of(runtime, "b").starts)
            assert not of(runtime, "b").loaded
            (engine,) = engines(runtime, 2)
            os.kill(engine, signal.SIGKILL)
            await loading
            assert (of(runtime, "b").loads, of(runtime, "b").starts) == (1, 2)

    run(test())


def test_a_child_that_dies_while_it_loads_again_and_again_is_a_fault_that_all_are_told_and_frees_its_memory(
    files: list[Path],
) -> None:
    """The other model is not kept waiting by it."""

    async def test() -> None:
        async with serving(files[:2], ONE) as runtime:
            loading = [asyncio.create_task(runtime.load("b", f"user {n}")) for n in range(2)]
            other = asyncio.create_task(runtime.load("a", "other"))
            for death in range(UNREADY_DEATHS_MAX):
                await until(lambda death=death: of(runtime, "b").starts > death)
                os.kill(engines(runtime, 2)[0], signal.SIGKILL)
            for each in await asyncio.gather(*loading, return_exceptions=True):
                assert isinstance(each, ModelUnavailable)
                assert "ended with SIGKILL before it was ready, 3 times" in each.message
            await other
            assert (loaded(runtime), list(runtime.usable)) == ("a", ["a"])

    run(test())


def test_a_child_killed_while_it_is_unloaded_is_as_good_as_gone(files: list[Path]) -> None:
    """It was asked to leave, is frozen, and dies by itself."""

    async def test() -> None:
        async with serving(files[:2], ONE) as runtime:
            (engine,) = engines(runtime, 2)
            os.kill(engine, signal.SIGSTOP)
            loading = asyncio.create_task(runtime.load("b", "user"))
            await until(lambda: of(runtime, "b").waiting)
            assert not of(runtime, "b").starts
            os.kill(engine, signal.SIGKILL)
            await loading
            assert loaded(runtime) == "b"
            assert of(runtime, "a").fault is None
            runtime.release("user")
            await use(runtime, "a")
            assert of(runtime, "a").starts == of(runtime, "a").loads == 2

    run(test())


@pytest.mark.parametrize("moment", ["loading", "waiting", "unloading"])
def test_closing_ends_every_wait_and_every_process(files: list[Path], moment: str) -> None:
    """Whatever the models are at."""

    async def test() -> None:
        async with serving(files[:2], ONE) as runtime:
            children = list(runtime.processes())
            if moment == "waiting":
                await runtime.load("a", "reader")
            if moment == "unloading":
                os.kill(engines(runtime, 2)[0], signal.SIGSTOP)
            loading = asyncio.create_task(runtime.load("b", "user"))
            await until(lambda: of(runtime, "b").starts if moment == "loading" else of(runtime, "b").waiting)
            children += runtime.processes()
            await runtime.close()
            with pytest.raises(ModelUnavailable, match="stopping"):
                await loading
            assert runtime.processes() == []
            assert all(map(is_gone, children))

    run(test())
