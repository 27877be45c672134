"""From any schema to the newest one."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import apsw
import pytest

from perdure.domain.errors import RefusedToStart, StorageDamaged
from perdure.storage.sqlite.connection import open_writer
from perdure.storage.sqlite.migrate import Migration, migrate, shipped
from perdure.storage.sqlite.store import SqliteStore

FIRST = Migration(1, "first", "CREATE TABLE one (id INTEGER PRIMARY KEY) STRICT; INSERT INTO one VALUES (1);")
SECOND = Migration(
    2, "second", "CREATE TABLE two (id INTEGER REFERENCES one (id)) STRICT; INSERT INTO two VALUES (1);"
)

OUT = ["2fc0812f54cc38bac65486422d79f0de9d689750613e36dbb47ece4a7af8dadc"]
"""Checksums of the migrations that somebody's database may have been made by."""


def opened(path: Path, migrations: Sequence[Migration]) -> None:
    """Open a store and close it."""

    async def play() -> None:
        await (await SqliteStore.open(path, migrations=migrations)).close()

    asyncio.run(play())


def tables(path: Path) -> list[str]:
    """The tables of a database."""
    connection = apsw.Connection(str(path))
    found = [
        name for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name")
    ]
    connection.close()
    return found


def refused(path: Path, migrations: Sequence[Migration]) -> str:
    """The line with which opening is refused; the folder must be as before."""
    before = {each.name: each.read_bytes() for each in path.parent.iterdir()}
    with pytest.raises((RefusedToStart, StorageDamaged)) as caught:
        opened(path, migrations)
    assert {each.name: each.read_bytes() for each in path.parent.iterdir()} == before
    assert "\n" not in caught.value.message
    return caught.value.message


def test_migrations_are_numbered_without_a_gap() -> None:
    """And each has a name."""
    found = shipped()
    assert [migration.version for migration in found] == list(range(1, len(found) + 1))
    assert all(migration.name and migration.sql for migration in found)


def test_the_migrations_that_are_out_are_what_they_were() -> None:
    """Byte for byte: a database that one of them made is refused by a program that carries another text."""
    assert [migration.checksum for migration in shipped()][: len(OUT)] == OUT


def test_a_new_database_gets_all_of_them(tmp_path: Path) -> None:
    """In order, each noted with its checksum."""
    path = tmp_path / "perdure.db"
    connection = open_writer(path)
    migrate(connection, [FIRST, SECOND])
    notes = connection.execute("SELECT version, name, sha256 FROM migrations ORDER BY version").fetchall()
    assert notes == [(1, "first", FIRST.checksum), (2, "second", SECOND.checksum)]
    assert connection.pragma("user_version") == 2
    connection.close()
    assert tables(path) == ["migrations", "one", "two"]


def test_an_older_database_gets_the_missing_ones(tmp_path: Path) -> None:
    """And a second opening finds nothing to do."""
    path = tmp_path / "perdure.db"
    opened(path, [FIRST])
    opened(path, [FIRST, SECOND])
    assert tables(path) == ["migrations", "one", "two"]
    before = path.read_bytes()
    opened(path, [FIRST, SECOND])
    assert path.read_bytes() == before


def test_a_failing_migration_leaves_nothing_behind(tmp_path: Path) -> None:
    """Neither its tables nor its number; repaired, it is made."""
    path = tmp_path / "perdure.db"
    opened(path, [FIRST])
    before = path.read_bytes()
    broken = Migration(2, "broken", "CREATE TABLE half (x); INSERT INTO half VALUES (1); CREATE TABLE one (x);")
    with pytest.raises(RefusedToStart, match="table one already exists"):
        opened(path, [FIRST, broken])
    assert path.read_bytes() == before
    opened(path, [FIRST, SECOND])
    assert tables(path) == ["migrations", "one", "two"]


def test_a_migration_that_breaks_a_reference_is_undone(tmp_path: Path) -> None:
    """References are checked before the commit."""
    path = tmp_path / "perdure.db"
    opened(path, [FIRST, SECOND])
    with pytest.raises(AssertionError, match="migration 3 leaves references that point nowhere"):
        opened(path, [FIRST, SECOND, Migration(3, "third", "DELETE FROM one;")])
    connection = apsw.Connection(str(path))
    assert connection.execute("SELECT count(*) FROM one").fetchall() == [(1,)]
    assert connection.pragma("user_version") == 2
    connection.close()


def test_a_newer_database_is_refused_untouched(tmp_path: Path) -> None:
    """An old program must not guess what a new one meant."""
    path = tmp_path / "perdure.db"
    opened(path, [FIRST, SECOND])
    assert "newer Perdure (schema 2, this one knows 1)" in refused(path, [FIRST])


def test_a_changed_migration_is_refused(tmp_path: Path) -> None:
    """What made the database is not what the program carries."""
    path = tmp_path / "perdure.db"
    opened(path, [FIRST])
    changed = Migration(1, "first", FIRST.sql + " -- better")
    assert "migration 1 (first) is not the one" in refused(path, [changed, SECOND])


def test_a_database_of_another_program_is_refused(tmp_path: Path) -> None:
    """With or without a version number of its own."""
    for version in (0, 1):
        path = tmp_path / f"other{version}.db"
        connection = apsw.Connection(str(path))
        connection.execute("CREATE TABLE theirs (x)")
        connection.pragma("user_version", version)
        connection.close()
        assert "is not a database of Perdure" in refused(path, [FIRST])


def test_a_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    """The line names the file and says how to restore."""
    path = tmp_path / "perdure.db"
    path.write_bytes(b"This is a letter and no database.\n" * 1_000)
    line = refused(path, [FIRST])
    assert str(path) in line
    assert "backup" in line


def test_a_cut_file_is_refused(tmp_path: Path) -> None:
    """As a disk that lost its end leaves it."""
    path = tmp_path / "perdure.db"
    opened(path, shipped())
    path.write_bytes(path.read_bytes()[: 3 * 4096])
    assert "damaged" in refused(path, shipped())


def test_an_empty_file_is_a_new_database(tmp_path: Path) -> None:
    """As a crash in the first moment leaves it."""
    path = tmp_path / "perdure.db"
    path.touch()
    opened(path, [FIRST])
    assert tables(path) == ["migrations", "one"]


def test_a_database_with_nothing_in_it_is_a_new_one(tmp_path: Path) -> None:
    """As a crash a moment later leaves it."""
    path = tmp_path / "perdure.db"
    open_writer(path).close()
    assert path.stat().st_size > 0
    opened(path, [FIRST])
    assert tables(path) == ["migrations", "one"]


def test_a_note_of_a_migration_that_is_not_known_is_refused(tmp_path: Path) -> None:
    """The count says one thing and the notes another: no traceback."""
    path = tmp_path / "perdure.db"
    opened(path, [FIRST, SECOND])
    connection = apsw.Connection(str(path))
    connection.pragma("user_version", 1)
    connection.close()
    assert "migration 2 (second) is not the one" in refused(path, [FIRST])


def test_a_folder_that_is_missing_is_refused(tmp_path: Path) -> None:
    """Making it is not the store's business."""
    with pytest.raises(RefusedToStart, match="cannot be opened"):
        opened(tmp_path / "nowhere" / "perdure.db", [FIRST])
