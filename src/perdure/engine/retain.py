"""Retain: rows whose time is over go, a few at a time. Nothing unfinished ever does (the store refuses).

What was deleted, or was not to be stored, has a time of its own. Everything else goes by its age, and leaves its name
behind for a while. The age is looked at in each sweep, so that a changed setting counts for old rows too, and by a
time that does not leap (`steady`): a clock that was set ahead must not make new responses old.

A batch is one transaction, and everybody who writes waits for it. So it is small, and between two of them the others
have their turn.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence

from perdure.domain.limits import (
    FORGET_BATCH_NAMES,
    PURGE_BATCH_EVENTS,
    PURGE_BATCH_TASKS,
    PURGE_PAUSE_SECONDS,
    PURGES_REFUSED_MAX,
    SWEEP_SECONDS,
    TOMBSTONE_KEEP_SECONDS,
)
from perdure.engine.record import MICROSECONDS
from perdure.engine.run import Report
from perdure.engine.steady import SteadyTime
from perdure.engine.wakeups import wait_for
from perdure.ports.ambient import Clock
from perdure.ports.storage import Store, TaskRecord

_log = logging.getLogger(__name__)


class Retain:
    """Purges what is due. `retention_seconds` is how long a finished task stays that has no time of its own; None is
    for ever."""

    def __init__(self, store: Store, clock: Clock, report: Report, retention_seconds: float | None) -> None:
        self._store = store
        self._clock = clock
        self._report = report
        self._retention = None if retention_seconds is None else round(retention_seconds * MICROSECONDS)
        self._steady = SteadyTime(clock, retention_seconds or 0)
        self._hint = asyncio.Event()
        self._stopped = asyncio.Event()

    def wake(self) -> None:
        """Something may be due sooner than was known."""
        self._hint.set()

    def stop(self) -> None:
        """Purge nothing more."""
        self._stopped.set()
        self.wake()

    async def serve(self) -> None:
        """Purge until `stop`. Where the disk refuses, the next sweep tries again."""
        while not self._stopped.is_set():
            self._hint.clear()
            try:
                pause = await self._pause() if await self.sweep() else SWEEP_SECONDS
            except Exception as error:  # noqa: BLE001 -- without this loop nothing would ever be purged again
                self._report("purge", error)
                pause = SWEEP_SECONDS
            await wait_for(self._hint, pause)

    async def sweep(self) -> bool:
        """Purge everything that is due now; whether all of it went."""
        went = await self._purge_all(self._due, remember=False)
        if self._retention is not None:
            went = await self._purge_all(self._outlived, remember=True) and went
        while not self._stopped.is_set() and await self._store.forget(self._clock.now(), FORGET_BATCH_NAMES):
            await wait_for(self._stopped, PURGE_PAUSE_SECONDS)
        return went

    async def _due(self, limit: int) -> Sequence[TaskRecord]:
        return await self._store.purgeable(self._clock.now(), limit)

    async def _outlived(self, limit: int) -> Sequence[TaskRecord]:
        return await self._store.outlived(self._steady.now() - (self._retention or 0), limit)

    async def _purge_all(self, find: Callable[[int], Awaitable[Sequence[TaskRecord]]], *, remember: bool) -> bool:
        """Purge what `find` finds, batch by batch; whether all of it went. What goes by its age is told: nobody has
        asked for it."""
        refused: set[int] = set()
        went = 0
        try:
            while not self._stopped.is_set() and len(refused) < PURGES_REFUSED_MAX:
                found = await find(PURGE_BATCH_TASKS + len(refused))
                due = [record for record in found if record.id not in refused]
                if not due:
                    break
                batch = _batch(due)
                stayed = await self._purge(batch, remember=remember)
                went += len(batch) - len(stayed)
                refused |= stayed
                await wait_for(self._stopped, PURGE_PAUSE_SECONDS)
        finally:
            if went and remember:
                _log.info("removed %d finished responses that were older than retention_days allows", went)
        return not refused

    async def _purge(self, task_ids: Sequence[int], *, remember: bool) -> set[int]:
        """Purge tasks; returns those that the store refuses for what they are. Such a one must not keep all others
        from going, so they are then tried one by one."""
        until = self._clock.now() + TOMBSTONE_KEEP_SECONDS * MICROSECONDS if remember else None
        try:
            await self._store.purge(task_ids, until)
        except AssertionError as error:
            if len(task_ids) > 1:
                return set().union(*[await self._purge([task_id], remember=remember) for task_id in task_ids])
            self._report("purge", error)
            return set(task_ids)
        return set()

    async def _pause(self) -> float:
        due = await self._store.next_purge_at()
        if due is None:
            return SWEEP_SECONDS
        return min(SWEEP_SECONDS, max(0.0, (due - self._clock.now()) / MICROSECONDS))


def _batch(due: Sequence[TaskRecord]) -> list[int]:
    """The first of those that are due, as many as have `PURGE_BATCH_EVENTS` events together, but one at least."""
    batch, events = [due[0].id], due[0].next_seq
    for record in due[1:PURGE_BATCH_TASKS]:
        events += record.next_seq
        if events > PURGE_BATCH_EVENTS:
            break
        batch.append(record.id)
    return batch
