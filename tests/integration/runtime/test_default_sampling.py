"""What a real file says of how its model should be sampled, as far as the card that requests are settled by."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from perdure import bootstrap
from perdure.runtime.llamacpp.defaults import Recommended
from perdure.runtime.llamacpp.host import ModelFile
from perdure.runtime.llamacpp.supervisor import LlamaRuntime
from perdure.settings import load
from perdure.testing.tiny_gguf import write_tiny_model
from tests.integration.runtime.tools import run

TEMP, TOP_P = "general.sampling.temp", "general.sampling.top_p"


async def card_of(file: ModelFile, lines: list[str]) -> tuple[float, float]:
    """The default sampling of the model in a file."""
    runtime = LlamaRuntime([file], log=lines.append)
    runtime.start()
    try:
        (card,) = await runtime.models()
        return card.temperature, card.top_p
    finally:
        await runtime.close()


@pytest.mark.parametrize(
    ("metadata", "found", "told"),
    [
        ({}, (0.3, 0.7), []),
        ({TEMP: 0.6, TOP_P: 0.95}, (0.6, 0.95), []),
        ({TEMP: 0.0}, (0.0, 0.7), []),
        ({TOP_P: 1}, (0.3, 1.0), []),
        ({TEMP: 2.5, TOP_P: "most"}, (0.3, 0.7), [TEMP, TOP_P]),
        ({TEMP: float("nan"), TOP_P: True}, (0.3, 0.7), [TEMP, TOP_P]),
    ],
)
def test_what_the_file_recommends_is_the_model_s_own(
    tmp_path: Path, metadata: Mapping[str, float | str], found: tuple[float, float], told: list[str]
) -> None:
    """As written by the tools that write model files; what cannot be taken stands in the log, with the file."""
    path = tmp_path / "tiny.gguf"
    write_tiny_model(path, metadata=metadata)
    lines: list[str] = []

    async def test() -> None:
        assert await card_of(ModelFile("m", path, Recommended(0.3, 0.7)), lines) == found

    run(test())
    assert [line.split(": ")[1].split(" ")[0] for line in lines] == told
    assert all(str(path) in line for line in lines)


def test_a_file_that_recommends_nothing_has_the_defaults_of_the_api(tiny_model: Path) -> None:
    """Where nobody else recommends anything either."""
    (file,) = model_files(model=str(tiny_model))

    async def test() -> None:
        assert await card_of(file, []) == (1.0, 1.0)

    run(test())


@pytest.mark.real_model
def test_the_bundled_model_is_sampled_as_its_publisher_recommends(real_model: Path) -> None:
    """The file that comes with the installation says nothing itself."""
    (file,) = model_files()
    assert file.path == real_model

    async def test() -> None:
        assert await card_of(file, []) == (0.2, 0.9)

    run(test())


def model_files(**given: str) -> list[ModelFile]:
    """The models of a service with these settings."""
    return vars(bootstrap)["_model_files"](load({"data": "/nonexistent", **given}, environ={}))
