"""The size from which on nothing new is accepted."""

from collections.abc import Generator
from pathlib import Path

import apsw
import pytest

from perdure.domain.errors import StorageFull
from perdure.storage.sqlite.connection import open_reader, open_writer
from perdure.storage.sqlite.room import Room

MEGABYTE = 1024 * 1024


@pytest.fixture
def filled(tmp_path: Path) -> Generator[tuple[apsw.Connection, apsw.Connection]]:
    """A database of about two megabytes: who writes, and who reads."""
    writer = open_writer(tmp_path / "perdure.db")
    writer.execute("CREATE TABLE filler (id INTEGER PRIMARY KEY, content BLOB)")
    writer.execute(
        "WITH RECURSIVE n(x) AS (VALUES (1) UNION ALL SELECT x + 1 FROM n WHERE x < 512)"
        " INSERT INTO filler SELECT x, randomblob(3500) FROM n"
    )
    reader = open_reader(tmp_path / "perdure.db")
    yield writer, reader
    reader.close()
    writer.close()


def test_without_a_bound_there_is_always_room(filled: tuple[apsw.Connection, apsw.Connection]) -> None:
    """That of the disk is looked at elsewhere."""
    assert not Room(filled[1], None).is_full
    Room(filled[1], None).require()


def test_free_pages_are_room_also_in_a_file_that_is_larger_than_the_bound(
    filled: tuple[apsw.Connection, apsw.Connection], caplog: pytest.LogCaptureFixture
) -> None:
    """It is full until enough has gone, and each of the two is told once."""
    writer, reader = filled
    room = Room(reader, MEGABYTE)
    for _ in range(3):
        with pytest.raises(StorageFull, match="database_max_bytes"):
            room.require()
    writer.execute("DELETE FROM filler WHERE id <= 200")
    assert room.is_full
    writer.execute("DELETE FROM filler WHERE id <= 300")
    for _ in range(3):
        room.require()
    assert [record.levelname for record in caplog.records] == ["WARNING"] * 2
    assert "has reached" in caplog.records[0].message
    assert "is accepted" in caplog.records[1].message


def test_a_database_that_cannot_be_asked_is_not_called_full(filled: tuple[apsw.Connection, apsw.Connection]) -> None:
    """What is wrong with it is told where it is met."""
    filled[1].close()
    assert not Room(filled[1], 1).is_full
