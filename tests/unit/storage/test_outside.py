"""What the files say from outside, before SQLite is asked."""

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from perdure.domain.errors import RefusedToStart, StorageDamaged
from perdure.storage.sqlite.connection import look, open_beside, open_writer
from perdure.storage.sqlite.migrate import migrate, shipped
from perdure.storage.sqlite.outside import irregular, orphaned_log
from perdure.storage.sqlite.store import SqliteStore


@pytest.fixture
def crashed(tmp_path: Path) -> Path:
    """A database as a crash leaves it, whose work is in the log."""
    writer = open_writer(tmp_path / "live.db")
    migrate(writer, shipped())
    folder = tmp_path / "crashed"
    folder.mkdir()
    for ending in ("", "-wal"):
        (folder / f"perdure.db{ending}").write_bytes((tmp_path / f"live.db{ending}").read_bytes())
    writer.close()
    return folder / "perdure.db"


def opened(path: Path) -> None:
    """Open a store and close it."""

    async def play() -> None:
        await (await SqliteStore.open(path)).close()

    asyncio.run(play())


def emptied(path: Path) -> None:
    """Only its name is left."""
    os.truncate(path, 0)


@pytest.mark.parametrize("lose", [Path.unlink, emptied])
def test_a_log_without_its_database_is_left_alone(crashed: Path, lose: Callable[[Path], None]) -> None:
    """SQLite would remove it or write over it. With the file back beside it, all is there."""
    whole = crashed.read_bytes()
    lose(crashed)
    before = {each.name: each.read_bytes() for each in crashed.parent.iterdir()}
    with pytest.raises(StorageDamaged) as caught:
        opened(crashed)
    assert {each.name: each.read_bytes() for each in crashed.parent.iterdir()} == before
    assert before["perdure.db-wal"]
    told = caught.value.message
    assert told == orphaned_log(crashed)
    assert all(
        each in told for each in (str(crashed), f"{crashed}-wal", "back beside its log", "perdure restore FILE")
    )
    assert "\n" not in told
    crashed.write_bytes(whole)
    assert orphaned_log(crashed) is None
    opened(crashed)
    assert [each.name for each in crashed.parent.iterdir()] == ["perdure.db"]


def test_an_empty_log_is_no_reason(tmp_path: Path) -> None:
    """Nor is none at all: both are a beginning."""
    path = tmp_path / "perdure.db"
    assert orphaned_log(path) is None
    path.touch()
    (tmp_path / "perdure.db-wal").touch()
    assert orphaned_log(path) is None
    opened(path)


def a_link(path: Path) -> None:
    """To a database elsewhere."""
    elsewhere = path.parent.parent / "elsewhere"
    elsewhere.mkdir()
    opened(elsewhere / "perdure.db")
    path.symlink_to(elsewhere / "perdure.db")


def a_dangling_link(path: Path) -> None:
    """To nothing."""
    path.symlink_to(path.parent.parent / "elsewhere" / "perdure.db")


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (a_link, "is a symbolic link"),
        (a_dangling_link, "is a symbolic link"),
        (Path.mkdir, "is a folder"),
        (os.mkfifo, "is a pipe"),
    ],
)
def test_what_is_no_file_of_its_own_is_refused(tmp_path: Path, make: Callable[[Path], None], told: str) -> None:
    """In words that help; nothing is opened, which at a pipe would never end."""
    path = tmp_path / "data" / "perdure.db"
    path.parent.mkdir()
    make(path)
    with pytest.raises(RefusedToStart) as caught:
        opened(path)
    assert caught.value.message == irregular(path)
    assert told in caught.value.message
    assert "--data" in caught.value.message
    assert "permissions" not in caught.value.message
    if path.is_symlink():
        assert str(tmp_path / "elsewhere") in caught.value.message
    assert [each.name for each in path.parent.iterdir()] == ["perdure.db"]


def test_a_file_is_a_file(tmp_path: Path) -> None:
    """Also one that is not there yet."""
    assert irregular(tmp_path / "perdure.db") is None
    opened(tmp_path / "perdure.db")
    assert irregular(tmp_path / "perdure.db") is None


def looked(path: Path) -> None:
    """Asked without changing it."""
    look(path, lambda connection: connection.pragma("page_count"))


@pytest.mark.parametrize("open_it", [open_beside, looked])
def test_no_command_opens_a_log_without_its_database(crashed: Path, open_it: Callable[[Path], object]) -> None:
    """Reading would remove it as well."""
    emptied(crashed)
    before = {each.name: each.read_bytes() for each in crashed.parent.iterdir()}
    with pytest.raises(StorageDamaged, match="back beside its log"):
        open_it(crashed)
    assert {each.name: each.read_bytes() for each in crashed.parent.iterdir()} == before
