"""Models that cannot be used: the reason is told, the service lives, nothing is started over and over."""

import _ctypes
import os
import random
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from perdure.domain.errors import ModelUnavailable
from perdure.domain.model import Message, Prompt
from perdure.runtime.llamacpp.host import ModelFile
from perdure.runtime.llamacpp.supervisor import LlamaRuntime
from perdure.testing.tiny_gguf import write_tiny_model
from tests.integration.runtime.tools import draw, make_job, run, running, text_of, until


def missing(path: Path, sound: bytes) -> None:
    """No file."""


def text_file(path: Path, sound: bytes) -> None:
    path.write_text("This is not a model.\n")


def cut_vocabulary(path: Path, sound: bytes) -> None:
    path.write_bytes(sound[:5_000])


def cut_weights(path: Path, sound: bytes) -> None:
    path.write_bytes(sound[:-1])


def random_weights(path: Path, sound: bytes) -> None:
    path.write_bytes(sound[:-60_000] + random.Random(5).randbytes(60_000))


def folder(path: Path, sound: bytes) -> None:
    path.mkdir()


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (missing, "No such file"),
        (text_file, "is not a GGUF file"),
        (cut_vocabulary, "cannot be loaded"),
        (cut_weights, "corrupted or incomplete"),
        (random_weights, "invalid"),
        (folder, "Is a directory"),
    ],
)
def test_a_damaged_file_is_a_fault_with_its_reason(
    tiny_model: Path, tmp_path: Path, damage: Callable[[Path, bytes], None], reason: str
) -> None:
    """Every way to ask for the model gives it; each child was started once at most. Where the file is stands in the
    log only: `/readyz` gives the fault to everybody, and a failed response keeps it."""

    path = tmp_path / "model.gguf"
    damage(path, tiny_model.read_bytes())
    lines: list[str] = []

    async def test() -> None:
        async with running(path, log=lines.append) as runtime:
            for asking in (
                runtime.load("m"),
                runtime.card("m"),
                runtime.encode("m", Prompt((Message("user", "x"),))),
            ):
                with pytest.raises(ModelUnavailable, match=reason) as caught:
                    await asking
                assert caught.value.message.startswith("The model m cannot be used: ")
                assert str(tmp_path) not in caught.value.message
            fault = runtime.fault() or ""
            assert reason in fault
            assert str(tmp_path) not in fault
            assert [line for line in lines if reason in line and str(path) in line]
            assert (await runtime.models(), runtime.usable) == ([], [])
            assert runtime.statistics()[0].starts <= 1

    run(test())


def test_a_sound_model_beside_a_damaged_one_is_served(tiny_model: Path, tmp_path: Path) -> None:
    """There is no fault while any model can be asked."""

    async def test() -> None:
        runtime = LlamaRuntime([ModelFile("m", tiny_model), ModelFile("b", tmp_path / "gone.gguf")])
        runtime.start()
        try:
            assert [card.name for card in await runtime.models()] == ["m"]
            with pytest.raises(ModelUnavailable):
                await runtime.card("b")
            await runtime.load("m")
            assert text_of(await draw(runtime, make_job()))
            assert runtime.fault() is None
        finally:
            await runtime.close()

    run(test())


def test_no_model_at_all_is_a_fault() -> None:
    """And nothing else happens."""

    async def test() -> None:
        runtime = LlamaRuntime([])
        runtime.start()
        assert await runtime.models() == []
        assert runtime.fault() == "There is no model."
        await runtime.close()

    run(test())


def test_a_file_that_changed_is_not_served_under_the_old_digest(tiny_model: Path, tmp_path: Path) -> None:
    """The engine dies, and its successor would load other weights."""
    path, new = tmp_path / "model.gguf", tmp_path / "new.gguf"
    path.write_bytes(tiny_model.read_bytes())
    write_tiny_model(new, seed=9)

    async def test() -> None:
        async with running(path) as runtime:
            await runtime.load("m")
            os.replace(new, path)  # noqa: PTH105 - a call so short does not hold up the loop
            os.kill(runtime.processes()[1], signal.SIGKILL)
            await until(runtime.fault)
            with pytest.raises(ModelUnavailable, match="its file has changed") as caught:
                await runtime.load("m")
            assert str(tmp_path) not in caught.value.message

    run(test())


def test_memory_bounds_the_window(tiny_model: Path) -> None:
    """Four slots of 1,280 tokens of 256 bytes are what 1.5 MB hold."""

    async def test() -> None:
        async with running(tiny_model, memory_max_bytes=1_500_000) as runtime:
            card = await runtime.card("m")
            assert card is not None
            assert (runtime.slots, card.context_length) == (4, 1_280)

    run(test())


def test_memory_bounds_the_slots(tiny_model: Path) -> None:
    """Below 1,024 tokens a slot, there are fewer of them."""

    async def test() -> None:
        async with running(tiny_model, memory_max_bytes=600_000) as runtime:
            card = await runtime.card("m")
            assert card is not None
            assert (runtime.slots, card.context_length) == (2, 1_024)

    run(test())


def test_too_little_memory_is_a_fault(tiny_model: Path) -> None:
    """Both numbers are told, and nothing was asked of the system."""

    async def test() -> None:
        async with running(tiny_model, memory_max_bytes=100_000) as runtime:
            with pytest.raises(ModelUnavailable, match=r"262,144 bytes .* 100,000 are allowed"):
                await runtime.card("m")

    run(test())


def test_two_threads_are_not_called_exact(tiny_model: Path) -> None:
    """They serve all the same."""

    async def test() -> None:
        async with running(tiny_model, threads=2) as runtime:
            card = await runtime.card("m")
            assert card is not None
            assert not card.exact
            assert '"threads":2' in card.fingerprint

    run(test())


def test_a_library_that_is_none_is_a_fault(tiny_model: Path) -> None:
    """The setting names the wrong file."""

    async def test() -> None:
        async with running(tiny_model, library=Path(_ctypes.__file__)) as runtime:
            with pytest.raises(ModelUnavailable, match="is not a libllama") as caught:
                await runtime.card("m")
            assert str(Path(_ctypes.__file__).parent) not in caught.value.message

    run(test())
