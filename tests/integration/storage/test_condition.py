"""What a store says of itself: counted where it happens, and asked without touching the disk."""

import asyncio
import math
from pathlib import Path

import apsw
import pytest

from perdure.domain.errors import QueueFull
from perdure.storage.sqlite.store import SqliteStore
from perdure.testing.faulty_vfs import Fault, FaultyDisk, registered
from perdure.testing.store_steps import add_client, claim, found, moved, new_task, submitted

MANY = 200


def test_writes_commits_and_waits_are_counted(tmp_path: Path) -> None:
    """Many writes share a commit; one that is refused for its own sake is neither made nor refused by the disk."""

    async def play() -> None:
        store = await SqliteStore.open(tmp_path / "perdure.db")
        client = await add_client(store)
        first = store.condition()
        assert first.engine == f"SQLite {apsw.sqlite_lib_version()}"
        assert (first.trouble, first.reason, first.writes, first.commits, first.writes_refused) == (
            None,
            None,
            1,
            1,
            0,
        )
        await asyncio.gather(*(store.submit(new_task(f"t{n}", client), MANY) for n in range(MANY)))
        with pytest.raises(QueueFull):
            await store.submit(new_task("over", client), MANY)
        last = store.condition()
        assert last.writes == MANY + 1
        assert 1 < last.commits < 10
        assert last.writes_refused == 0
        counts = [count for _, count in last.write_waits]
        assert counts == sorted(counts)
        assert last.write_waits[-1] == (math.inf, MANY + 1)
        assert first.write_wait_seconds_sum < last.write_wait_seconds_sum < 60 * MANY
        assert last.wal is not None
        assert last.wal.size_bytes > 0
        await store.close()

    asyncio.run(play())


def test_refusals_of_the_disk_are_counted(tmp_path: Path) -> None:
    """Each caller who was told."""

    async def play() -> None:
        disk = FaultyDisk("counted")
        with registered(disk):
            store = await SqliteStore.open(tmp_path / "perdure.db", vfs="counted")
            client = await add_client(store)
            disk.fail_from(Fault.IO, 1)
            calls = [store.submit(new_task(f"t{n}", client), MANY) for n in range(7)]
            await asyncio.gather(*calls, return_exceptions=True)
            disk.mend()
            assert (store.condition().writes, store.condition().writes_refused) == (1, 7)
            assert store.condition().trouble == "storage_failed"
            await store.close()

    asyncio.run(play())


def test_the_queue_has_a_length(tmp_path: Path) -> None:
    """Of tasks that wait, not of those that are worked on."""

    async def play() -> None:
        store = await SqliteStore.open(tmp_path / "perdure.db")
        client = await add_client(store)
        assert await store.queued() == 0
        await submitted(store, "a", client)
        await submitted(store, "b", client)
        assert await store.queued() == 2
        await moved(store, await found(store, "a"), claim)
        assert await store.queued() == 1
        await store.close()

    asyncio.run(play())
