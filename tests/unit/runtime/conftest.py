"""The library in the test's own process. The service never does this; tests may, since their files are sound."""

import ctypes
from collections.abc import Iterator
from pathlib import Path

import pytest

from perdure.runtime.llamacpp.library import open_library
from perdure.runtime.llamacpp.model import Model


@pytest.fixture(scope="session")
def library() -> ctypes.CDLL:
    """libllama, declared and checked."""
    return open_library()


@pytest.fixture(scope="session")
def tiny(library: ctypes.CDLL, tiny_model: Path) -> Iterator[Model]:
    """The random model, open."""
    model = Model(library, tiny_model)
    yield model
    model.close()


@pytest.fixture(scope="session")
def real_words(library: ctypes.CDLL, real_model: Path) -> Iterator[Model]:
    """The bundled model's vocabulary and template."""
    model = Model(library, real_model, vocab_only=True)
    yield model
    model.close()
