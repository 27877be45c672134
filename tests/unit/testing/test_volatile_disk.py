"""The disk that loses its cache: what its own process sees, and what a power cut would leave."""

import random
import shutil
from collections.abc import Generator
from pathlib import Path

import apsw
import pytest

from perdure.testing.faulty_vfs import registered
from perdure.testing.volatile_disk import Tally, VolatileDisk


class Late(random.Random):
    """Chances of a disk that writes nothing before it must."""

    def random(self) -> float:
        """The lowest number."""
        return 0.0


@pytest.fixture
def disk(tmp_path: Path) -> Generator[VolatileDisk]:
    """A disk that writes nothing before it must."""
    disk = VolatileDisk("late", Late(), Tally(tmp_path / "tally"))
    with registered(disk):
        yield disk


def opened(folder: Path, level: str = "full") -> apsw.Connection:
    """A connection to a database on the disk."""
    connection = apsw.Connection(str(folder / "x.db"), vfs="late")
    connection.pragma("journal_mode", "wal")
    connection.pragma("synchronous", level)
    return connection


def left(folder: Path) -> list[int]:
    """The numbers in the database as a power cut at this moment would leave them."""
    copy = folder / "copy"
    shutil.rmtree(copy, ignore_errors=True)
    copy.mkdir()
    for file in folder.glob("x.db*"):
        if not file.name.endswith("-shm"):
            shutil.copy(file, copy)
    connection = apsw.Connection(str(copy / "x.db"))
    found = [int(str(number)) for (number,) in connection.execute("SELECT number FROM t ORDER BY number").fetchall()]
    connection.close()
    return found


def test_what_was_not_synced_is_seen_and_would_be_lost(tmp_path: Path, disk: VolatileDisk) -> None:
    """Every connection of the process reads it; the files have it once the log is synced."""
    writer = opened(tmp_path)
    writer.execute("CREATE TABLE t (number)")
    writer.execute("INSERT INTO t VALUES (1)")
    assert left(tmp_path) == [1]
    writer.pragma("synchronous", "off")
    writer.execute("INSERT INTO t VALUES (2)")
    reader = opened(tmp_path)
    assert reader.execute("SELECT count(*) FROM t").fetchall() == [(2,)]
    assert left(tmp_path) == [1]
    assert Tally.read(tmp_path / "tally")[1] > 0
    writer.pragma("synchronous", "full")
    writer.execute("INSERT INTO t VALUES (3)")
    assert left(tmp_path) == [1, 2, 3]
    assert Tally.read(tmp_path / "tally")[1] == 0
    reader.close()
    writer.close()


def test_a_database_is_closed_and_opened_again_on_it(tmp_path: Path, disk: VolatileDisk) -> None:
    """The log that the last connection removes is gone for the process, for the disk once its folder is synced."""
    for number in range(3):
        connection = opened(tmp_path)
        connection.execute("CREATE TABLE IF NOT EXISTS t (number)")
        connection.execute("INSERT INTO t VALUES (?)", (number,))
        connection.close()
        assert not disk.xAccess(str(tmp_path / "x.db-wal"), apsw.SQLITE_ACCESS_EXISTS)
        disk.sync_names()
        assert not (tmp_path / "x.db-wal").exists()
    assert left(tmp_path) == [0, 1, 2]


def test_chance_lets_some_of_it_through(tmp_path: Path) -> None:
    """Of a hundred writes that were not synced, some are in the file, some are not, and some are torn at a sector."""
    disk = VolatileDisk("chance", random.Random(3), Tally(tmp_path / "tally"))
    with registered(disk):
        connection = apsw.Connection(str(tmp_path / "x.db"), vfs="chance")
        connection.pragma("synchronous", "off")
        connection.execute("CREATE TABLE t (text)")
        connection.execute("INSERT INTO t VALUES (?)", ("x" * 400_000,))
        pages = [(tmp_path / "x.db").read_bytes()[at : at + 4096] for at in range(8192, 400_000, 4096)]
        seen = {(b"x" in page, page.endswith(b"x")) for page in pages}
        assert seen == {(True, True), (True, False), (False, False)}
        assert connection.pragma("integrity_check") == "ok"
        connection.close()
