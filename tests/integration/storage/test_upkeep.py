"""The minute's look at the log, on real files (W10)."""

import asyncio
import re
import threading
from contextlib import ExitStack
from pathlib import Path

import apsw
import pytest
from tests.integration.upkept import answers, held, listening, small_limit, told, upkept

from perdure.storage.sqlite.connection import LOG_SIZE_MAX_BYTES, open_checkpointer, open_writer
from perdure.storage.sqlite.query import rows
from perdure.storage.sqlite.upkeep import UPKEEP_SECONDS, Checkpoint
from perdure.testing.faulty_vfs import Fault, FaultyDisk, registered
from perdure.testing.slow_disk import SlowDisk

SOURCE = Path(__file__).parents[3] / "src"


@pytest.mark.proves("W1")
def test_the_look_comes_once_a_minute(tmp_path: Path) -> None:
    """The first one a minute after the start, by the clock and not by what is written."""

    async def play() -> None:
        async with upkept(tmp_path) as it:
            await it.write(times=3)
            assert it.pause.asked == [UPKEEP_SECONDS] == [60.0]
            assert (it.condition.checkpoints, it.condition.last_checkpoint_at, it.condition.pages) == (0, None, None)
            for n in range(1, 4):
                await it.minute()
                assert it.pause.asked == [60.0] * (n + 1)
                assert (it.condition.checkpoints, it.condition.last_checkpoint_at) == (n, it.clock.now())

    asyncio.run(play())


@pytest.mark.proves("W1", "W10", "V8")
def test_a_quiet_log_is_moved_without_any_new_write(tmp_path: Path) -> None:
    """Pages get into the database file, and the version stays as it is, however many minutes pass."""

    async def play() -> None:
        disk = SlowDisk("quiet")
        with registered(disk):
            async with upkept(tmp_path, "quiet") as it:
                await it.write(times=3)
                before, version, size = disk.writes[".db"], await it.store.version(), it.log_bytes
                await it.minute()
                assert disk.writes[".db"] > before
                found = it.condition
                assert found.pages
                assert (found.state, found.checkpointed_pages) == ("ok", found.pages)
                written = disk.writes[".db-wal"]
                for _ in range(5):
                    await it.minute()
                assert disk.writes[".db-wal"] == written
                assert await it.store.version() == version
                assert it.log_bytes == size

    asyncio.run(play())


@pytest.mark.proves("W3", "W7", "W10")
def test_a_reader_that_holds_the_log_is_told_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """No error, and busy is 0; one line on entering, none at the same size, one when it doubled, one at the end."""
    small_limit(monkeypatch)
    seen = answers(monkeypatch)

    async def play() -> None:
        async with upkept(tmp_path) as it:
            await it.write()
            with held(it.path):
                await it.write(times=10)
                await it.minute()
                assert told(caplog) == []  # small, though not whole
                await it.write(times=60)
                await it.minute()
                ((level, line),) = told(caplog)
                assert (level, it.condition.state) == ("WARNING", "held")
                assert f"{it.condition.pages} pages" in line
                await it.minute()
                await it.write(times=5)
                await it.minute()
                assert told(caplog) == []
                await it.write(times=80)
                await it.minute()
                assert [level for level, _ in told(caplog)] == ["WARNING"]
            busy_seen = list(seen)
            await it.minute()
            assert [level for level, _ in told(caplog)] == ["INFO"]
            assert it.condition.state == "ok"
            await it.minute()
            assert told(caplog) == []
            assert it.condition.checkpoints_failed == 0
            for answer in busy_seen:
                assert answer is not None
                busy, pages, moved = answer
                assert (busy, moved < pages) == (0, True)

    with listening(caplog):
        asyncio.run(play())


@pytest.mark.proves("W7", "W10")
def test_a_log_that_is_small_but_not_whole_is_no_recovery(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The next reader holds the new, short log: the trouble is not over until all of it was moved."""
    small_limit(monkeypatch)

    async def play() -> None:
        async with upkept(tmp_path) as it:
            with held(it.path):
                await it.write(times=70)
                await it.minute()
                assert [level for level, _ in told(caplog)] == ["WARNING"]
            # The writer itself moves the log here, before anybody looks, and begins it anew.
            await it.moved()
            await it.write()
            with held(it.path):
                await it.write()
                await it.minute()
                assert it.condition.pages is not None
                assert it.condition.pages < 100
                assert told(caplog) == []
                assert it.condition.state == "held"
            await it.minute()
            assert [level for level, _ in told(caplog)] == ["INFO"]

    with listening(caplog):
        asyncio.run(play())


@pytest.mark.proves("W4", "W10")
def test_beside_another_checkpoint_nothing_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A real second one, in the middle of its work: busy, -1, -1. No line, and the state stays."""
    small_limit(monkeypatch)
    seen = answers(monkeypatch)
    disk = SlowDisk("second")

    async def play() -> None:
        async with upkept(tmp_path) as it:
            await it.write()
            with held(it.path):
                await it.write(times=70)
                await it.minute()
                before = it.condition
                assert before.state == "held"
                told(caplog)
                await it.write(times=5)
            other = open_checkpointer(it.path, "second")
            disk.hold(".db")
            thread = threading.Thread(target=lambda: rows(other, "PRAGMA wal_checkpoint(PASSIVE)"))
            thread.start()
            assert await asyncio.to_thread(disk.reached.wait, 30)
            it.clock.advance(1)
            await it.minute()
            after = it.condition
            assert seen[-1] == (1, -1, -1)
            assert after.checkpoints_unmeasured == before.checkpoints_unmeasured + 1
            assert after.checkpoints_failed == 0
            kept = ("state", "pages", "checkpointed_pages", "last_checkpoint_at")
            assert [getattr(after, each) for each in kept] == [getattr(before, each) for each in kept]
            assert told(caplog) == []
            disk.let_go()
            thread.join()
            other.close()
            await it.minute()
            assert [level for level, _ in told(caplog)] == ["INFO"]

    with listening(caplog), registered(disk):
        asyncio.run(play())


@pytest.mark.proves("W11")
def test_a_log_that_grows_although_it_is_moved_whole_is_told_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Readers one after the other, each newer than all that was moved: the log cannot start anew."""
    small_limit(monkeypatch)
    seen = answers(monkeypatch)

    async def play() -> None:
        last = ExitStack()
        async with upkept(tmp_path) as it:
            for _ in range(5):
                await it.write(times=40)
                newer = ExitStack()
                newer.enter_context(held(it.path))
                last.close()
                last = newer
                await it.minute()
            assert all(answer is not None and answer[1] == answer[2] for answer in seen), seen
            assert [level for level, _ in told(caplog)] == ["WARNING", "WARNING"]  # and again when it has doubled
            assert it.condition.state == "growing"
            last.close()
            await it.minute()  # moved whole, and the service's own write starts it anew
            await it.minute()
            assert [level for level, _ in told(caplog)] == ["INFO"]
            assert it.condition.state == "ok"

    with listening(caplog):
        asyncio.run(play())


@pytest.mark.proves("W8", "W10")
def test_a_failed_checkpoint_is_one_line_and_the_next_minute_tries_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The loop goes on, and what the disk refused is moved later."""

    async def play() -> None:
        disk = FaultyDisk("refusing")
        with registered(disk):
            async with upkept(tmp_path, "refusing") as it:
                await it.write(times=3)
                for failed in (1, 2):
                    disk.fail_once(Fault.IO, 1)
                    await it.minute()
                    ((level, line),) = told(caplog)
                    assert level == "WARNING"
                    assert "IOError" in line
                    assert it.condition.checkpoints_failed == failed
                await it.minute()
                assert it.condition.pages == it.condition.checkpointed_pages
                assert told(caplog) == []
                assert (it.condition.checkpoints, it.condition.checkpoints_failed) == (3, 2)

    with listening(caplog):
        asyncio.run(play())


@pytest.mark.proves("E-03", "W9")
def test_a_log_that_was_too_large_gets_short_again_without_a_restart(tmp_path: Path) -> None:
    """At the real limit: a reader holds more than 64 MiB, leaves, and two minutes later the file is small, although
    nobody has written. The service's own write that this takes is made once."""

    async def play() -> None:
        async with upkept(tmp_path) as it:
            await it.write()
            with held(it.path):
                await it.write(size=4_000_000, times=18)
                await it.minute()
                assert it.condition.state == "held"
                assert it.condition.size_bytes == it.log_bytes > LOG_SIZE_MAX_BYTES
                held_version = await it.store.version()
                await it.minute()
                assert await it.store.version() == held_version  # while it is held, a write would only add to it
            await it.minute()
            assert it.condition.size_bytes == it.log_bytes < 100_000
            version = await it.store.version()
            await it.minute()
            assert await it.store.version() == version
            assert it.condition.state == "ok"

    asyncio.run(play())


@pytest.mark.proves("W9")
def test_what_the_limit_of_the_size_does_and_does_not(tmp_path: Path) -> None:
    """It does not bound the growth while a reader holds the log; moving it whole does not shorten the file; the first
    write after that does."""
    path = tmp_path / "numbers.db"
    writer = open_writer(path)
    writer.pragma("journal_size_limit", 100_000)
    writer.execute("CREATE TABLE tasks (data BLOB) STRICT")
    log = path.with_name("numbers.db-wal")
    with held(path):
        for _ in range(20):
            writer.execute("INSERT INTO tasks VALUES (zeroblob(50000))")
        assert log.stat().st_size > 1_000_000
    ((_, pages, moved),) = rows(writer, "PRAGMA wal_checkpoint(PASSIVE)")
    assert pages == moved
    assert log.stat().st_size > 1_000_000
    writer.execute("INSERT INTO tasks VALUES (x'00')")
    assert log.stat().st_size <= 100_000
    writer.close()


@pytest.mark.proves("W6")
def test_the_limit_of_the_file_and_the_threshold_are_one_number(tmp_path: Path) -> None:
    """What the writer's connection is told is what the look compares with."""

    async def play() -> None:
        async with upkept(tmp_path) as it:
            await it.write(times=2)
            limit = await it.store.writer.write(lambda connection: connection.pragma("journal_size_limit"))
            page = await it.store.writer.write(lambda connection: connection.pragma("page_size"))
            assert limit == it.condition.size_limit_bytes == LOG_SIZE_MAX_BYTES == 64 * 2**20
            assert it.condition.limit_pages == limit // page

    asyncio.run(play())


@pytest.mark.proves("E-05")
def test_upkeep_commits_nothing_of_a_write_under_way(tmp_path: Path) -> None:
    """The worst moment: in the middle of a write of several steps, which then fails. All of it is undone, and the
    checkpoint has a connection of its own, or SQLite would not let it run there."""

    async def play() -> None:
        async with upkept(tmp_path) as it:
            await it.write()
            looked: list[object] = []
            checkpoint = Checkpoint(it.path, None)

            def steps(connection: apsw.Connection) -> None:
                connection.execute("UPDATE service_config SET commits_refused = 77")
                looked.append(checkpoint.run())
                connection.execute("UPDATE service_config SET commits_refused = 78")
                raise ValueError("the last step")

            with pytest.raises(ValueError, match="the last step"):
                await it.store.writer.write(steps)
            checkpoint.close()
            assert looked[0] is not None
            refused = await it.store.writer.write(
                lambda connection: connection.execute("SELECT commits_refused FROM service_config").get
            )
            assert refused == 0

    asyncio.run(play())


@pytest.mark.proves("E-05", "E-06")
def test_a_look_waits_for_the_commit_under_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It never runs beside the writer."""
    seen = answers(monkeypatch)

    async def play() -> None:
        async with upkept(tmp_path) as it:
            await it.write()
            entered, go = asyncio.Event(), threading.Event()
            loop = asyncio.get_running_loop()

            def slow(connection: apsw.Connection) -> int:
                connection.execute("UPDATE service_config SET commits_refused = 0")
                loop.call_soon_threadsafe(entered.set)
                assert go.wait(30)
                return len(seen)

            write = asyncio.create_task(it.store.writer.write(slow))
            await entered.wait()
            await it.pause.end()
            for _ in range(100):
                await asyncio.sleep(0)
            assert seen == []
            go.set()
            assert await write == 0
            await it.minute()
            assert len(seen) == 2

    asyncio.run(play())


@pytest.mark.proves("W2", "D4")
def test_no_other_way_of_checkpointing_stands_in_the_source() -> None:
    """PASSIVE is the only one; none of those that wait, cut or are SQLite's own."""
    texts = {path: path.read_text("utf-8") for path in SOURCE.rglob("*") if path.suffix in (".py", ".sql")}
    uses = [use for text in texts.values() for use in re.findall(r"(?i)wal_checkpoint\W+(\w+)", text)]
    assert uses
    assert set(uses) == {"PASSIVE"}
    others = re.compile(r"SQLITE_CHECKPOINT_(?:FULL|RESTART|TRUNCATE)|\.wal_checkpoint\(|\.wal_autocheckpoint\(")
    assert [str(path) for path, text in texts.items() if others.search(text)] == []
