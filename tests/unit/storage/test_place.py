"""A file that is no longer where it was opened gets no more commits."""

from collections.abc import Callable, Iterator
from pathlib import Path

import apsw
import pytest

from perdure.domain.errors import StorageFailed
from perdure.storage.sqlite import place
from perdure.storage.sqlite.connection import open_writer
from perdure.storage.sqlite.query import rows, value


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[apsw.Connection]:
    """A connection that is watched, to a table with one row."""
    connection = open_writer(tmp_path / "perdure.db")
    connection.execute("CREATE TABLE numbers (n INTEGER) STRICT")
    place.watch(connection)
    rows(connection, "INSERT INTO numbers VALUES (1)")
    yield connection
    connection.close()


def replace(path: Path) -> None:
    """Another file takes the place."""
    path.with_name("other").write_bytes(b"")
    path.with_name("other").replace(path)


AWAY: dict[str, Callable[[Path], object]] = {
    "deleted": Path.unlink,
    "renamed": lambda path: path.rename(path.with_name("elsewhere")),
    "replaced": replace,
}


@pytest.mark.parametrize("file", ["perdure.db", "perdure.db-wal"])
@pytest.mark.parametrize("how", AWAY)
def test_a_commit_into_nowhere_is_refused(watched: apsw.Connection, tmp_path: Path, how: str, file: str) -> None:
    """It would seem to be kept, and the next start would not find it. What was there can still be read."""
    AWAY[how](tmp_path / file)
    with pytest.raises(StorageFailed) as caught:
        rows(watched, "INSERT INTO numbers VALUES (2)")
    assert str(tmp_path / file) in str(caught.value.__cause__)
    assert str(tmp_path) not in caught.value.message
    assert not watched.in_transaction
    assert value(watched, "SELECT count(*) FROM numbers") == 1


def test_a_file_that_comes_back_is_written_again(watched: apsw.Connection, tmp_path: Path) -> None:
    """It is the same file."""
    path = tmp_path / "perdure.db"
    path.rename(tmp_path / "elsewhere")
    with pytest.raises(StorageFailed):
        rows(watched, "INSERT INTO numbers VALUES (2)")
    (tmp_path / "elsewhere").rename(path)
    rows(watched, "INSERT INTO numbers VALUES (3)")
    assert rows(watched, "SELECT n FROM numbers") == [(1,), (3,)]
