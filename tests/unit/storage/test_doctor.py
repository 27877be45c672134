"""What the doctor says of the library, which no file can show."""

import apsw
import pytest

from perdure.domain.finding import Level
from perdure.storage.sqlite.doctor import sqlite_finding


@pytest.mark.proves("E-06")
@pytest.mark.parametrize("version", ["3.7.0", "3.40.1", "3.44.5", "3.50.6", "3.51.2"])
def test_a_faulty_sqlite_is_a_problem(version: str) -> None:
    """It is named, with its fault and the remedy."""
    found = sqlite_finding(version)
    assert found.level is Level.PROBLEM
    assert version in found.message
    assert "WAL-reset" in found.message
    assert "apsw" in str(found.remedy)


@pytest.mark.proves("E-06")
@pytest.mark.parametrize("version", ["3.44.6", "3.50.7", "3.51.3", None])
def test_a_repaired_one_is_named(version: str | None) -> None:
    """The one in use too."""
    found = sqlite_finding(version)
    assert found.level is Level.OK
    assert (version or apsw.sqlite_lib_version()) in found.message
