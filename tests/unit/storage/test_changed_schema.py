"""A database whose schema another program has changed."""

import asyncio
import time
from pathlib import Path

import apsw
import pytest

from perdure.domain.errors import RefusedToStart
from perdure.storage.sqlite.connection import look
from perdure.storage.sqlite.migrate import changed, objection, shipped
from perdure.storage.sqlite.store import SqliteStore

REWRITTEN = (
    "PRAGMA writable_schema = 1; UPDATE sqlite_schema SET sql = replace(sql, 'CHECK (crashes >= 0)', '') WHERE "
    "name = 'tasks'; PRAGMA writable_schema = 0"
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A database of the newest schema."""
    opened(tmp_path / "perdure.db")
    return tmp_path / "perdure.db"


def opened(path: Path) -> None:
    """Open a store and close it."""

    async def play() -> None:
        await (await SqliteStore.open(path)).close()

    asyncio.run(play())


def edited(path: Path, sql: str) -> None:
    """Another program changes it."""
    connection = apsw.Connection(str(path))
    connection.execute(sql)
    connection.close()


def refused(path: Path) -> str:
    """The line with which opening is refused; the folder must be as before."""
    before = {each.name: each.read_bytes() for each in path.parent.iterdir()}
    with pytest.raises(RefusedToStart) as caught:
        opened(path)
    assert {each.name: each.read_bytes() for each in path.parent.iterdir()} == before
    assert "\n" not in caught.value.message
    return caught.value.message


@pytest.mark.parametrize(
    ("sql", "told"),
    [
        ("DROP INDEX tasks_outlived", "the index tasks_outlived is missing"),
        ("DROP TRIGGER task_events_follow", "the trigger task_events_follow is missing"),
        ("DROP VIEW task_lines", "the view task_lines is missing"),
        ("DROP TABLE tombstones", "the table tombstones is missing"),
        ("ALTER TABLE models ADD COLUMN colour TEXT", "the table models is not as it was made"),
        (
            "DROP INDEX tasks_outlived; CREATE INDEX tasks_outlived ON tasks (id)",
            "the index tasks_outlived is not as it was made",
        ),
        (REWRITTEN, "the table tasks is not as it was made"),
        ("DELETE FROM service_config", "the row of service_config is missing"),
        ("PRAGMA user_version = 0", "it says schema 0, and its list of migrations has 2"),
        ("PRAGMA user_version = -1", "it says schema -1, and its list of migrations has 2"),
        ("PRAGMA user_version = 1", "it says schema 1, and its list of migrations has 2"),
        ("DELETE FROM migrations WHERE version = 1", "it says schema 2, and its list of migrations has 1"),
        ("DROP TABLE migrations", "it says schema 2, and its list of migrations has 0"),
    ],
)
def test_what_is_missing_or_altered_is_named(path: Path, sql: str, told: str) -> None:
    """The first of it, with the way back. Nothing is mended in silence, as nobody knows what went through."""
    edited(path, sql)
    line = refused(path)
    assert f"{path} was changed by another program: {told}; it was left as it is." in line
    assert "`perdure restore FILE`" in line


def test_what_others_add_is_let_be(path: Path) -> None:
    """A table, an index, a view, a trigger, SQLite's statistics; and a rebuilt file is the same."""
    edited(
        path,
        "CREATE TABLE theirs (x); CREATE INDEX their_index ON tasks (model); CREATE VIEW their_view AS SELECT 1; "
        "CREATE TRIGGER their_trigger AFTER INSERT ON theirs BEGIN SELECT 1; END; ANALYZE; REINDEX",
    )
    edited(path, "VACUUM")
    opened(path)
    assert look(path, lambda connection: changed(connection, shipped())) == []


def test_an_older_schema_is_measured_by_its_own(tmp_path: Path) -> None:
    """Before it is brought up to date: what was changed is not migrated."""
    path, newest = tmp_path / "perdure.db", shipped()

    async def play() -> None:
        await (await SqliteStore.open(path, migrations=newest[:1])).close()

    asyncio.run(play())
    whole = path.read_bytes()
    edited(path, "DROP INDEX tasks_owned")
    assert "the index tasks_owned is missing" in refused(path)
    path.write_bytes(whole)
    opened(path)


def test_what_is_said_of_it_fits_where_another_file_is_to_be_chosen(path: Path) -> None:
    """As a restore asks."""
    edited(path, "DROP TABLE migrations")
    found = look(path, lambda connection: objection(connection, path, shipped(), "another backup"))
    assert found is not None
    assert found.remedy == "Choose another backup"


def test_the_comparison_costs_little(path: Path) -> None:
    """Each start makes it. It takes about 4 ms of processor time."""
    begun = time.process_time()
    for _ in range(10):
        assert look(path, lambda connection: changed(connection, shipped())) == []
    assert time.process_time() - begun < 1
