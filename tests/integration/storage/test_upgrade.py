"""Databases of older schemas: what was kept reads as it did then, and a kill in mid-upgrade leaves old or new."""

import asyncio
import gzip
import json
import random
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import apsw
import pytest
from tests.system.server import TERMINAL, Server

from perdure.storage.sqlite.connection import open_writer
from perdure.storage.sqlite.migrate import migrate, shipped
from perdure.storage.sqlite.store import SqliteStore
from perdure.testing.faulty_vfs import Kind, Operation, RecordingDisk, image_after_cut, registered

FIXTURES = Path(__file__).parents[2] / "fixtures"
CUTS = 60

Rows = dict[str, list[Any]]
"""By table."""


def told(name: str) -> dict[str, Any]:
    """What the service of that time answered."""
    return json.loads(gzip.decompress((FIXTURES / f"{name}.json.gz").read_bytes()))


def made(path: Path, name: str = "schema_1") -> Path:
    """The database of that time, as a kill has left it."""
    connection = apsw.Connection(str(path))
    connection.pragma("journal_mode", "wal")
    connection.pragma("wal_autocheckpoint", 0)
    connection.execute(gzip.decompress((FIXTURES / f"{name}.sql.gz").read_bytes()).decode())
    connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
    connection.close()
    assert path.with_name(path.name + "-wal").stat().st_size > 100_000
    return path


def content(connection: apsw.Connection) -> Rows:
    """Every row that the program of that time has written, in the columns that it knew."""
    return {
        table: connection.execute(f"SELECT * FROM {table} ORDER BY 1, 2").fetchall()  # noqa: S608 -- fixed names
        for table in ("clients", "models", "tasks", "responses", "task_events", "event_bodies", "task_attempts")
    }


def schema(connection: apsw.Connection) -> list[Any]:
    """Everything that there is besides rows."""
    query = "SELECT type, name, tbl_name, sql FROM sqlite_schema ORDER BY type, name"
    return connection.execute(query).fetchall()


def opened(path: Path) -> None:
    """Open a store, which upgrades it, and close it."""

    async def play() -> None:
        await (await SqliteStore.open(path)).close()

    asyncio.run(play())


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the filled database, to be copied."""
    return made(tmp_path_factory.mktemp("schema_1") / "perdure.db").parent


@pytest.fixture(scope="module")
def rows(old: Path, tmp_path_factory: pytest.TempPathFactory) -> Rows:
    """Its rows."""
    connection = apsw.Connection(str(shutil.copytree(old, tmp_path_factory.mktemp("rows") / "read") / "perdure.db"))
    assert connection.pragma("user_version") == 1
    found = content(connection)
    connection.close()
    return found


@pytest.mark.proves("P1", "P3")
def test_an_upgraded_database_is_like_a_new_one_and_keeps_every_row(tmp_path: Path, old: Path, rows: Rows) -> None:
    """Same tables, indexes, triggers and views, word for word; sound; and not a byte of the rows has changed."""
    folder = shutil.copytree(old, tmp_path / "upgraded")
    opened(folder / "perdure.db")
    opened(tmp_path / "new.db")
    upgraded, new = apsw.Connection(str(folder / "perdure.db")), apsw.Connection(str(tmp_path / "new.db"))
    assert schema(upgraded) == schema(new)
    for name in ("user_version", "application_id", "page_size", "journal_mode"):
        assert upgraded.pragma(name) == new.pragma(name)
    assert upgraded.pragma("integrity_check") == "ok"
    assert upgraded.pragma("foreign_key_check") is None
    assert content(upgraded) == rows
    upgraded.close()
    new.close()


@pytest.mark.proves("P3", "P5", "P8")
def test_a_service_of_today_reads_and_settles_what_one_of_then_has_left(
    tmp_path: Path, old: Path, tiny_model: Path
) -> None:
    """What had ended is answered byte for byte as then; what had not is settled by its own policy."""
    folder = shutil.copytree(old, tmp_path / "data")
    then = told("schema_1")
    with Server(folder, tiny_model, retention_days="forever") as server:
        server.start()
        for kept in then["kept"].values():
            task = kept["id"].replace("resp_", "task_")
            assert server.http.get(f"/v1/responses/{kept['id']}").text == kept["response"]
            assert server.http.get(f"/v1/tasks/{task}/events?limit=1000").text == kept["events"]
            assert server.http.get(f"/v1/tasks/{task}").text == kept["task"]
            goes_on_from(server, kept["id"])
        left = then["open"]
        assert server.http.get(f"/v1/responses/{left['hidden']}").status_code == 404
        ends = {name: server.ended(left[name]) for name in left if name not in ("hidden", "queued ephemeral")}
        statuses = {name: response["status"] for name, response in ends.items()}
        assert statuses.pop("cancelling") == "cancelled"
        assert statuses.pop("fail") == statuses.pop("queued fail") == "failed"
        assert set(statuses.values()) == {"incomplete"}, statuses  # cut by max_output_tokens, as was asked
        assert server.task(left["retry"])["attempt"] == 2
        assert server.task(left["resume"])["attempt"] == 1
        assert server.ended(left["queued ephemeral"])["status"] in TERMINAL
        assert server.terminate() == 0


def goes_on_from(server: Server, old: str) -> None:
    """A response of today answers what the old one answered and wrote, and then its own input."""
    child = server.create("And then?", previous_response_id=old, truncation="auto", max_output_tokens=1)
    asked, answered = (server.get(f"/v1/responses/{each}/input_items?order=asc") for each in (old, child["id"]))
    written = server.get(f"/v1/responses/{old}")["output"]
    assert [item["id"] for item in answered["data"]] == [
        *(item["id"] for item in (*asked["data"], *written)),
        f"msg_{child['id'].removeprefix('resp_')}_in0",
    ]
    assert answered["data"][: len(asked["data"])] == asked["data"]
    assert {item["type"] for item in asked["data"]} == {"message"}
    assert server.ended(child["id"])["status"] == "incomplete"


# Killed and cut off in the middle.

UPGRADE = """
import sys
from pathlib import Path
from perdure.storage.sqlite.connection import open_writer
from perdure.storage.sqlite.migrate import migrate, shipped

connection = open_writer(Path(sys.argv[1]))
left = int(sys.argv[2])

def traced(cursor, sql, bindings):
    global left
    left -= 1
    if left < 0:
        import os, signal
        os.kill(os.getpid(), signal.SIGKILL)
    return True

connection.exec_trace = traced
migrate(connection, shipped())
"""


def old_or_new(path: Path, rows: Rows) -> int:
    """The version of a database that is whole, with all its rows; opened again, it is of today."""
    connection = apsw.Connection(str(path))
    version = int(connection.pragma("user_version"))
    notes = connection.execute("SELECT count(*) FROM migrations").fetchall()
    there = connection.execute("SELECT count(*) FROM sqlite_schema WHERE name = 'tombstones'").fetchall()
    assert notes == [(version,)]
    assert there == [(int(version >= 2),)]
    assert connection.pragma("integrity_check") == "ok"
    assert content(connection) == rows
    connection.close()
    opened(path)
    connection = apsw.Connection(str(path))
    assert connection.pragma("user_version") == len(shipped())
    assert content(connection) == rows
    connection.close()
    return version


@pytest.mark.proves("P3")
def test_a_kill_before_any_statement_of_an_upgrade_leaves_old_or_new(tmp_path: Path, old: Path, rows: Rows) -> None:
    """SIGKILL at each of them, the commit included."""
    versions: list[int] = []
    for statements in range(200):
        folder = shutil.copytree(old, tmp_path / str(statements))
        ended = subprocess.run(
            [sys.executable, "-c", UPGRADE, str(folder / "perdure.db"), str(statements)], check=False
        )
        versions.append(old_or_new(folder / "perdure.db", rows))
        shutil.rmtree(folder)
        if ended.returncode == 0:
            break
        assert ended.returncode == -9
    assert len(versions) > 20
    assert versions == sorted(versions)
    assert versions[0] == 1
    assert versions[-1] == len(shipped())


@pytest.mark.proves("P3")
def test_a_power_cut_anywhere_in_an_upgrade_leaves_old_or_new(tmp_path: Path, old: Path, rows: Rows) -> None:
    """After any operation of the disk, with whatever chance lets through of what was not synced."""
    path = shutil.copytree(old, tmp_path / "whole") / "perdure.db"
    disk = RecordingDisk(f"upgrade-{tmp_path.name}")
    for file in sorted(each for each in path.parent.iterdir() if not each.name.endswith("-shm")):
        disk.log += [Operation(file.name, Kind.WRITE, 0, file.read_bytes()), Operation(file.name, Kind.SYNC)]
    begin = len(disk.log)
    with registered(disk):
        connection = open_writer(path, f"upgrade-{tmp_path.name}")
        migrate(connection, shipped())
        connection.close()
    chance, versions = random.Random(1), set[int]()
    for number, cut in enumerate(chance.choices(range(begin, len(disk.log) + 1), k=CUTS)):
        place = tmp_path / str(number)
        place.mkdir()
        for name, image in image_after_cut(disk.log, cut, chance).items():
            (place / name).write_bytes(image)
        versions.add(old_or_new(place / "perdure.db", rows))
    assert versions == {1, len(shipped())}
