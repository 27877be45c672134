"""A store on a real file, from opening to closing."""

import asyncio
from pathlib import Path

import apsw
import pytest

from perdure.domain.errors import QueueFull, RefusedToStart, StorageDamaged
from perdure.domain.model import ModelCard
from perdure.storage.sqlite import connection
from perdure.storage.sqlite.store import SqliteStore
from perdure.testing.faulty_vfs import Fault, FaultyDisk, registered
from perdure.testing.store_steps import (
    add_client,
    claim,
    end,
    finished,
    found,
    grow,
    moved,
    new_task,
    running,
    start,
    submitted,
)


def files(folder: Path) -> list[str]:
    """What lies in a folder."""
    return sorted(each.name for each in folder.iterdir())


@pytest.mark.proves("P1")
def test_a_closed_store_is_one_file(tmp_path: Path) -> None:
    """Whatever was done with it, and when it was opened again only to be read."""

    async def play() -> None:
        store = await SqliteStore.open(tmp_path / "perdure.db")
        await finished(store, "a", await add_client(store))
        assert files(tmp_path) == ["perdure.db", "perdure.db-shm", "perdure.db-wal"]
        await store.close()
        assert files(tmp_path) == ["perdure.db"]
        store = await SqliteStore.open(tmp_path / "perdure.db")
        await found(store, "a")
        await store.close()
        assert files(tmp_path) == ["perdure.db"]

    asyncio.run(play())


@pytest.mark.parametrize("spoilt", [0, 7])
def test_a_spoilt_length_of_the_queue_stops_nothing_and_is_mended_at_the_next_start(
    tmp_path: Path, spoilt: int
) -> None:
    """Whatever a foreign hand has done to the number: work goes on, and the bound holds again afterwards."""

    async def play() -> None:
        store = await SqliteStore.open(tmp_path / "perdure.db")
        client = await add_client(store)
        waits, goes = await submitted(store, "waits", client), await submitted(store, "goes", client)
        foreign = apsw.Connection(str(tmp_path / "perdure.db"))
        foreign.execute("UPDATE service_config SET tasks_queued = ?", (spoilt,))
        foreign.close()
        await moved(store, await moved(store, goes, claim, start), end)
        await moved(store, await submitted(store, "came", client), end)
        await moved(store, waits, claim)
        await submitted(store, "still", client)
        await store.boot("b2", 9)
        with pytest.raises(QueueFull):
            await store.submit(new_task("over", client), 1)
        await store.submit(new_task("fits", client), 2)
        await store.close()

    asyncio.run(play())


def test_a_closing_that_is_cancelled_goes_on(tmp_path: Path) -> None:
    """Whoever waits for it may leave; the next who asks finds it done."""

    async def play() -> None:
        store = await SqliteStore.open(tmp_path / "perdure.db")
        client = await add_client(store)
        write = asyncio.create_task(submitted(store, "a", client))
        await asyncio.sleep(0)
        closing = asyncio.create_task(store.close())
        await asyncio.sleep(0)
        closing.cancel()
        await store.close()
        assert closing.cancelled()
        await asyncio.gather(write, return_exceptions=True)
        assert files(tmp_path) == ["perdure.db"]

    asyncio.run(play())


def test_a_refused_opening_leaves_no_thread_and_no_file(tmp_path: Path) -> None:
    """Trying again works as soon as the cause is gone."""

    async def play() -> None:
        path = tmp_path / "perdure.db"
        path.write_bytes(b"no database" * 1_000)
        for _ in range(3):
            with pytest.raises(StorageDamaged):
                await SqliteStore.open(path)
        assert files(tmp_path) == ["perdure.db"]
        path.unlink()
        await (await SqliteStore.open(path)).close()

    asyncio.run(play())


@pytest.mark.proves("P3")
def test_the_name_of_a_new_database_is_forced_to_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file without a durable name is lost with everything in it."""
    forced: list[Path] = []

    def note(folder: Path) -> None:
        forced.append(folder)
        sync_folder(folder)

    sync_folder = connection.sync_folder
    monkeypatch.setattr(connection, "sync_folder", note)

    async def play() -> None:
        await (await SqliteStore.open(tmp_path / "perdure.db")).close()

    asyncio.run(play())
    assert forced == [tmp_path]


@pytest.mark.proves("P6")
def test_nothing_of_a_purged_text_is_left_in_the_file(tmp_path: Path) -> None:
    """Neither of the request nor of the answer, small or large, among neighbours that stay."""
    path = tmp_path / "perdure.db"

    async def play() -> None:
        store = await SqliteStore.open(path)
        client = await add_client(store)
        for n in range(40):
            word = "SECRET" if n % 3 else "PUBLIC"
            task = await running(store, f"{word}-{n}", client)
            for size in (1, 30, 600):
                task = await moved(store, task, lambda task, text=word * size: grow(task, text))
            await store.apply(end(task))
        for n in range(40):
            if n % 3:
                await store.purge([(await found(store, f"SECRET-{n}")).id])
        await store.close()

    asyncio.run(play())
    content = path.read_bytes()
    assert b"PUBLIC" in content
    assert b"SECRET" not in content


def test_unchanged_facts_of_a_model_write_nothing(tmp_path: Path) -> None:
    """Readers who watch for commits are not woken."""

    async def play() -> None:
        store = await SqliteStore.open(tmp_path / "perdure.db")
        watcher = connection.open_reader(tmp_path / "perdure.db")
        card = ModelCard("tiny", "0" * 64, 125_000, 4096, True, "{}", 1)
        await store.keep_model(card, "/tiny.gguf")
        before = watcher.pragma("data_version")
        await store.keep_model(card, "/tiny.gguf")
        await store.keep_model(ModelCard("tiny", "0" * 64, 125_000, 4096, True, "{}", 2), "/tiny.gguf")
        assert watcher.pragma("data_version") == before
        await store.keep_model(card, "/elsewhere.gguf")
        assert watcher.pragma("data_version") != before
        watcher.close()
        await store.close()

    asyncio.run(play())


def test_a_token_ends_when_its_time_has_come_or_it_is_revoked(tmp_path: Path) -> None:
    """Both are columns that the store heeds."""
    path = tmp_path / "perdure.db"

    async def play() -> None:
        store = await SqliteStore.open(path)
        token = b"\x01" * 32
        await add_client(store, token=token)
        other = connection.open_writer(path)
        other.execute("UPDATE clients SET expires_at = 100")
        assert await store.principal(token, 99) is not None
        assert await store.principal(token, 100) is None
        other.execute("UPDATE clients SET expires_at = NULL, revoked_at = 50")
        assert await store.principal(token, 99) is None
        other.close()
        await add_client(store, token=token)
        assert await store.principal(token, 99) is not None
        await store.close()

    asyncio.run(play())


def test_a_disk_that_refuses_the_last_checkpoint_does_not_stop_the_closing(tmp_path: Path) -> None:
    """The log stays beside the file, and the next opening reads it."""

    async def play() -> None:
        disk = FaultyDisk("faulty-close")
        with registered(disk):
            store = await SqliteStore.open(tmp_path / "perdure.db", vfs="faulty-close")
            await submitted(store, "a", await add_client(store))
            disk.fail_from(Fault.IO, 1)
            await store.close()
        store = await SqliteStore.open(tmp_path / "perdure.db")
        await found(store, "a")
        await store.close()

    asyncio.run(play())


def test_reads_do_not_wait_for_a_foreign_lock(tmp_path: Path) -> None:
    """A program that holds the write lock stops writers, and no reader."""
    path = tmp_path / "perdure.db"

    async def play() -> None:
        store = await SqliteStore.open(path)
        task = await submitted(store, "a", await add_client(store))
        other = apsw.Connection(str(path))
        other.execute("BEGIN EXCLUSIVE")
        assert await found(store, "a") == task
        write = asyncio.create_task(store.submit(new_task("b", task.client_id), 10))
        await asyncio.sleep(0)
        assert await store.task("b") is None
        other.execute("ROLLBACK")
        other.close()
        await write
        await found(store, "b")
        await store.close()

    asyncio.run(play())


@pytest.mark.parametrize("held", ["BEGIN; SELECT count(*) FROM tasks", "SELECT count(*) FROM tasks"])
def test_a_log_that_another_program_keeps_is_told_at_the_stop(
    tmp_path: Path, held: str, caplog: pytest.LogCaptureFixture
) -> None:
    """In one line: whoever then copies the file alone loses work. The next start reads it, and its stop is silent."""
    path = tmp_path / "perdure.db"

    async def play() -> None:
        store = await SqliteStore.open(path)
        other = apsw.Connection(str(path))
        other.execute(held).fetchall()
        await submitted(store, "a", await add_client(store))
        await store.close()
        assert (tmp_path / "perdure.db-wal").stat().st_size
        (record,) = caplog.records
        assert record.levelname == "WARNING"
        assert "closed in order, but perdure.db-wal stays" in record.getMessage()
        assert f"Do not move or copy {path} without it" in record.getMessage()
        (tmp_path / "copy").mkdir()
        for name in ("perdure.db", "perdure.db-wal"):
            (tmp_path / "copy" / name).write_bytes((tmp_path / name).read_bytes())
        other.close()
        caplog.clear()
        store = await SqliteStore.open(tmp_path / "copy" / "perdure.db")
        await found(store, "a")
        await store.close()
        assert caplog.records == []
        assert files(tmp_path / "copy") == ["perdure.db"]

    asyncio.run(play())


@pytest.mark.parametrize("lock", ["BEGIN IMMEDIATE", "PRAGMA locking_mode = exclusive; BEGIN EXCLUSIVE"])
def test_a_database_that_another_program_holds_locked_is_refused_in_words(
    tmp_path: Path, lock: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Permissions and space are not what is wrong. Once it is let go the start goes well."""
    path = tmp_path / "perdure.db"
    monkeypatch.setattr(connection, "WRITER_BUSY_MAX_MS", 10)

    async def play() -> None:
        await (await SqliteStore.open(path)).close()
        other = apsw.Connection(str(path))
        other.execute(lock).fetchall()
        with pytest.raises(RefusedToStart, match="another program holds it locked; end that one") as caught:
            await SqliteStore.open(path)
        assert "permissions" not in caught.value.message
        other.execute("ROLLBACK")
        other.close()
        await (await SqliteStore.open(path)).close()

    asyncio.run(play())


@pytest.mark.parametrize("fault", Fault)
def test_a_disk_without_room_is_told_at_the_start(tmp_path: Path, fault: Fault) -> None:
    """And not for another fault of the disk."""

    async def play() -> None:
        disk = FaultyDisk("faulty-start")
        with registered(disk):
            disk.fail_from(fault, 1)
            with pytest.raises(RefusedToStart) as caught:
                await SqliteStore.open(tmp_path / "perdure.db", vfs="faulty-start")
        assert ("the disk is full" in caught.value.message) == (fault is Fault.FULL)

    asyncio.run(play())
