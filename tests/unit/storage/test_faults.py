"""What SQLite's errors mean to a caller."""

from pathlib import Path

import apsw
import pytest

from perdure.domain.errors import StorageDamaged, StorageFailed, StorageFull
from perdure.storage.sqlite.faults import refusal, translated, unread


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (apsw.FullError("full"), StorageFull),
        (apsw.IOError("broken"), StorageFailed),
        (apsw.CorruptError("malformed"), StorageDamaged),
        (apsw.NotADBError("no database"), StorageDamaged),
        (apsw.BusyError("locked by another program"), StorageFailed),
        (apsw.ReadOnlyError("read-only"), StorageFailed),
        (apsw.ConstraintError("UNIQUE"), AssertionError),
    ],
)
def test_each_error_has_its_meaning(database: apsw.Connection, error: apsw.Error, told: type[Exception]) -> None:
    """And keeps SQLite's own words as its cause."""
    found = translated(error, database)
    assert type(found) is told
    assert found.__cause__ is error


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (apsw.FullError("full"), StorageFailed),
        (apsw.IOError("broken"), StorageFailed),
        (apsw.BusyError("locked"), StorageFailed),
        (apsw.NotADBError("no database"), StorageDamaged),
        (apsw.SQLError("no such column"), apsw.SQLError),
    ],
)
def test_what_a_read_meets_is_told_as_a_read(
    database: apsw.Connection, error: apsw.Error, told: type[Exception]
) -> None:
    """No word of writing, and no full disk: nobody wrote."""
    found = unread(error, database)
    assert type(found) is told
    assert found is error or found.__cause__ is error
    assert "written" not in str(found)
    assert told is not StorageFailed or "could not be read" in str(found)


@pytest.mark.parametrize("error", [apsw.SQLError("no such column"), ValueError("ours"), StorageFull("already told")])
def test_other_errors_pass_as_they_are(database: apsw.Connection, error: Exception) -> None:
    """A fault of the program is not the disk's."""
    assert translated(error, database) is error


def test_the_caller_is_not_told_where_things_lie(database: apsw.Connection) -> None:
    """Detail is for the log."""
    assert "/secret" not in str(translated(apsw.CantOpenError("/secret/path"), database))


@pytest.mark.parametrize("error", [apsw.CorruptError("malformed"), apsw.NotADBError("no"), apsw.CantOpenError("no")])
def test_a_refusal_to_start_names_the_file(error: apsw.Error) -> None:
    """In one line."""
    line = refusal(error, Path("/data/perdure.db")).message
    assert line.startswith("/data/perdure.db ")
    assert "\n" not in line
