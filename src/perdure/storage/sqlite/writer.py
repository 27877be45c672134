"""One thread writes, and many callers share its commits.

Forcing the disk costs the same for one change as for a hundred, so whatever arrives while one commit is under way
makes the next one. Nobody waits for a timer: an idle writer starts at once.

    event loop          hand over -> waiting operations -> a batch ...          ... -> resolve each caller's future
    writer's thread                                        BEGIN, each operation in a savepoint, COMMIT

* A savepoint each: an operation that fails is undone alone.
* Futures resolve after the commit, never before it.
* A caller who is cancelled only stops waiting. His operation belongs to a batch with others and is made.
* When there is no room for a batch, its operations are tried again one by one, so that one who asks for more than
  there is does not take the others with him. What fails alone has failed.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from copy import copy
from dataclasses import dataclass
from typing import Any, TypeVar

import apsw

from perdure.domain.errors import StorageFailed, StorageFull, Unavailable
from perdure.storage.sqlite.faults import translated
from perdure.storage.sqlite.log import Log
from perdure.storage.sqlite.query import rows
from perdure.storage.sqlite.statements import load

_log = logging.getLogger(__name__)

T = TypeVar("T")
Operation = Callable[[apsw.Connection], Any]

BATCH_MAX_OPERATIONS = 256

_sql = load("writer")
_BEGIN, _COMMIT, _ROLLBACK = _sql["begin"], _sql["commit"], _sql["rollback"]
_OPERATION, _KEEP, _UNDO = _sql["operation"], _sql["keep_operation"], _sql["undo_operation"]
_BURY = load("service")["bury"]


@dataclass(frozen=True)
class Outcome:
    """What became of an operation."""

    value: Any = None
    error: Exception | None = None


class Writer:
    """Owns the thread. Made on the event loop that uses it."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="perdure-writer")
        self._waiting: list[tuple[Operation, asyncio.Future[Any]]] = []
        self._purges = False
        self._idle = asyncio.Event()
        self._idle.set()
        self._connection: apsw.Connection | None = None
        self._log: Log | None = None
        self._closed = False

    async def start(self, connect: Callable[[], apsw.Connection]) -> None:
        """Open the connection, on the thread."""
        try:
            connection = await self._loop.run_in_executor(self._thread, connect)
        except BaseException:
            self._thread.shutdown(wait=False)
            raise
        self._connection = connection
        self._log = await self._loop.run_in_executor(self._thread, Log, connection)

    async def write(self, operation: Callable[[apsw.Connection], T], *, purges: bool = False) -> T:
        """Make an operation and return its value once it is durable. It may run twice; only one run is kept.

        What an operation that `purges` removes leaves the log as well.
        """
        if self._closed:
            raise Unavailable("The store is closed.")
        self._purges = self._purges or purges
        done: asyncio.Future[T] = self._loop.create_future()
        self._waiting.append((operation, done))
        if self._idle.is_set():
            self._idle.clear()
            # Not at once: whoever else is about to write in this turn of the loop comes along.
            self._loop.call_soon(self._next_batch)
        return await done

    async def close(self) -> None:
        """Finish what was handed over, then close the connection. Nothing can be handed over any more."""
        self._closed = True
        await self._idle.wait()
        if self._connection is not None:
            await self._loop.run_in_executor(self._thread, _close, self._connection)
            self._connection = None
        self._thread.shutdown()

    def _next_batch(self) -> None:
        batch, self._waiting = self._waiting[:BATCH_MAX_OPERATIONS], self._waiting[BATCH_MAX_OPERATIONS:]
        if not batch or self._connection is None:
            self._idle.set()
            return
        operations = [operation for operation, _ in batch]
        if self._purges and self._log is not None:
            self._purges = bool(self._waiting)  # the one who purges may be among those who have to wait
            self._thread.submit(self._log.cut)
        # A callback and not a task: nothing that cancels tasks can come between a commit and its callers.
        commit = self._loop.run_in_executor(self._thread, commit_all, self._connection, operations)
        commit.add_done_callback(lambda made: self._deliver(batch, made))

    def _deliver(self, batch: Sequence[tuple[Operation, asyncio.Future[Any]]], made: asyncio.Future[Any]) -> None:
        full = False
        for (_, done), outcome in zip(batch, _outcomes(made, len(batch)), strict=True):
            full = full or isinstance(outcome.error, StorageFull)
            if done.done():
                continue
            if outcome.error is None:
                done.set_result(outcome.value)
            else:
                done.set_exception(outcome.error)
        if self._log is not None and (full or self._log.is_due):  # moving the log gives its room back
            self._thread.submit(self._log.shorten)
        self._next_batch()


def _outcomes(made: asyncio.Future[list[Outcome]], count: int) -> list[Outcome]:
    """What became of a batch. Whatever went wrong on the thread, the callers are told and the next batch is made."""
    error = made.exception()
    if error is None:
        return made.result()
    failure = StorageFailed(f"The write could not be made: {type(error).__name__}.")
    failure.__cause__ = error
    return [Outcome(error=copy(failure)) for _ in range(count)]


def commit_all(connection: apsw.Connection, operations: Sequence[Operation]) -> list[Outcome]:
    """Make operations in as few commits as the disk allows: one, if nothing goes wrong."""
    try:
        return _commit(connection, operations)
    except Exception as error:  # noqa: BLE001 -- whatever it is, it is the callers', and the thread must live on
        failure = translated(error, connection)
    if isinstance(failure, StorageFull) and len(operations) > 1:
        return [outcome for operation in operations for outcome in commit_all(connection, [operation])]
    return [Outcome(error=copy(failure)) for _ in operations]


def _commit(connection: apsw.Connection, operations: Sequence[Operation]) -> list[Outcome]:
    rows(connection, _BEGIN)
    try:
        outcomes = [_attempt(connection, operation) for operation in operations]
        rows(connection, _COMMIT)
    except BaseException:
        _roll_back(connection)
        _bury(connection)
        raise
    return outcomes


def _attempt(connection: apsw.Connection, operation: Operation) -> Outcome:
    rows(connection, _OPERATION)
    try:
        outcome = Outcome(operation(connection))
    except Exception as error:
        if not connection.in_transaction:
            # A fault of the disk, at which SQLite has given up everything that the batch has done so far.
            raise
        outcome = Outcome(error=translated(error, connection))
        rows(connection, _UNDO)
    rows(connection, _KEEP)
    return outcome


def _bury(connection: apsw.Connection) -> None:
    """Write over what a failed commit may have left in the log; the block's comment says why. If the disk refuses
    that too, the next commit that succeeds does the same."""
    try:
        rows(connection, _BEGIN)
        rows(connection, _BURY)
        rows(connection, _COMMIT)
    except apsw.Error:
        _roll_back(connection)


def _close(connection: apsw.Connection) -> None:
    try:
        connection.close()
    except apsw.Error as error:
        # Closing moves the log into the file. Where the disk refuses, the log stays, and the next start reads it.
        _log.warning("the log was left beside the database: %s", error)


def _roll_back(connection: apsw.Connection) -> None:
    if connection.in_transaction:
        rows(connection, _ROLLBACK)
