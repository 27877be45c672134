"""The largest size of the file."""

from pathlib import Path

import apsw
import pytest

from perdure.storage.sqlite.connection import open_writer
from perdure.storage.sqlite.room import ROOM_MIN_BYTES, has_room, limit

MEGABYTE = 1024 * 1024


@pytest.fixture
def filled(tmp_path: Path) -> apsw.Connection:
    """A database of about two megabytes."""
    connection = open_writer(tmp_path / "perdure.db")
    connection.execute("CREATE TABLE filler (id INTEGER PRIMARY KEY, content BLOB)")
    connection.execute("WITH RECURSIVE n(x) AS (VALUES (1) UNION ALL SELECT x + 1 FROM n WHERE x < 512)"
                       " INSERT INTO filler SELECT x, randomblob(3500) FROM n")  # fmt: skip
    return connection


def test_without_a_bound_there_is_always_room(filled: apsw.Connection) -> None:
    """That of the disk is looked at elsewhere."""
    limit(filled, None)
    assert has_room(filled, None)


def test_there_is_room_again_when_enough_pages_are_free(filled: apsw.Connection) -> None:
    """Not with a few, or a full database would come and go with every small write."""
    bound = 2 * MEGABYTE + MEGABYTE // 2
    limit(filled, bound)
    with pytest.raises(apsw.FullError):
        filled.execute("INSERT INTO filler SELECT NULL, randomblob(3500) FROM filler")
    assert not has_room(filled, bound)
    filled.execute("DELETE FROM filler WHERE id <= 60")
    assert not has_room(filled, bound)
    filled.execute("INSERT INTO filler SELECT NULL, randomblob(3500) FROM filler LIMIT 50")  # which there is room for
    filled.execute("DELETE FROM filler WHERE id <= 60 + ?", (ROOM_MIN_BYTES // 4096,))
    assert has_room(filled, bound)


def test_a_database_that_is_larger_than_its_bound_is_used_as_it_is(filled: apsw.Connection) -> None:
    """It does not grow, and what is free in it is used."""
    limit(filled, MEGABYTE)
    with pytest.raises(apsw.FullError):
        filled.execute("INSERT INTO filler VALUES (NULL, randomblob(8000))")
    filled.execute("DELETE FROM filler WHERE id <= 10")
    filled.execute("INSERT INTO filler VALUES (NULL, randomblob(8000))")
