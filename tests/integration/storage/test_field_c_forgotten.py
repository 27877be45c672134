"""What is purged leaves the database file and its log while both are in use (C-19)."""

import asyncio
import itertools
import shutil
import time
from collections.abc import Generator
from pathlib import Path

import apsw
import pytest
from tests.integration.upkept import held, upkept

from perdure.storage.sqlite import writer
from perdure.storage.sqlite.connection import LOG_SIZE_MAX_BYTES, open_reader, open_writer
from perdure.storage.sqlite.log import FRAME_HEADER_BYTES, HEADER_BYTES, Log
from perdure.storage.sqlite.store import SqliteStore
from perdure.testing.faulty_vfs import Fault, FaultyDisk, registered
from perdure.testing.store_steps import add_client, end, found, grow, moved, running, submitted

SECRET = b"SECRET"
PAGE_BYTES = 4096


def holding(path: Path, word: bytes = SECRET) -> list[str]:
    """Which of a database's files hold the word."""
    files = [path, path.with_name(path.name + "-wal")]
    return [file.name for file in files if file.exists() and word in file.read_bytes()]


async def kept(store: SqliteStore, client: int, word: str, sizes: tuple[int, ...] = (1, 30, 600)) -> int:
    """A finished task that is full of a word."""
    task = await running(store, word, client)
    for size in sizes:
        task = await moved(store, task, lambda task, text=word * size: grow(task, text))
    await store.apply(end(task))
    return (await found(store, word)).id


@pytest.mark.proves("C-19", "P6")
def test_a_purged_text_is_in_neither_file_as_soon_as_the_writer_rests(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Among neighbours that stay and others that are written meanwhile; one alone, and many at once."""
    monkeypatch.setattr(writer, "CUT_SECONDS", 0.0)
    path = tmp_path / "perdure.db"

    async def play() -> None:
        store, client, ids = await _secrets(path)
        await store.purge([ids[0]])
        await asyncio.gather(*(store.purge([each]) for each in ids[1:]), submitted(store, "other", client))
        await submitted(store, "last", client)  # whatever the writer does after a purge comes before this
        assert holding(path) == []
        assert holding(path, b"PUBLIC")
        await store.close()

    asyncio.run(play())


@pytest.mark.proves("C-19", "P6")
def test_of_many_purges_the_first_is_gone_at_once_and_the_rest_without_another_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They share one cut of the log, for which the store itself makes the commit."""
    monkeypatch.setattr(writer, "CUT_SECONDS", 0.2)
    cut, cuts = Log.cut, itertools.count()

    def counted(log: Log) -> None:
        next(cuts)
        cut(log)

    monkeypatch.setattr(Log, "cut", counted)
    path = tmp_path / "perdure.db"

    async def play() -> None:
        store, client, ids = await _secrets(path)
        began = time.monotonic()
        for each in ids:
            await store.purge([each])
        async with asyncio.timeout(30):
            while holding(path):  # noqa: ASYNC110 -- a file has no event that could be awaited
                await asyncio.sleep(0.01)
        assert next(cuts) <= 2 + (time.monotonic() - began) / 0.2
        assert holding(path, b"PUBLIC")
        await submitted(store, "last", client)
        await store.close()

    asyncio.run(play())


async def _secrets(path: Path) -> tuple[SqliteStore, int, list[int]]:
    """A store with a dozen texts to be purged, and one that stays."""
    store = await SqliteStore.open(path)
    client = await add_client(store)
    ids = [await kept(store, client, f"SECRET-{n}") for n in range(12)]
    await kept(store, client, "PUBLIC")
    assert holding(path)
    return store, client, ids


@pytest.mark.proves("C-19", "P6")
def test_what_a_reader_kept_in_the_log_is_gone_a_minute_after_he_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Although nobody writes any more. While he stays nothing is written for it, and afterwards once."""
    monkeypatch.setattr(writer, "CUT_SECONDS", 0.0)

    async def play() -> None:
        async with upkept(tmp_path) as it:
            task_id = await kept(it.store, await add_client(it.store), "SECRET")
            with held(it.path):
                await it.store.purge([task_id])
                version = await it.store.version()
                for _ in range(2):
                    await it.minute()
                    assert "perdure.db-wal" in holding(it.path)
                assert await it.store.version() == version
            await it.minute()
            assert holding(it.path) == []
            version = await it.store.version()
            for _ in range(2):
                await it.minute()
            assert await it.store.version() == version

    asyncio.run(play())


@pytest.mark.proves("C-19")
def test_what_a_crash_has_left_in_the_log_goes_with_the_first_commit(tmp_path: Path) -> None:
    """The files as a crash leaves them, with a text that had been purged behind the newest commits."""
    path, crashed = tmp_path / "perdure.db", tmp_path / "crashed.db"

    async def leave() -> None:
        store = await SqliteStore.open(path)
        client = await add_client(store)
        task_id = await kept(store, client, "SECRET")
        reader = open_reader(path)
        reader.execute("BEGIN")
        reader.execute("SELECT * FROM tasks").fetchall()
        await store.purge([task_id])
        for name in ("", "-wal"):
            shutil.copy(f"{path}{name}", f"{crashed}{name}")
        reader.close()
        await store.close()

    async def find() -> None:
        store = await SqliteStore.open(crashed)
        await store.boot("b", 1)
        assert holding(crashed) == []
        await store.close()

    asyncio.run(leave())
    assert "crashed.db-wal" in holding(crashed)
    asyncio.run(find())


class NoCuts(FaultyDisk):
    """A disk that can be told to refuse to make files shorter."""

    refuses = False

    def attempt(self, io_error: int) -> None:
        """Refuse truncations only."""
        if self.refuses and io_error == apsw.SQLITE_IOERR_TRUNCATE:
            self.fail_once(Fault.IO, 1)
        super().attempt(io_error)


class Bench:
    """A writing connection with its log, on such a disk."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.disk = NoCuts("no-cuts")
        self.connection = open_writer(path, "no-cuts")
        self.connection.execute("CREATE TABLE words (id INTEGER PRIMARY KEY, word BLOB) STRICT")
        self.log = Log(self.connection)

    @property
    def limit(self) -> object:
        """The limit of the log's size."""
        return self.connection.pragma("journal_size_limit")

    @property
    def size(self) -> int:
        """Of the log's file."""
        return self.path.with_name(self.path.name + "-wal").stat().st_size

    def write(self, times: int = 1) -> None:
        """That many commits."""
        for _ in range(times):
            self.connection.execute("INSERT INTO words (word) VALUES (?)", (SECRET * 2_000,))

    def purge(self) -> None:
        """As the writer does it."""
        self.log.cut()
        self.connection.execute("DELETE FROM words")
        if self.log.is_due:
            self.log.shorten()


@pytest.fixture
def bench(tmp_path: Path) -> Generator[Bench]:
    """A log of some length."""
    made = Bench(tmp_path / "words.db")
    with registered(made.disk):
        made.write(20)
        yield made
        made.connection.close()


def test_the_file_is_cut_and_then_has_its_old_limit_again(bench: Bench) -> None:
    """Exactly the purge's own pages are left; a log without any purge keeps its length."""
    long = bench.size
    bench.purge()
    assert bench.size == HEADER_BYTES + bench.log.pages * (FRAME_HEADER_BYTES + PAGE_BYTES) < long
    assert bench.limit == LOG_SIZE_MAX_BYTES
    assert not bench.log.is_due
    bench.write(5)
    bench.log.shorten()
    long = bench.size
    bench.write()
    assert bench.size == long


def test_a_reader_who_needs_the_log_puts_the_cut_off(bench: Bench) -> None:
    """Nobody waits; once he has left, the next commits make it."""
    reader = open_reader(bench.path)
    reader.execute("BEGIN")
    reader.execute("SELECT count(*) FROM words").fetchall()
    bench.purge()
    assert "words.db-wal" in holding(bench.path)
    assert bench.log.is_due
    reader.close()
    for number in range(2):
        bench.log.shorten()
        bench.connection.execute("INSERT INTO words (id, word) VALUES (?, x'00')", (number,))
    bench.log.shorten()
    assert holding(bench.path) == []
    assert not bench.log.is_due
    assert bench.limit == LOG_SIZE_MAX_BYTES


def test_a_disk_that_refuses_the_cut_is_asked_again(bench: Bench) -> None:
    """SQLite does not tell of it: the length of the file does."""
    bench.log.cut()
    bench.disk.refuses = True
    bench.connection.execute("DELETE FROM words")
    bench.disk.refuses = False
    assert bench.disk.refused == 1
    bench.log.shorten()
    assert holding(bench.path) == ["words.db-wal"]
    assert bench.log.is_due
    bench.connection.execute("INSERT INTO words (word) VALUES (x'00')")
    bench.log.shorten()
    assert holding(bench.path) == []
    assert not bench.log.is_due


def test_a_log_that_cannot_be_moved_at_the_start_is_cut_later(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    """Its length is not known then, so none is told; and it may hold what was purged before."""
    bench.connection.execute("DELETE FROM words")
    bench.disk.fail_from(Fault.IO, 1)
    log = Log(bench.connection)
    bench.disk.mend()
    (line,) = [record.getMessage() for record in caplog.records]
    assert line.startswith("the log could not be moved into the database: ")
    assert log.owes_cut
    for number in range(2):
        bench.connection.execute("INSERT INTO words (id, word) VALUES (?, x'00')", (number,))
        log.shorten()
    assert holding(bench.path) == []
    assert not log.owes_cut
