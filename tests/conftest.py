"""What tests of every floor share."""

from pathlib import Path

import pytest

# Before their first import, so that a failing contract shows what it compared.
pytest.register_assert_rewrite("perdure.testing.contract", "perdure.testing.store_steps")

from perdure.runtime.llamacpp.bundled import MISSING, find_bundled  # noqa: E402 -- see above
from perdure.testing.tiny_gguf import write_tiny_model  # noqa: E402 -- see above


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The random model of 125 kB, written once."""
    path = tmp_path_factory.mktemp("model") / "tiny.gguf"
    write_tiny_model(path)
    return path


@pytest.fixture(scope="session")
def real_model() -> Path:
    """The bundled model of 135 million weights."""
    path = find_bundled()
    if path is None:
        pytest.skip(MISSING)
    return path
