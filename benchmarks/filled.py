"""A database of so many finished tasks, made quickly.

One task is made by the store and its journal, from submit to end: ten events. Its rows are then copied within SQLite,
each copy under a name and a number of its own and in the order in which a service would have written it. All checks
and triggers of the schema stand meanwhile; only the disk is not waited for.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

import apsw

from benchmarks.store_alone import QUEUE_MAX, new_tasks
from perdure.ambient.clock import SystemClock
from perdure.domain.lifecycle import Cause, step
from perdure.domain.parts import Text
from perdure.domain.principal import ALL_SCOPES, OWNER
from perdure.engine.record import Recorder
from perdure.engine.wakeups import Wakeups
from perdure.ports.storage import NewTask
from perdure.storage.sqlite.connection import enforce_references, open_writer
from perdure.storage.sqlite.query import certain
from perdure.storage.sqlite.store import SqliteStore

EVENTS_EACH = 10
MODEL = "m"
BODY = f'{{"model":"{MODEL}","input":"Write a story about a lighthouse keeper.","background":true}}'
SPACING = 1_000
"""Microseconds between two submits."""
COMMIT_TASKS, STEP_TASKS = 20_000, 500
LOG_PAGES = 20_000
"""How long the log gets meanwhile."""

# What differs from copy to copy; every other column is that of the first task.
_TIME = f"t.%s - :age + n.i * {SPACING}"
_COPIES: Mapping[str, Mapping[str, str]] = {
    "tasks": {
        "id": "n.i",
        "ident": f"printf('%016x%010x', {_TIME % 'created_at'}, n.i)",
        **{name: _TIME % name for name in ("created_at", "claimed_at", "finished_at")},
    },
    "responses": {"id": "n.i"},
    "task_events": {"task_id": "n.i"},
    "event_bodies": {"id": "NULL", "task_id": "n.i"},
    "task_attempts": {"id": "NULL", "task_id": "n.i"},
}


async def fill(path: Path, tasks: int, *, age: int = 0) -> int:
    """Make the file, with so many finished tasks in it, all but the first one so many microseconds old. Returns how
    many events they have."""
    await first(path)
    connection = open_copier(path)
    try:
        for at in range(2, tasks + 1, COMMIT_TASKS):
            copy(connection, at, min(at + COMMIT_TASKS - 1, tasks), age)
        return certain(connection, "SELECT count(*) FROM task_events")
    finally:
        connection.close()


def open_copier(path: Path) -> apsw.Connection:
    """A connection for `copy`."""
    connection = open_writer(path)
    enforce_references(connection)
    for name, value in (("synchronous", 0), ("cache_size", -256_000), ("temp_store", 2)):
        connection.pragma(name, value)
    connection.pragma("wal_autocheckpoint", LOG_PAGES)
    for table in _COPIES:
        key = "id" if table in ("tasks", "responses") else "task_id"
        order = "seq" if "event" in table else "id"
        rows = f"SELECT * FROM {table} WHERE {key} = 1 ORDER BY {order}"  # noqa: S608 -- our own tables
        connection.execute(f"CREATE TEMP TABLE first_{table} AS {rows}")
    return connection


def copy(connection: apsw.Connection, start: int, last: int, age: int = 0) -> None:
    """Make the tasks `start` to `last`, in one transaction."""
    with connection:
        for at in range(start, last + 1, STEP_TASKS):
            given = {"first": at, "last": min(at + STEP_TASKS - 1, last), "age": age}
            for table in _COPIES:
                connection.execute(_statement(connection, table), given)


def _statement(connection: apsw.Connection, table: str) -> str:
    """What copies the rows of the first task. Columns that a later schema adds are copied as they are."""
    columns = [str(row[1]) for row in connection.execute(f"PRAGMA table_info({table})")]
    values = ", ".join(_COPIES[table].get(column, f"t.{column}") for column in columns)
    numbers = "WITH RECURSIVE n (i) AS (VALUES (:first) UNION ALL SELECT i + 1 FROM n WHERE i < :last)"
    copies = f"SELECT {values} FROM n CROSS JOIN temp.first_{table} AS t"  # noqa: S608 -- our own tables
    return f"{numbers} INSERT INTO {table} ({', '.join(columns)}) {copies}"


async def first(path: Path) -> None:
    """Make the file, with the task in it that all others are copies of."""
    store = await SqliteStore.open(path)
    try:
        client_id = await store.add_client(OWNER, b"\x01" * 32, "bench", ALL_SCOPES, SystemClock().now())
        [new] = new_tasks(BODY, client_id, 1)
        await live(store, new)
    finally:
        await store.close()


async def live(
    store: SqliteStore, new: NewTask, texts: Sequence[str] = ("A story.",), *, finish: bool = True
) -> None:
    """Take a task from its submit to its end, or to where it runs, as the engine does. Each text is an event."""
    await store.submit(new, QUEUE_MAX)
    recorder = Recorder(store, SystemClock(), Wakeups())
    record = await store.task(new.ident)
    assert record is not None
    journal = await recorder.journal(record)
    claimed = {"boot": "bench", "attempt": 1, "claimed_at": recorder.now(), "note": "claimed"}
    record = await recorder.move(record, step(record.status, Cause.CLAIM), journal.claim(), **claimed)
    record = await recorder.move(record, step(record.status, Cause.LOADED))
    written = [event for text in texts for event in journal.write([Text(text)], (7, 8))]
    record = await recorder.move(record, record.status, written, tokens_kept=len(journal.tokens))
    if finish:
        await recorder.move(record, step(record.status, Cause.FINISH), journal.finish(recorder.seconds()))
