"""The checks of the benchmarks of the store, and the parts of them that other figures rest on."""

import asyncio
import threading
from pathlib import Path
from typing import Any

import apsw
import pytest
from benchmarks import conditional, create_client, enqueue_peers, retention_load, store
from benchmarks.bare_store import connected, noted
from benchmarks.callers import threaded
from benchmarks.figures import percentiles
from benchmarks.filled import EVENTS_EACH, fill
from benchmarks.store_alone import QUEUE_MAX, new_tasks

from perdure.storage.sqlite import tasks
from perdure.storage.sqlite.connection import open_reader
from perdure.storage.sqlite.query import certain, rows
from perdure.storage.sqlite.store import SqliteStore

BODY = '{"model":"m","input":"hello","background":true}'


def contents(connection: apsw.Connection) -> dict[str, list[Any]]:
    """Every row of every table."""
    names = [name for (name,) in rows(connection, "SELECT name FROM sqlite_schema WHERE type = 'table'")]
    return {name: rows(connection, f'SELECT * FROM "{name}"') for name in names}  # noqa: S608 -- names of our own tables


def test_percentiles_are_values_that_were_measured() -> None:
    """Nothing in between."""
    assert percentiles([float(number) for number in reversed(range(200))]) == {"p50": 100.0, "p99": 198.0}
    assert percentiles([3.0]) == {"p50": 3.0, "p99": 3.0}


def test_the_bare_loop_writes_what_the_store_writes(tmp_path: Path) -> None:
    """Row for row: otherwise the comparison would be with something else."""
    ours, client_id = connected(tmp_path / "ours.db")
    bare, same_client = connected(tmp_path / "bare.db")
    assert client_id == same_client
    made = new_tasks(BODY, client_id, 5)
    for new in made:
        tasks.submit(ours, new, QUEUE_MAX)
    for statements in noted(made):
        for sql, bindings in statements:
            bare.execute(sql, bindings)
    own = ("clients", "service_config")  # they hold a time and a random name
    kept = [{name: held for name, held in contents(each).items() if name not in own} for each in (ours, bare)]
    assert len(kept[0]["tasks"]) == len(kept[0]["responses"]) == 5
    assert kept[0] == kept[1]
    assert [certain(each, "SELECT tasks_queued FROM service_config") for each in (ours, bare)] == [5, 5]
    ours.close()
    bare.close()


def test_stores_that_hold_the_same_pass() -> None:
    """The good case."""
    store.check({"tasks": 3, "task_events": 6}, {"tasks": 3, "task_events": 6}, [2, 1], 3)


@pytest.mark.parametrize(
    ("ours", "bare", "sizes"),
    [
        ({"tasks": 3, "task_events": 6}, {"tasks": 3, "task_events": 5}, [2, 1]),
        ({"tasks": 2, "task_events": 4}, {"tasks": 2, "task_events": 4}, [2, 1]),
        ({"tasks": 3, "task_events": 6}, {"tasks": 3, "task_events": 6}, [2]),
    ],
    ids=["an event is missing", "a task is missing", "a batch is missing"],
)
def test_stores_that_hold_something_else_fail(ours: dict[str, int], bare: dict[str, int], sizes: list[int]) -> None:
    """No figure without its rows."""
    with pytest.raises(AssertionError):
        store.check(ours, bare, sizes, 3)


def test_a_filled_database_is_one_of_the_store(tmp_path: Path) -> None:
    """Its tasks are found, listed and read like any others, and SQLite finds nothing wrong with it."""
    path = tmp_path / "filled.db"
    assert asyncio.run(fill(path, 250)) == 250 * EVENTS_EACH
    connection = open_reader(path)
    assert contents(connection)["sqlite_sequence"] == [("tasks", 250)]
    assert certain(connection, "SELECT count(DISTINCT ident) FROM tasks") == 250
    assert rows(connection, "PRAGMA foreign_key_check") == []
    assert certain(connection, "PRAGMA integrity_check") == "ok"
    connection.close()

    async def look() -> None:
        opened = await SqliteStore.open(path)
        newest = await opened.tasks(1, status=None, limit=2, after=None, ascending=False)
        assert [record.id for record in newest] == [250, 249]
        events = (await opened.events(137, -1, 100)).events
        assert [event.seq for event in events] == list(range(EVENTS_EACH))
        assert events == (await opened.events(1, -1, 100)).events  # bodies and all
        assert events[-1].type == "response.completed"
        assert await opened.ended(newest[0].ident)
        assert not await opened.unfinished(0, 1)
        await opened.submit(new_tasks(BODY, 1, 1)[0], QUEUE_MAX)
        [added] = await opened.unfinished(0, 2)
        assert added.id == 251
        await opened.close()

    asyncio.run(look())


@pytest.mark.parametrize(("age", "due"), [(0, 0), (7_200_000_000, 49)], ids=["new", "two hours old"])
def test_a_filled_database_is_as_old_as_asked(tmp_path: Path, age: int, due: int) -> None:
    """What is to be purged has to be due. The first task is new in any case."""
    path = tmp_path / "filled.db"
    asyncio.run(fill(path, 50, age=age))
    connection = open_reader(path)
    since = "finished_at < (SELECT finished_at FROM tasks WHERE id = 1) - 3600000000"
    assert certain(connection, f"SELECT count(*) FROM tasks WHERE {since}") == due  # noqa: S608 -- as above
    connection.close()


@pytest.mark.parametrize(
    ("run", "purging", "passes"),
    [
        ({"total": 8, "purged": 5}, True, True),
        ({"total": 8, "purged": 0}, False, True),
        ({"total": 8, "purged": 0}, True, False),
        ({"total": 8, "purged": 5}, False, False),
        ({"total": 7, "purged": 5}, True, False),
    ],
    ids=["purging", "resting", "nothing was purged", "purged all the same", "a submit is missing"],
)
def test_retention_is_measured_where_it_works(run: dict[str, Any], purging: bool, passes: bool) -> None:
    """A side that did not do its part is no side."""
    if passes:
        retention_load.check(run, 8, purging=purging)
    else:
        with pytest.raises(AssertionError):
            retention_load.check(run, 8, purging=purging)


@pytest.mark.parametrize(
    ("found", "known"),
    [
        ({"statuses": {"200": 9, "304": 1}, "bytes": 100}, False),
        ({"statuses": {"200": 10}, "bytes": 99}, False),
        ({"statuses": {"200": 10}, "bytes": 100}, True),
    ],
    ids=["one was spared", "another body", "all were sent whole"],
)
def test_reads_that_were_answered_otherwise_fail(found: dict[str, Any], known: bool) -> None:
    """What is called a 304 was one."""
    conditional.check({"statuses": {"200": 10}, "bytes": 100}, 10, 100, known=False)
    conditional.check({"statuses": {"304": 10}, "bytes": 0}, 10, 0, known=True)
    with pytest.raises(AssertionError):
        conditional.check(found, 10, 100, known=known)


def test_the_load_generator_reads_answers_with_and_without_a_length() -> None:
    """A 304 tells no length and has no body; the next answer begins right behind it."""
    whole = b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello"
    spared = b'HTTP/1.1 304 Not Modified\r\netag: "x"\r\n\r\n'

    async def measured(answer: bytes) -> dict[str, Any]:
        done: list[asyncio.Future[None]] = []

        async def answered(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            mine = asyncio.get_running_loop().create_future()
            done.append(mine)
            while await reader.read(1 << 16):
                writer.write(answer)
            writer.close()
            await writer.wait_closed()
            mine.set_result(None)

        server = await asyncio.start_server(answered, "127.0.0.1", 0)
        request = f"GET / HTTP/1.1\r\nx-number: {create_client.NUMBER}\r\n\r\n"
        port = server.sockets[0].getsockname()[1]
        question = {"host": "127.0.0.1", "port": port, "request": request, "connections": 2, "total": 20}
        found = await create_client.run(question)
        await asyncio.gather(*done)
        server.close()
        await server.wait_closed()
        return found

    for answer, statuses, length in ((whole, {"200": 20}, 5), (spared, {"304": 20}, 0)):
        found = asyncio.run(measured(answer))
        assert (found["statuses"], found["bytes"]) == (statuses, length)


def test_the_load_generator_waits_for_the_whole_body() -> None:
    """Half an answer is none."""

    async def pieces() -> None:
        load = create_client.Load(create_client.NUMBER.encode(), 1)
        connection = create_client.Connection(load)
        for piece in (b"HTTP/1.1 200 OK\r\ncontent-", b"length: 5\r\n\r\n", b"hell"):
            connection.data_received(piece)
            assert load.statuses == {}
        connection.data_received(b"o")
        assert load.statuses == {"200": 1}
        await load.done

    asyncio.run(pieces())


def test_threads_make_as_many_calls_as_were_asked_for() -> None:
    """All of them at once: each waits here for the others."""
    together, calls = threading.Barrier(8, timeout=10), list[int]()
    found = threaded(8, 64, lambda: calls.append(together.wait()))
    assert len(calls) == found["calls"] == 64
    assert 0 < found["p50"] <= found["p99"] <= found["seconds"]


def test_a_peer_that_lost_a_task_fails() -> None:
    """Nor does one pass that has more than it was given."""
    enqueue_peers.check("peer", {"kept": 10}, 10)
    for kept in (9, 11):
        with pytest.raises(AssertionError):
            enqueue_peers.check("peer", {"kept": kept}, 10)


def test_a_peer_that_is_not_durable_is_called_so() -> None:
    """In the table, beside its rate."""
    assert enqueue_peers.durability({"journal_mode": "wal", "synchronous": 2}) == "journal WAL, synchronous FULL"
    assert "not durable" in enqueue_peers.durability({"journal_mode": "wal", "synchronous": 1})
    assert "not durable" in enqueue_peers.durability({"journal_mode": "delete", "synchronous": 0})
