"""The power goes at some moment: whatever was acknowledged until then is there, and nothing is torn."""

import asyncio
import random
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import apsw
import pytest

from perdure.ports.storage import Store
from perdure.storage.sqlite import connection, log
from perdure.storage.sqlite.store import SqliteStore
from perdure.testing.faulty_vfs import Operation, RecordingDisk, image_after_cut, registered
from perdure.testing.store_steps import (
    QUEUE_MAX,
    add_client,
    all_events,
    claim,
    end,
    found,
    grow,
    moved,
    new_task,
    start,
)

CUTS = 60
CALLERS = 6
TASKS_OF_A_CALLER = 5


@dataclass(frozen=True)
class Acknowledged:
    """From operation `at` of the disk on, this task has at least so many events."""

    at: int
    ident: str
    next_seq: int


@dataclass(frozen=True)
class History:
    """What a run did to the disk, from a first moment on, and what it was told."""

    log: Sequence[Operation]
    begin: int
    acknowledged: Sequence[Acknowledged]


async def _work(store: Store, client: int, disk: RecordingDisk, told: list[Acknowledged], caller: int) -> None:
    """A caller who sees some tasks through their lives, one after the other."""
    chance = random.Random(caller)
    for number in range(TASKS_OF_A_CALLER):
        ident = f"t{caller}-{number}"
        await store.submit(new_task(ident, client), QUEUE_MAX)
        told.append(Acknowledged(len(disk.log), ident, 2))
        task = await found(store, ident)
        words = [partial(grow, text="x" * chance.randrange(1, 3_000)) for _ in range(3)]
        for step in (claim, start, *words, end):
            task = await moved(store, task, step)
            told.append(Acknowledged(len(disk.log), ident, task.next_seq))


async def _run(path: Path) -> History:
    disk = RecordingDisk(f"recording-{path.parent.name}")
    told: list[Acknowledged] = []
    with registered(disk):
        store = await SqliteStore.open(path, vfs=f"recording-{path.parent.name}")
        client = await add_client(store)
        begin = len(disk.log)
        await asyncio.gather(*(_work(store, client, disk, told, caller) for caller in range(CALLERS)))
        operations = list(disk.log)
        await store.close()
    return History(operations, begin, told)


async def _lost_after(history: History, cut: int, chance: random.Random, folder: Path) -> int:
    """Open what a cut has left, check that it is whole, and count what was acknowledged and is not there."""
    for name, content in image_after_cut(history.log, cut, chance).items():
        (folder / name).write_bytes(content)
    store = await SqliteStore.open(folder / "perdure.db")
    due = {each.ident: each.next_seq for each in history.acknowledged if each.at <= cut}
    lost = 0
    for ident, next_seq in due.items():
        task = await store.task(ident)
        if task is None or task.next_seq < next_seq:
            lost += 1
    for task in await store.unfinished(0, 1_000):
        await all_events(store, task)
    await store.close()
    return lost


def _cut_often(tmp_path: Path) -> tuple[int, int]:
    """How many cuts lost something, and how many left a damaged file."""
    history = asyncio.run(_run(tmp_path / "perdure.db"))
    chance = random.Random(7)
    losing = damaged = 0
    for number in range(CUTS):
        folder = tmp_path / f"cut{number}"
        folder.mkdir()
        cut = chance.randrange(history.begin, len(history.log) + 1)
        losing += bool(asyncio.run(_lost_after(history, cut, chance, folder)))
        checked = apsw.Connection(str(folder / "perdure.db"))
        damaged += checked.pragma("integrity_check") != "ok" or checked.pragma("foreign_key_check") is not None
        checked.close()
    return losing, damaged


@pytest.fixture(autouse=True)
def short_log(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that many cuts fall into the moving of the log."""
    monkeypatch.setattr(log, "LOG_MAX_PAGES", 60)


@pytest.mark.proves("P3", "P4")
def test_nothing_acknowledged_is_lost_and_nothing_is_torn(tmp_path: Path) -> None:
    """At sixty moments, with writes that were not synced dropped or torn by chance."""
    assert _cut_often(tmp_path) == (0, 0)


def test_this_test_would_notice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the weaker setting that others use, the same cuts do lose acknowledged work."""
    weaker = tuple(("synchronous", "normal", 1) if each[0] == "synchronous" else each for each in connection.WRITER)
    monkeypatch.setattr(connection, "WRITER", weaker)
    losing, _ = _cut_often(tmp_path)
    assert losing > CUTS // 10
