"""The power goes at some moment: whatever was acknowledged until then is there, and nothing is torn.

200 moments of one run, drawn by chance; `make soak STORE=10` draws ten times as many. What some cuts have left is
worked on, and in that second life the power goes again.
"""

import asyncio
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.integration.storage.workload import Promise, all_work, broken
from tests.soundness import damage

from perdure.storage.sqlite import connection, log
from perdure.storage.sqlite.store import SqliteStore
from perdure.testing.faulty_vfs import Kind, Operation, RecordingDisk, image_after_cut, registered
from perdure.testing.store_steps import add_client

CUTS = 200
CALLERS, TASKS = 6, 6
SECOND_CALLERS, SECOND_TASKS = 2, 3
CLIENT = 1


@dataclass(frozen=True)
class History:
    """What a run did to the disk, from a first moment on, and what it was told at which operation."""

    log: Sequence[Operation]
    begin: int
    told: Sequence[tuple[int, Promise]]

    def due(self, cut: int) -> dict[str, Promise]:
        """The last promise for each task that was made before the cut."""
        return {promise.ident: promise for at, promise in self.told if at <= cut}


@dataclass
class Left:
    """What cuts have left: how many broke a promise, and what was torn or damaged."""

    losing: int = 0
    torn: tuple[str, ...] = ()


async def _run(path: Path, callers: int, tasks: int, name: str) -> History:
    """Work on the database at `path` from where it stands, and note every operation of the disk."""
    disk = RecordingDisk(f"recording-{name}-{path.parent.name}")
    disk.log += _as_found(path)
    told: list[tuple[int, Promise]] = []
    with registered(disk):
        store = await SqliteStore.open(path, vfs=f"recording-{name}-{path.parent.name}")
        await add_client(store)
        begin = len(disk.log)
        await all_work(store, CLIENT, lambda promise: told.append((len(disk.log), promise)), callers, tasks, name)
        operations = len(disk.log)
        await store.close()
    return History(disk.log[:operations], begin, told)


def _as_found(path: Path) -> Iterator[Operation]:
    for file in sorted(path.parent.glob(f"{path.name}*")):
        if not file.name.endswith("-shm"):
            yield Operation(file.name, Kind.WRITE, 0, file.read_bytes())
            yield Operation(file.name, Kind.SYNC)


def _leave(history: History, cut: int, chance: random.Random, folder: Path) -> None:
    """Put what a cut has left into a folder."""
    folder.mkdir()
    for name, content in image_after_cut(history.log, cut, chance).items():
        if name != "temporary":  # SQLite's own scratch files have no name and outlive nothing
            (folder / name).write_bytes(content)


async def _looked_at(path: Path, promises: Iterable[Promise]) -> list[str]:
    store = await SqliteStore.open(path)
    found = await broken(store, CLIENT, promises)
    await store.close()
    return found


def _cut_often(folder: Path, cuts: int, chance: random.Random, second: Callable[[int], bool]) -> Left:
    """Cut one run so often; `second` says which cuts are followed by a second life."""
    (folder / "first").mkdir()
    history = asyncio.run(_run(folder / "first" / "perdure.db", CALLERS, TASKS, "a"))
    left = Left()
    for number in range(cuts):
        path = folder / f"cut{number}" / "perdure.db"
        cut = chance.randrange(history.begin, len(history.log) + 1)
        _leave(history, cut, chance, path.parent)
        due = history.due(cut)
        _note(left, path, asyncio.run(_looked_at(path, due.values())))
        if second(number):
            _leave(history, cut, random.Random(number), path.parent.with_name(f"again{number}"))
            path = folder / f"again{number}" / "perdure.db"
            again = asyncio.run(_run(path, SECOND_CALLERS, SECOND_TASKS, "b"))
            cut = chance.randrange(again.begin, len(again.log) + 1)
            _leave(again, cut, chance, folder / f"second{number}")
            path = folder / f"second{number}" / "perdure.db"
            _note(left, path, asyncio.run(_looked_at(path, [*due.values(), *again.due(cut).values()])))
    return left


def _note(left: Left, path: Path, found: Sequence[str]) -> None:
    left.losing += bool(found)
    left.torn += (*found, *damage(path))
    assert [each.name for each in path.parent.iterdir()] == ["perdure.db"]


@pytest.fixture(autouse=True)
def short_log(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that many cuts fall into the moving of the log."""
    monkeypatch.setattr(log, "LOG_MAX_PAGES", 60)


@pytest.mark.proves("P3", "P4")
def test_nothing_acknowledged_is_lost_and_nothing_is_torn(tmp_path: Path, pytestconfig: pytest.Config) -> None:
    """With writes that were not synced dropped or torn by chance; every fourth cut has a second life."""
    cuts = CUTS * int(pytestconfig.getoption("--store-soak") or 1)
    chance = random.Random(7 + int(pytestconfig.getoption("--store-seed") or 0))
    assert _cut_often(tmp_path, cuts, chance, lambda number: number % 4 == 0) == Left()


def test_this_test_would_notice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the weaker setting that others use, the same cuts do lose acknowledged work."""
    weaker = tuple(("synchronous", "normal", 1) if each[0] == "synchronous" else each for each in connection.WRITER)
    monkeypatch.setattr(connection, "WRITER", weaker)
    left = _cut_often(tmp_path, CUTS // 4, random.Random(7), lambda _: False)
    assert left.losing > CUTS // 40
