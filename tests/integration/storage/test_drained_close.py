"""Closing a store in order (D1, D2, D4, D6)."""

import asyncio
import threading
from collections.abc import Generator
from dataclasses import dataclass, field
from pathlib import Path

import apsw
import pytest
from tests.integration.upkept import answers, held, listening, small_limit, told, upkept

from perdure.storage.sqlite import store as sqlite_store
from perdure.storage.sqlite import upkeep, writer
from perdure.storage.sqlite.log import Log
from perdure.storage.sqlite.store import SqliteStore
from perdure.storage.sqlite.upkeep import Checkpoint
from perdure.testing.faulty_vfs import registered
from perdure.testing.slow_disk import SlowDisk
from perdure.testing.store_steps import QUEUE_MAX, add_client, found, new_task

PAGES = 300


@pytest.fixture
def disk() -> Generator[SlowDisk]:
    """A disk that can be made slow."""
    made = SlowDisk("slow-close")
    with registered(made):
        yield made


@dataclass
class Interrupts:
    """Those that were sent, and whether a checkpoint ran then."""

    sent: list[bool] = field(default_factory=list[bool])
    reached: threading.Event = field(default_factory=threading.Event)
    running: bool = False


@pytest.fixture
def interrupts(monkeypatch: pytest.MonkeyPatch) -> Interrupts:
    """Each is sent for real, too."""
    noted = Interrupts()
    ask = upkeep.rows

    class Watched(apsw.Connection):
        def interrupt(self) -> None:
            noted.sent.append(noted.running)
            super().interrupt()
            noted.reached.set()

    def watched(connection: apsw.Connection, statement: str) -> list[tuple[int, int, int]]:
        noted.running = True
        try:
            return ask(connection, statement)
        finally:
            noted.running = False

    def opened(path: Path, vfs: str | None) -> apsw.Connection:
        connection = Watched(str(path), flags=apsw.SQLITE_OPEN_READWRITE, vfs=vfs)
        connection.pragma("synchronous", "full")
        return connection

    monkeypatch.setattr(upkeep, "open_checkpointer", opened)
    monkeypatch.setattr(upkeep, "rows", watched)
    return noted


def beside(path: Path) -> list[str]:
    """What lies beside the database."""
    return sorted(each.name for each in path.parent.iterdir() if each != path)


@pytest.mark.proves("D1", "D6")
def test_the_loop_has_ended_before_the_database_is_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And so have the probe, the reader and the upkeep's connection: the writer's is the last."""
    close = writer.close
    seen: list[tuple[list[str], int]] = []

    async def play() -> None:
        loop = asyncio.get_running_loop()

        def noted(connection: apsw.Connection, *, as_it_is: bool) -> None:
            tasks = [task.get_name() for task in asyncio.all_tasks(loop)]
            seen.append((tasks, sum(each.filename == connection.filename for each in apsw.connections())))
            close(connection, as_it_is=as_it_is)

        monkeypatch.setattr(writer, "close", noted)
        async with upkept(tmp_path) as it:
            await it.write()
            assert "upkeep" in [task.get_name() for task in asyncio.all_tasks()]
            open_now = sum(each.filename == str(it.path) for each in apsw.connections())
            assert open_now == 4
        ((tasks, left),) = seen
        assert "upkeep" not in tasks
        assert left == 1
        assert beside(it.path) == []

    asyncio.run(play())


@pytest.mark.proves("D2", "D6")
def test_a_checkpoint_under_way_at_the_stop_is_interrupted(
    tmp_path: Path, disk: SlowDisk, interrupts: Interrupts, caplog: pytest.LogCaptureFixture
) -> None:
    """It ends at its next page, no line calls it a failure, no other one begins, and nothing is lost."""

    async def play() -> None:
        async with upkept(tmp_path, "slow-close") as it:
            await it.write(times=PAGES // 5)
            written = disk.writes[".db"]
            disk.hold(".db")
            await it.pause.end()
            assert await asyncio.to_thread(disk.reached.wait, 30)
            closing = asyncio.create_task(it.store.close())
            assert await asyncio.to_thread(interrupts.reached.wait, 30)
            disk.let_go()
            done = {task.get_name(): task for task in asyncio.all_tasks()}["upkeep"]
            await asyncio.wait((done,))
            assert disk.writes[".db"] - written < PAGES // 2
            await closing
            assert (it.condition.checkpoints, it.condition.checkpoints_failed, it.condition.pages) == (0, 0, None)
        assert told(caplog) == []
        assert set(interrupts.sent) == {True}
        assert beside(it.path) == []
        assert disk.writes[".db"] - written >= PAGES  # closing has moved the rest
        store = await SqliteStore.open(it.path)
        assert (await found(store, "writes")).next_seq > PAGES // 5
        await store.close()

    with listening(caplog):
        asyncio.run(play())


@pytest.mark.proves("D2")
def test_a_commit_is_never_interrupted(
    tmp_path: Path, disk: SlowDisk, interrupts: Interrupts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The stop comes while a commit is on its way to the disk and a checkpoint waits behind it: the commit is made,
    the checkpoint is not begun."""
    seen, interrupt = answers(monkeypatch), Checkpoint.interrupt
    asked = asyncio.Event()

    def noted(self: Checkpoint) -> None:
        interrupt(self)
        asked.set()

    monkeypatch.setattr(Checkpoint, "interrupt", noted)

    async def play() -> None:
        async with upkept(tmp_path, "slow-close") as it:
            client = await add_client(it.store)
            disk.hold(".db-wal")
            writes = [asyncio.create_task(it.store.submit(new_task(f"t{n}", client), QUEUE_MAX)) for n in range(20)]
            assert await asyncio.to_thread(disk.reached.wait, 30)
            await it.pause.end()
            for _ in range(20):
                await asyncio.sleep(0)
            closing = asyncio.create_task(it.store.close())
            for _ in range(3):
                asked.clear()
                await asked.wait()
            disk.let_go()
            assert await asyncio.gather(*writes) == [None] * 20
            await closing
        assert interrupts.sent == []
        assert seen == [None]
        store = await SqliteStore.open(it.path)
        for n in range(20):
            await found(store, f"t{n}")
        await store.close()

    asyncio.run(play())


@pytest.mark.proves("D1")
def test_what_was_handed_over_before_the_stop_is_made(tmp_path: Path) -> None:
    """Several batches of it, with a look due at the same moment."""

    async def play() -> None:
        async with upkept(tmp_path) as it:
            client = await add_client(it.store)
            writes = [asyncio.create_task(it.store.submit(new_task(f"t{n}", client), QUEUE_MAX)) for n in range(600)]
            await it.pause.end()
            await it.store.close()
            assert await asyncio.gather(*writes) == [None] * 600
        assert beside(it.path) == []

    asyncio.run(play())


@pytest.mark.proves("D4")
def test_the_stop_makes_no_checkpoint_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last connection to close does it, and leaves one file with everything in it."""
    seen, shortened = answers(monkeypatch), list[int]()

    def noted(self: Log) -> None:
        shortened.append(self.pages)

    monkeypatch.setattr(Log, "shorten", noted)

    async def play() -> None:
        async with upkept(tmp_path) as it:
            await it.write(times=20)
            shortened.clear()
        assert (seen, shortened) == ([], [])
        assert beside(it.path) == []
        store = await SqliteStore.open(it.path)
        assert (await found(store, "writes")).next_seq > 20
        await store.close()

    asyncio.run(play())


@pytest.mark.proves("D2", "W8")
def test_a_loop_that_was_cancelled_is_no_failure(
    tmp_path: Path, disk: SlowDisk, caplog: pytest.LogCaptureFixture
) -> None:
    """In the middle of a checkpoint: it is interrupted, nothing is told, and the store closes as ever."""

    async def play() -> None:
        async with upkept(tmp_path, "slow-close") as it:
            await it.write(times=PAGES // 5)
            disk.hold(".db")
            await it.pause.end()
            assert await asyncio.to_thread(disk.reached.wait, 30)
            loop = {task.get_name(): task for task in asyncio.all_tasks()}["upkeep"]
            loop.cancel()
            await asyncio.wait((loop,))
            written = disk.writes[".db"]
            disk.let_go()
            await it.store.writer.aside(lambda: None)  # behind the checkpoint
            assert disk.writes[".db"] - written < PAGES // 2
            await it.store.close()
        assert told(caplog) == []
        assert beside(it.path) == []

    with listening(caplog):
        asyncio.run(play())


@pytest.mark.proves("D1", "E-11")
def test_an_opening_that_fails_late_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No loop, no thread, no connection, no log."""

    def refused(*_: object) -> apsw.Connection:
        raise OSError("no more descriptors")

    monkeypatch.setattr(sqlite_store, "open_reader", refused)

    async def play() -> None:
        with pytest.raises(OSError, match="descriptors"):
            await SqliteStore.open(tmp_path / "perdure.db")
        assert asyncio.all_tasks() == {asyncio.current_task()}
        assert [each for each in apsw.connections() if each.filename == str(tmp_path / "perdure.db")] == []

    asyncio.run(play())
    assert [each.name for each in threading.enumerate() if each.name.startswith("perdure")] == []
    assert beside(tmp_path / "perdure.db") == []


@pytest.mark.proves("D1", "W10")
def test_a_stop_beside_a_reader_that_stays_is_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A foreign program may go on to read; the log stays beside the file for it, and nothing fails."""
    small_limit(monkeypatch)

    async def play() -> None:
        async with upkept(tmp_path) as it:
            await it.write()
            with held(it.path):
                await it.write(times=70)
                await it.minute()
                await it.store.close()
                assert "perdure.db-wal" in beside(it.path)
        assert [level for level, _ in told(caplog)] == ["WARNING"]
        store = await SqliteStore.open(it.path)
        assert (await found(store, "writes")).next_seq > 70
        await store.close()
        assert beside(it.path) == []

    with listening(caplog):
        asyncio.run(play())
