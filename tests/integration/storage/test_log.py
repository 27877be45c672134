"""The log on the disk: few syncs for many callers, and bounded whatever is written."""

import asyncio
from functools import partial
from pathlib import Path

import pytest

from perdure.storage.sqlite import log
from perdure.storage.sqlite.store import SqliteStore
from perdure.testing.faulty_vfs import Kind, RecordingDisk, registered
from perdure.testing.store_steps import QUEUE_MAX, add_client, grow, moved, new_task, running


def test_two_hundred_callers_share_a_few_syncs(tmp_path: Path) -> None:
    """Each of them is durable, and the disk is forced once or twice."""

    async def play() -> None:
        disk = RecordingDisk("recording-syncs")
        with registered(disk):
            store = await SqliteStore.open(tmp_path / "perdure.db", vfs="recording-syncs")
            client = await add_client(store)
            before = len(disk.log)
            await asyncio.gather(*(store.submit(new_task(f"t{n}", client), QUEUE_MAX) for n in range(200)))
            syncs = [each for each in disk.log[before:] if each.kind is Kind.SYNC and each.file == "perdure.db-wal"]
            assert 1 <= len(syncs) <= 4
            await store.close()

    asyncio.run(play())


def test_the_log_stays_short(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However much is written, with reads in between, since it is moved into the file again and again."""
    monkeypatch.setattr(log, "LOG_MAX_PAGES", 50)
    path = tmp_path / "perdure.db"

    async def play() -> None:
        store = await SqliteStore.open(path)
        task = await running(store, "a", await add_client(store))
        for _ in range(100):
            task = await moved(store, task, partial(grow, text="x" * 20_000))
        assert _size(path.with_name("perdure.db-wal")) < 75 * 4_120
        assert _size(path) > 1_500_000
        await store.close()

    asyncio.run(play())


def _size(path: Path) -> int:
    return path.stat().st_size
