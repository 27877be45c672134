"""One thread, many callers, few commits."""

import asyncio
import threading
from collections.abc import Coroutine
from functools import partial
from pathlib import Path
from typing import Any

import apsw
import pytest

from perdure.domain.errors import StorageDamaged, StorageFull, Unavailable
from perdure.storage.sqlite import log, trouble
from perdure.storage.sqlite import writer as module
from perdure.storage.sqlite.connection import open_reader, open_writer
from perdure.storage.sqlite.query import certain, rows, value
from perdure.storage.sqlite.writer import BATCH_MAX_OPERATIONS, Writer


class Bench:
    """A writer on a table of numbers, and a count of its commits."""

    def __init__(self, path: Path) -> None:
        self.commits = 0
        self._path = path

    async def writer(self) -> Writer:
        """A started writer."""
        writer = Writer()
        await writer.start(self._connect)
        return writer

    def left(self) -> tuple[list[int], int]:
        """What a closed writer has left: the numbers, and how often it has written over a commit that failed."""
        connection = open_reader(self._path)
        found = kept(connection), certain(connection, "SELECT commits_refused FROM service_config")
        connection.close()
        return found

    def _connect(self) -> apsw.Connection:
        connection = open_writer(self._path)
        connection.execute("CREATE TABLE numbers (n INTEGER PRIMARY KEY, data BLOB) STRICT")
        connection.execute("CREATE TABLE service_config (commits_refused INTEGER NOT NULL) STRICT")
        connection.execute("INSERT INTO service_config VALUES (0)")
        connection.set_commit_hook(self._count)
        return connection

    def _count(self) -> bool:
        self.commits += 1
        return False


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    """A bench with an empty table."""
    return Bench(tmp_path / "numbers.db")


def put(connection: apsw.Connection, number: int, size: int = 0) -> int:
    """Keep a number, which must be new."""
    rows(connection, "INSERT INTO numbers VALUES (?, zeroblob(?))", (number, size))
    return number


def kept(connection: apsw.Connection) -> list[int]:
    """The numbers."""
    return [number for (number,) in rows(connection, "SELECT n FROM numbers ORDER BY n")]


def play(test: Coroutine[Any, Any, None]) -> None:
    """Run a test on an event loop."""
    asyncio.run(test)


def test_callers_share_commits(bench: Bench) -> None:
    """Two hundred who come at once need one or two."""

    async def test() -> None:
        writer = await bench.writer()
        calls = [writer.write(lambda it, n=n: put(it, n)) for n in range(200)]
        assert await asyncio.gather(*calls) == list(range(200))
        assert bench.commits <= 2
        await writer.close()

    play(test())


def test_a_batch_has_a_bound(bench: Bench) -> None:
    """Whatever is more goes into the next, in the order of the calls."""

    async def test() -> None:
        writer = await bench.writer()
        many = BATCH_MAX_OPERATIONS + 1
        calls = [
            writer.write(lambda it, n=n: (put(it, n), value(it, "SELECT max(n) FROM numbers"))) for n in range(many)
        ]
        assert await asyncio.gather(*calls) == [(n, n) for n in range(many)]
        assert bench.commits == 2
        await writer.close()

    play(test())


def test_a_failing_operation_is_undone_alone(bench: Bench) -> None:
    """Its own earlier statements too."""

    def two(connection: apsw.Connection) -> None:
        put(connection, 100)
        raise ValueError("after the first half")

    async def test() -> None:
        writer = await bench.writer()
        calls: list[Coroutine[Any, Any, int | None]] = [writer.write(partial(put, number=1)), writer.write(two)]
        calls += [writer.write(partial(put, number=number)) for number in (1, 2)]
        results = await asyncio.gather(*calls, return_exceptions=True)
        assert [type(result) for result in results] == [int, ValueError, AssertionError, int]
        assert await writer.write(kept) == [1, 2]
        assert bench.commits == 2
        await writer.close()

    play(test())


@pytest.mark.parametrize(("changes_first", "runs"), [(False, 1), (True, 2)])
def test_a_batch_is_made_again_only_where_one_has_failed_half_way(
    bench: Bench, changes_first: bool, runs: int
) -> None:
    """Its neighbours are then made twice and kept once, and see the rows as if it had never been."""
    made: list[int] = []

    def neighbour(connection: apsw.Connection, number: int) -> list[int]:
        made.append(number)
        put(connection, number)
        return kept(connection)

    def fail(connection: apsw.Connection) -> list[int]:
        if changes_first:
            rows(connection, "UPDATE numbers SET n = n + 100")
        raise ValueError("refused")

    async def test() -> None:
        writer = await bench.writer()
        calls = [
            writer.write(partial(neighbour, number=1)),
            writer.write(fail),
            writer.write(partial(neighbour, number=2)),
        ]
        first, second, third = await asyncio.gather(*calls, return_exceptions=True)
        assert (first, third) == ([1], [1, 2])
        assert isinstance(second, ValueError)
        assert sorted(made) == [1] * runs + [2]
        assert await writer.write(kept) == [1, 2]
        await writer.close()

    play(test())


def test_a_cancelled_caller_undoes_nothing(bench: Bench) -> None:
    """Before his batch begins and while it is under way."""

    async def test() -> None:
        writer = await bench.writer()
        early = asyncio.create_task(writer.write(lambda it: put(it, 1)))
        await asyncio.sleep(0)
        early.cancel()
        beside = asyncio.create_task(writer.write(lambda it: put(it, 2)))
        begun = asyncio.Event()
        loop = asyncio.get_running_loop()

        def slow(connection: apsw.Connection) -> None:
            loop.call_soon_threadsafe(begun.set)
            put(connection, 3)

        late = asyncio.create_task(writer.write(slow))
        await begun.wait()
        late.cancel()
        assert await beside == 2
        assert await writer.write(kept) == [1, 2, 3]
        assert early.cancelled()
        assert late.cancelled()
        await writer.close()

    play(test())


def test_one_who_asks_for_too_much_does_not_take_the_others_with_him(bench: Bench) -> None:
    """Only he is told that the disk is full, and the writer goes on."""

    async def test() -> None:
        writer = await bench.writer()
        await writer.write(lambda it: put(it, 0))
        await writer.write(lambda it: it.pragma("max_page_count", it.pragma("page_count") + 5))
        sizes = [10, 1_000_000, 10]
        calls = [writer.write(lambda it, n=n, size=size: put(it, n, size)) for n, size in enumerate(sizes, 1)]
        results = await asyncio.gather(*calls, return_exceptions=True)
        assert [type(result) for result in results] == [int, StorageFull, int]
        await writer.write(lambda it: it.pragma("max_page_count", 1_000_000))
        await writer.write(lambda it: put(it, 4, 1_000_000))
        assert await writer.write(kept) == [0, 1, 3, 4]
        await writer.close()

    play(test())


def test_a_closed_writer_takes_nothing(bench: Bench) -> None:
    """But what it had taken is made."""

    async def test() -> None:
        writer = await bench.writer()
        call = asyncio.create_task(writer.write(lambda it: put(it, 1)))
        await asyncio.sleep(0)
        await writer.close()
        assert await call == 1
        with pytest.raises(Unavailable):
            await writer.write(kept)

    play(test())


def test_what_fails_after_it_has_changed_the_schema_is_not_undone(bench: Bench) -> None:
    """Why no operation of the store may do that: SQLite counts rows, and a savepoint around each costs too much."""

    def schema(connection: apsw.Connection) -> None:
        rows(connection, "CREATE TABLE left_behind (n INTEGER) STRICT")
        raise ValueError("afterwards")

    async def test() -> None:
        writer = await bench.writer()
        with pytest.raises(ValueError, match="afterwards"):
            await writer.write(schema)
        assert await writer.write(lambda it: value(it, "SELECT count(*) FROM left_behind")) == 0
        await writer.close()

    play(test())


@pytest.mark.parametrize("changes_first", [False, True])
def test_of_a_batch_that_meets_damage_nothing_is_made(bench: Bench, changes_first: bool) -> None:
    """Not what was made before, not what comes after, and not the store's own write either."""

    def meet(connection: apsw.Connection) -> int:
        if changes_first:
            put(connection, 100)
        raise apsw.CorruptError("malformed")

    async def test() -> None:
        writer = await bench.writer()
        await writer.write(partial(put, number=1))
        calls = [writer.write(partial(put, number=2)), writer.write(meet), writer.write(partial(put, number=3))]
        results = await asyncio.gather(*calls, return_exceptions=True)
        assert [type(result) for result in results] == [StorageDamaged] * 3
        assert bench.commits == 1
        await writer.close()

    play(test())
    assert bench.left() == ([1], 0)


def test_once_damage_was_found_nothing_that_waits_is_made(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is under way ends; the others are refused, the cut of the log that is owed is not made, and the log is not
    moved any more."""
    monkeypatch.setattr(module, "CUT_SECONDS", 0.01)
    monkeypatch.setattr(log, "LOG_MAX_PAGES", 1)
    moves: list[bool] = []
    shorten = log.Log.shorten

    def noted(self: log.Log, in_trouble: bool = False) -> None:
        moves.append(in_trouble)
        shorten(self, in_trouble)

    monkeypatch.setattr(log.Log, "shorten", noted)

    async def test() -> None:
        writer, loop = await bench.writer(), asyncio.get_running_loop()
        begun, go, cut = asyncio.Event(), threading.Event(), asyncio.Event()

        def slow(connection: apsw.Connection) -> int:
            loop.call_soon_threadsafe(begun.set)
            assert go.wait(30)
            return put(connection, 2)

        await writer.write(partial(put, number=1), purges=True)
        under_way = asyncio.create_task(writer.write(slow, purges=True))
        await begun.wait()
        calls = [writer.write(partial(put, number=3)), writer.write(partial(put, number=4)), writer.touch()]
        waiting = [asyncio.create_task(call) for call in calls]
        await asyncio.sleep(0)
        writer.trouble.met(StorageDamaged("found by a read"))
        assert moves
        moves.clear()
        go.set()
        assert await under_way == 2
        results = await asyncio.gather(*waiting, return_exceptions=True)
        assert [type(result) for result in results] == [StorageDamaged] * 3
        loop.call_later(0.1, cut.set)  # long after the cut was due
        await cut.wait()
        assert (bench.commits, moves) == (2, [])
        await writer.close()

    play(test())
    assert bench.left() == ([1, 2], 0)


def test_writes_of_the_store_itself_are_not_counted(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither those that cut the log nor those that look whether the disk takes writes again; commits are."""
    monkeypatch.setattr(trouble, "RETRY_SECONDS", 0.01)
    monkeypatch.setattr(trouble, "CALM_SECONDS", 0.1)

    async def test() -> None:
        writer = await bench.writer()
        await writer.write(partial(put, number=1))
        await writer.touch()
        assert (writer.commits, writer.tally.writes, writer.tally.waits[-1][1]) == (2, 1, 1)
        await writer.write(lambda it: it.pragma("max_page_count", it.pragma("page_count") + 5))
        with pytest.raises(StorageFull):
            await writer.write(partial(put, number=2, size=1_000_000))
        before = writer.tally.writes
        async with asyncio.timeout(30):
            while writer.trouble.code is not None:  # noqa: ASYNC110 -- nobody is told of the store's own writes
                await asyncio.sleep(0.01)
        assert (writer.tally.writes, writer.tally.refused) == (before, 1)
        assert writer.commits > before + 1
        await writer.close()

    play(test())
