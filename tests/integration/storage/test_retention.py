"""What a large clean-up does to the files, and to whoever writes meanwhile."""

import asyncio
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import apsw
import pytest

from perdure.domain.lifecycle import Status
from perdure.domain.limits import PURGE_BATCH_EVENTS, PURGE_BATCH_TASKS
from perdure.engine.retain import Retain
from perdure.ports.storage import Change, Store, TaskRecord
from perdure.storage.sqlite import log, writer
from perdure.storage.sqlite.store import SqliteStore
from perdure.testing.faulty_vfs import Kind, Operation, RecordingDisk, registered
from perdure.testing.manual_clock import ManualClock
from perdure.testing.store_steps import add_client, delta, end, found, grow, moved, running

DAY_SECONDS = 24 * 3600
LOG_MAX_PAGES = 100
COMMIT_MAX_BYTES = 600_000
TASKS, EVENTS = 40, 1_200


async def with_events(store: Store, ident: str, client: int, events: int) -> TaskRecord:
    """A finished task with so many events of some text."""
    task = await running(store, ident, client)
    text = tuple(delta(number, f"word {number} " * 5, (number,)) for number in range(task.next_seq, events - 1))
    await store.apply(Change(task.id, frozenset({Status.RUNNING}), task.next_seq, Status.RUNNING, 1, text))
    return await moved(store, await found(store, ident), end)


def commits(operations: Sequence[Operation]) -> Iterator[int]:
    """How many bytes each commit has written to the log."""
    written = 0
    for operation in operations:
        if operation.file.endswith("-wal"):
            if operation.kind is Kind.SYNC:
                yield written
                written = 0
            written += len(operation.data)


@pytest.mark.proves("E-14")
def test_a_large_clean_up_is_many_small_commits_between_those_of_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tens of thousands of events go while a text is written: no commit is large, the log stays short, and the text
    gets on all the time."""
    monkeypatch.setattr(log, "LOG_MAX_PAGES", LOG_MAX_PAGES)
    disk = RecordingDisk(f"retention-{tmp_path.name}")

    async def play() -> list[int]:
        store = await SqliteStore.open(tmp_path / "perdure.db", vfs=f"retention-{tmp_path.name}")
        client = await add_client(store)
        tasks = [await with_events(store, f"old{number}", client, EVENTS) for number in range(TASKS)]
        text = await running(store, "text", client)
        disk.log.clear()
        sweep = asyncio.create_task(Retain(store, ManualClock(), print, DAY_SECONDS).sweep())
        left: list[int] = []
        while not sweep.done():
            text = await moved(store, text, grow)
            left.append(len(await store.outlived(2**62, 100)))
        assert await sweep
        assert all([await store.expired(task.ident) == client for task in tasks])
        await store.close()
        return left

    with registered(disk):
        left = asyncio.run(play())
    sizes = list(commits(disk.log))
    assert sum(sizes) > 8 * COMMIT_MAX_BYTES
    assert max(sizes) < COMMIT_MAX_BYTES
    ends = [each.at + len(each.data) for each in disk.log if each.file.endswith("-wal") and each.kind is Kind.WRITE]
    assert max(ends) < LOG_MAX_PAGES * 4_120 + COMMIT_MAX_BYTES
    assert PURGE_BATCH_EVENTS // EVENTS == 1  # so each batch has one task
    assert len(set(left)) >= TASKS * 8 // 10, "the text stood still while batches were purged"


@pytest.mark.proves("P6")
def test_nothing_of_what_a_sweep_has_removed_is_left_beside_the_database(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither in the file nor in its log, while the service runs on."""
    monkeypatch.setattr(writer, "CUT_SECONDS", 0.0)  # otherwise a second later
    path = tmp_path / "perdure.db"

    def left(word: bytes) -> dict[str, int]:
        # In another process: a descriptor of the database that is closed here would drop SQLite's locks.
        count = "import sys; print(open(sys.argv[1], 'rb').read().count(sys.argv[2].encode()))"
        return {
            end: int(subprocess.check_output([sys.executable, "-c", count, f"{path}{end}", word.decode()]))
            for end in ("", "-wal")
        }

    async def play() -> None:
        store = await SqliteStore.open(path)
        client = await add_client(store)
        for number in range(3 * PURGE_BATCH_TASKS):
            task = await running(store, f"t{number}", client)
            await moved(store, task, lambda task: grow(task, "SECRET " * 20), end)
        assert sum(left(b"SECRET").values()) > 100
        sweep = Retain(store, ManualClock(), print, DAY_SECONDS).sweep
        assert await sweep()
        assert left(b"SECRET") == {"": 0, "-wal": 0}
        version = await store.version()
        assert await sweep()
        assert await store.version() == version, "a sweep that removes nothing writes nothing"
        await store.close()

    asyncio.run(play())


@pytest.mark.proves("E-15")
def test_free_pages_are_used_again(tmp_path: Path) -> None:
    """Nine tenths go: the file keeps its size, and a fill of the same amount does not make it larger."""
    path = tmp_path / "perdure.db"

    async def fill(store: Store, client: int, name: str, count: int) -> list[int]:
        return [(await with_events(store, f"{name}{number}", client, 60)).id for number in range(count)]

    async def play() -> None:
        store = await SqliteStore.open(path)
        client = await add_client(store)
        ids = await fill(store, client, "a", 100)
        pages, free = sizes(path)
        assert free < pages // 100
        for first in range(0, 90, PURGE_BATCH_TASKS):
            await store.purge(ids[first : first + PURGE_BATCH_TASKS], 1_000)
        assert sizes(path)[0] == pages
        assert sizes(path)[1] > pages * 7 // 10
        await fill(store, client, "b", 90)
        assert sizes(path)[0] <= pages * 11 // 10
        await store.close()

    asyncio.run(play())


def sizes(path: Path) -> tuple[int, int]:
    """Pages of the file, and how many of them are free."""
    connection = apsw.Connection(str(path))
    found = int(str(connection.pragma("page_count"))), int(str(connection.pragma("freelist_count")))
    connection.close()
    return found
