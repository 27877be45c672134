"""Servers that several tests of this folder share."""

from collections.abc import Generator
from pathlib import Path

import pytest

from tests.system.server import Server


@pytest.fixture(scope="module")
def real_server(tmp_path_factory: pytest.TempPathFactory) -> Generator[Server]:
    """The bundled model, served as a user would."""
    with Server(tmp_path_factory.mktemp("real") / "data").start() as server:
        yield server
        assert server.terminate() == 0
        assert "error" not in server.errors.read_text()


@pytest.fixture(scope="module")
def tiny_server(tmp_path_factory: pytest.TempPathFactory, tiny_model: Path) -> Generator[Server]:
    """The tiny model, served."""
    with Server(tmp_path_factory.mktemp("tiny") / "data", tiny_model).start() as server:
        yield server
        assert server.terminate() == 0
        assert "error" not in server.errors.read_text()
