"""One thread writes, and many callers share its commits.

Forcing the disk costs the same for one change as for a hundred, so whatever arrives while one commit is under way
makes the next one. Nobody waits for a timer: an idle writer starts at once.

    event loop          hand over -> waiting operations -> a batch ...          ... -> resolve each caller's future
    writer's thread                                        BEGIN, each operation in a savepoint, COMMIT

* An operation that fails is undone alone. Most that fail have changed nothing yet, so a batch is made without
  savepoints first: SQLite copies each page aside that changes within one, which would cost a submit a quarter of its
  time. Where one fails half way, the whole batch is rolled back and made again, with a savepoint each.
* Futures resolve after the commit, never before it.
* A caller who is cancelled only stops waiting. His operation belongs to a batch with others and is made.
* Once damage was found nothing more is made: what shares the batch that meets it is undone, what waits is refused.
* When there is no room for a batch, its operations are tried again one by one, so that one who asks for more than
  there is does not take the others with him. What fails alone has failed.
"""

import asyncio
import logging
import math
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from copy import copy
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import apsw

from perdure.domain.errors import StorageFailed, StorageFull, Unavailable
from perdure.storage.sqlite.faults import damaged, is_damage, translated
from perdure.storage.sqlite.log import Log
from perdure.storage.sqlite.query import rows
from perdure.storage.sqlite.statements import load
from perdure.storage.sqlite.tally import Tally
from perdure.storage.sqlite.trouble import Refusal, Trouble

_log = logging.getLogger(__name__)

T = TypeVar("T")
Operation = Callable[[apsw.Connection], Any]
Waiting = tuple[Operation, asyncio.Future[Any], float | None]
"""An operation, who waits for it, and since when; None for the store's own writes, which are not counted."""

BATCH_MAX_OPERATIONS = 256
CUT_SECONDS = 1.0
"""So often at most the log is cut for what was purged: a cut costs two checkpoints, and one does for many purges."""

_sql = load("writer")
_BEGIN, _COMMIT, _ROLLBACK = _sql["begin"], _sql["commit"], _sql["rollback"]
_OPERATION, _KEEP, _UNDO = _sql["operation"], _sql["keep_operation"], _sql["undo_operation"]
_BURY = load("service")["bury"]


class _HalfDoneError(Exception):
    """An operation has failed after it had changed something."""


@dataclass(frozen=True)
class Outcome:
    """What became of an operation."""

    value: Any = None
    error: Exception | None = None


class Writer:
    """Owns the thread. Made on the event loop that uses it."""

    def __init__(self) -> None:
        self.tally = Tally()
        self.trouble = Trouble(self._try_again)
        self._loop = asyncio.get_running_loop()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="perdure-writer")
        self._waiting: list[Waiting] = []
        self._purges = False
        self._cut_at = -math.inf
        self._cut_later: asyncio.TimerHandle | None = None
        self._idle = asyncio.Event()
        self._idle.set()
        self._connection: apsw.Connection | None = None
        self._log: Log | None = None
        self._closed = False

    @property
    def commits(self) -> int:
        """How many were made, the store's own included."""
        return 0 if self._log is None else self._log.commits

    @property
    def owes_cut(self) -> bool:
        """Whether the log may still hold what was purged, and waits for a commit that cuts it."""
        return self._log is not None and self._log.owes_cut

    async def start(self, connect: Callable[[], apsw.Connection]) -> None:
        """Open the connection, on the thread."""
        try:
            connection = await self._loop.run_in_executor(self._thread, connect)
        except BaseException:
            self._thread.shutdown(wait=False)
            raise
        self._connection = connection
        self.trouble.watch(Path(connection.filename))
        self._log = await self._loop.run_in_executor(self._thread, Log, connection)

    async def write(self, operation: Callable[[apsw.Connection], T], *, purges: bool = False) -> T:
        """Make an operation and return its value once it is durable. It may run twice; only one run is kept.

        What an operation that `purges` removes leaves the log as well.
        """
        if self._closed:
            raise Unavailable("The store is closed.")
        self.trouble.check()
        self._purges = self._purges or purges
        return await self._hand_over(operation, time.monotonic())

    async def touch(self) -> None:
        """Make a commit of the store's own that changes nothing, but cuts the log."""
        if self._closed:
            raise Unavailable("The store is closed.")
        self._purges = True
        await self._hand_over(_touch, None)

    async def aside(self, job: Callable[[], T]) -> T:
        """Run something on the thread, between two commits. Not after `close`."""
        return await self._loop.run_in_executor(self._thread, job)

    async def close(self) -> None:
        """Finish what was handed over, then close the connection. Nothing can be handed over any more."""
        self._closed = True
        self.trouble.close()
        if self._cut_later is not None:
            self._cut_later.cancel()  # closing removes the whole log
        await self._idle.wait()
        if self._connection is not None:
            await self._loop.run_in_executor(
                self._thread, partial(leave, self._connection, as_it_is=self.trouble.is_damaged)
            )
            self._connection = None
        self._thread.shutdown()

    def _hand_over(self, operation: Callable[[apsw.Connection], T], since: float | None) -> "asyncio.Future[T]":
        done: asyncio.Future[T] = self._loop.create_future()
        self._waiting.append((operation, done, since))
        if self._idle.is_set():
            self._idle.clear()
            # Not at once: whoever else is about to write in this turn of the loop comes along.
            self._loop.call_soon(self._next_batch)
        return done

    def _try_again(self) -> None:
        """See whether the disk takes writes again; nobody waits for this one."""
        if not self._closed:
            self._hand_over(_bury, None).add_done_callback(asyncio.Future.exception)

    def _next_batch(self) -> None:
        batch, self._waiting = self._waiting[:BATCH_MAX_OPERATIONS], self._waiting[BATCH_MAX_OPERATIONS:]
        if not batch or self._connection is None:
            self._idle.set()
            return
        if self.trouble.is_damaged:
            outcomes = [Outcome(error=damaged()) for _ in batch]
            self._loop.call_soon(self._deliver, batch, outcomes)
            return
        operations = [operation for operation, _, _ in batch]
        if self._purges and self._log is not None:
            self._cut(self._log)
        self._thread.submit(self._make, self._connection, operations, batch)

    def _cut(self, log: Log) -> None:
        """Have the next commit cut the log, or a later one if that was done a moment ago."""
        wait = self._cut_at + CUT_SECONDS - self._loop.time()
        if wait <= 0:
            self._cut_at = self._loop.time()
            self._purges = bool(self._waiting)  # the one who purges may be among those who have to wait
            self._thread.submit(log.cut)
        elif self._cut_later is None:
            self._cut_later = self._loop.call_later(wait, self._cut_at_last)

    def _cut_at_last(self) -> None:
        """See to it that there is a commit to cut the log; nobody waits for this one."""
        self._cut_later = None
        if self._purges and not self._closed:
            self._hand_over(_touch, None).add_done_callback(asyncio.Future.exception)

    def _make(self, connection: apsw.Connection, operations: Sequence[Operation], batch: Sequence[Waiting]) -> None:
        """Make a batch, on the thread. Whatever goes wrong, the callers are told and the next batch is made."""
        try:
            outcomes = commit_all(connection, operations)
        except BaseException as error:  # noqa: BLE001 -- see above
            outcomes = _broken(error, len(batch))
        # A callback and not a task: nothing that cancels tasks can come between a commit and its callers.
        self._loop.call_soon_threadsafe(self._deliver, batch, outcomes)

    def _deliver(self, batch: Sequence[Waiting], outcomes: Sequence[Outcome]) -> None:
        full = self._note(batch, outcomes)
        for (_, done, _), outcome in zip(batch, outcomes, strict=True):
            if done.done():
                continue
            if outcome.error is None:
                done.set_result(outcome.value)
            else:
                done.set_exception(outcome.error)
        due = full or (self._log is not None and self._log.is_due)  # moving the log gives its room back
        if self._log is not None and due and not self.trouble.is_damaged:
            self._thread.submit(self._log.shorten, self.trouble.code is not None)
        self._next_batch()

    def _note(self, batch: Sequence[Waiting], outcomes: Sequence[Outcome]) -> bool:
        """Keep count, and watch the state of the disk; whether it is full."""
        errors = [outcome.error for outcome in outcomes]
        counted = [(since, error) for (_, _, since), error in zip(batch, errors, strict=True) if since is not None]
        made = [since for since, error in counted if error is None]
        self.tally.add(made, time.monotonic(), sum(isinstance(error, Refusal) for _, error in counted))
        refusals = [error for error in errors if isinstance(error, Refusal)]
        self.trouble.delivered(refusals, made=None in errors)
        return any(isinstance(error, StorageFull) for error in refusals)


def _broken(error: BaseException, count: int) -> list[Outcome]:
    """What becomes of a batch at a fault of this program."""
    failure = StorageFailed(f"The write could not be made: {type(error).__name__}.")
    failure.__cause__ = error
    return [Outcome(error=_again(failure)) for _ in range(count)]


def _again(error: Exception) -> Exception:
    """The same error for one more caller."""
    same = copy(error)
    same.__cause__ = error.__cause__
    return same


def commit_all(connection: apsw.Connection, operations: Sequence[Operation]) -> list[Outcome]:
    """Make operations in as few commits as the disk allows: one, if nothing goes wrong."""
    try:
        return _commit(connection, operations)
    except Exception as error:  # noqa: BLE001 -- whatever it is, it is the callers', and the thread must live on
        failure = translated(error, connection)
    if isinstance(failure, StorageFull) and len(operations) > 1:
        return [outcome for operation in operations for outcome in commit_all(connection, [operation])]
    return [Outcome(error=_again(failure)) for _ in operations]


def _commit(connection: apsw.Connection, operations: Sequence[Operation]) -> list[Outcome]:
    try:
        return _committed(connection, operations, _attempt)
    except _HalfDoneError:
        return _committed(connection, operations, _attempt_apart)


def _committed(
    connection: apsw.Connection,
    operations: Sequence[Operation],
    attempt: Callable[[apsw.Connection, Operation], Outcome],
) -> list[Outcome]:
    rows(connection, _BEGIN)
    try:
        outcomes = [attempt(connection, operation) for operation in operations]
        rows(connection, _COMMIT)
    except _HalfDoneError:
        _roll_back(connection)
        raise
    except BaseException as error:
        _roll_back(connection)
        if not is_damage(error):
            _bury_at_once(connection)
        raise
    return outcomes


def _attempt(connection: apsw.Connection, operation: Operation) -> Outcome:
    """Make an operation that, if it fails, has changed nothing. Raises `_HalfDoneError` where it has.

    What it has changed are rows: SQLite counts those, and nothing else. So an operation that may fail must not change
    the schema before that, nor set a pragma that is kept in the file: that would stay, although it is told a failure.
    """
    before = connection.total_changes()
    try:
        return Outcome(operation(connection))
    except Exception as error:
        if not connection.in_transaction or is_damage(error):
            # A fault of the disk, at which SQLite has given up everything that the batch has done so far; or damage,
            # after which nothing of it may be written.
            raise
        if connection.total_changes() != before:
            raise _HalfDoneError from error
        return Outcome(error=translated(error, connection))


def _attempt_apart(connection: apsw.Connection, operation: Operation) -> Outcome:
    """Make an operation that is undone alone if it fails."""
    rows(connection, _OPERATION)
    try:
        outcome = Outcome(operation(connection))
    except Exception as error:
        if not connection.in_transaction or is_damage(error):
            raise
        outcome = Outcome(error=translated(error, connection))
        rows(connection, _UNDO)
    rows(connection, _KEEP)
    return outcome


def _touch(connection: apsw.Connection) -> None:
    """Write a page as it is: a commit that changes nothing."""
    connection.pragma("application_id", connection.pragma("application_id"))


def _bury(connection: apsw.Connection) -> None:
    """A small write of the store's own; the block's comment says what for."""
    rows(connection, _BURY)


def _bury_at_once(connection: apsw.Connection) -> None:
    """Write over what a failed commit may have left in the log. If the disk refuses that too, the next commit that
    succeeds does the same, and while nobody writes, `trouble` sees to it that there is one."""
    try:
        rows(connection, _BEGIN)
        _bury(connection)
        rows(connection, _COMMIT)
    except (apsw.Error, StorageFailed):
        _roll_back(connection)


def leave(connection: apsw.Connection, *, as_it_is: bool) -> None:
    """Close it at an orderly stop, and tell of a log that stays: whoever then copies the file alone loses what is in
    it."""
    path, log = Path(connection.filename), Path(connection.filename_wal)
    if close(connection, as_it_is=as_it_is) and log.exists() and log.stat().st_size:
        _log.warning(
            "the database was closed in order, but %s stays beside it: another program still has it open, or the "
            "disk refused to take it up. Do not move or copy %s without it; the next start reads it",
            log.name,
            path,
        )


def close(connection: apsw.Connection, *, as_it_is: bool = False) -> bool:
    """Close a connection that writes. The last one to close moves the log into the file and removes it; where the
    file is damaged it is left `as_it_is`, with its log. Returns whether nothing is known that speaks against that."""
    log = Path(connection.filename_wal)
    try:
        if as_it_is and log.exists() and log.stat().st_size:
            connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        connection.close()
    except apsw.Error as error:
        # Closing moves the log into the file. Where the disk refuses, the log stays, and the next start reads it.
        _log.warning("the log was left beside the database: %s", error)
        return False
    return not as_it_is


def _roll_back(connection: apsw.Connection) -> None:
    if connection.in_transaction:
        rows(connection, _ROLLBACK)
