"""A helper: the rows of the store, written without it. The same statements, the same schema, the same connection.

What a submit runs is noted once, by handing the store's own function a connection that only takes notes; so these
loops cannot fall behind the product. `bare` makes batches of given sizes, one commit each: no event loop, no futures,
no savepoints, nothing but statements. `per_call` makes one commit for each submit, as callers on threads of their own
do who share a connection and a lock.
"""

import sys
import threading
import time
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Any, cast

import apsw

from benchmarks.callers import threaded
from benchmarks.processes import heard, say
from benchmarks.store_alone import QUEUE_MAX, new_tasks
from perdure.ambient.clock import SystemClock
from perdure.bootstrap import SWITCH_SECONDS
from perdure.domain.principal import ALL_SCOPES
from perdure.ports.storage import NewTask
from perdure.storage.sqlite import service, tasks
from perdure.storage.sqlite.connection import enforce_references, open_writer
from perdure.storage.sqlite.migrate import migrate, shipped
from perdure.storage.sqlite.statements import load

Statement = tuple[str, Any]
LOG_PAGES = 1_000
"""Where SQLite moves the log by itself: the length at which the store does it."""

_sql = load("writer")
_BEGIN, _COMMIT = _sql["begin"], _sql["commit"]


class Noted:
    """Stands where a connection belongs and notes the statements, each with its values."""

    def __init__(self, task_id: int) -> None:
        self.statements: list[Statement] = []
        self._task_id = task_id

    def execute(self, sql: str, bindings: Any = ()) -> "Noted":
        """One statement."""
        self.statements.append((sql, bindings))
        return self

    def executemany(self, sql: str, many: Any) -> "Noted":
        """One statement for each of many values."""
        for bindings in many:
            self.execute(sql, bindings)
        return self

    def fetchall(self) -> list[Any]:
        """A submit reads nothing."""
        return []

    def changes(self) -> int:
        """Every statement finds its row."""
        return 1

    def last_insert_rowid(self) -> int:
        """Tasks are numbered from 1 in an empty database."""
        return self._task_id


def noted(new: Sequence[NewTask]) -> list[list[Statement]]:
    """What the store runs for each of these submits, in an empty database."""
    found: list[list[Statement]] = []
    for number, task in enumerate(new, 1):
        notes = Noted(number)
        tasks.submit(cast("apsw.Connection", notes), task, QUEUE_MAX)
        found.append(notes.statements)
    return found


def connected(path: Path) -> tuple[apsw.Connection, int]:
    """The connection of the store's writer to a new database, and a client in it."""
    connection = open_writer(path)
    migrate(connection, shipped())
    enforce_references(connection)
    connection.pragma("wal_autocheckpoint", LOG_PAGES)
    client_id = service.keep_client(connection, "bench", b"\x01" * 32, "bench", ALL_SCOPES, SystemClock().now())
    return connection, client_id


def bare(path: Path, body: str, sizes: Sequence[int]) -> dict[str, Any]:
    """So many submits in each commit."""
    connection, client_id = connected(path)
    submits = iter(noted(new_tasks(body, client_id, sum(sizes))))
    execute = connection.execute
    connection.status(apsw.SQLITE_DBSTATUS_CACHE_WRITE, reset=True)
    began, cpu = time.perf_counter(), time.process_time()
    for size in sizes:
        execute(_BEGIN)
        for statements in islice(submits, size):
            for sql, bindings in statements:
                execute(sql, bindings)
        execute(_COMMIT)
    seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
    pages = connection.status(apsw.SQLITE_DBSTATUS_CACHE_WRITE)[0]
    page_bytes = int(str(connection.pragma("page_size")))
    connection.close()
    return {"seconds": seconds, "cpu": cpu, "commit_bytes": pages * page_bytes // len(sizes)}


def per_call(path: Path, body: str, callers: int, total: int) -> dict[str, Any]:
    """One commit for each submit, from so many threads."""
    sys.setswitchinterval(SWITCH_SECONDS)  # as the service has it
    connection, client_id = connected(path)
    submits = noted(new_tasks(body, client_id, total))
    execute, lock, waiting = connection.execute, threading.Lock(), iter(submits)

    def call() -> None:
        with lock:  # for the next one too: the number of a task is its place in the order of commits
            execute(_BEGIN)
            for sql, bindings in next(waiting):
                execute(sql, bindings)
            execute(_COMMIT)

    found = threaded(callers, total, call)
    connection.close()
    return found


def main() -> None:
    """Answer questions until there are no more."""
    say({"ready": True})
    while question := heard():
        path = Path(question["path"])
        if question["what"] == "bare":
            say(bare(path, question["body"], question["sizes"]))
        else:
            say(per_call(path, question["body"], question["callers"], question["total"]))


if __name__ == "__main__":
    main()
