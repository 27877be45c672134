"""Servers that all tests of this folder share, and an official client of each."""

from collections.abc import Generator
from pathlib import Path

import openai
import pytest

from tests.system.server import Server


@pytest.fixture(scope="package")
def real_server(tmp_path_factory: pytest.TempPathFactory) -> Generator[Server]:
    """The bundled model, served as a user would."""
    with Server(tmp_path_factory.mktemp("real") / "data").start() as server:
        yield server
        assert server.terminate() == 0


@pytest.fixture(scope="package")
def tiny_server(tmp_path_factory: pytest.TempPathFactory, tiny_model: Path) -> Generator[Server]:
    """The tiny model, served: what it says is noise, and where a grammar leads it, noise of the right shape."""
    with Server(tmp_path_factory.mktemp("tiny") / "data", tiny_model).start() as server:
        yield server
        assert server.terminate() == 0


@pytest.fixture
def real(real_server: Server) -> openai.OpenAI:
    """The official client of the bundled model."""
    return real_server.client()


@pytest.fixture
def tiny(tiny_server: Server) -> openai.OpenAI:
    """The official client of the tiny model."""
    return tiny_server.client()
