"""Retain: rows whose time is over go, a few at a time. Nothing unfinished ever does (the store refuses)."""

import asyncio

from perdure.domain.limits import PURGE_BATCH_TASKS, SWEEP_SECONDS
from perdure.engine.record import MICROSECONDS
from perdure.engine.run import Report
from perdure.engine.wakeups import wait_for
from perdure.ports.ambient import Clock
from perdure.ports.storage import Store


class Retain:
    """Purges what is due."""

    def __init__(self, store: Store, clock: Clock, report: Report) -> None:
        self._store = store
        self._clock = clock
        self._report = report
        self._hint = asyncio.Event()
        self._stopping = False

    def wake(self) -> None:
        """Something may be due sooner than was known."""
        self._hint.set()

    def stop(self) -> None:
        """Purge nothing more."""
        self._stopping = True
        self.wake()

    async def serve(self) -> None:
        """Purge until `stop`."""
        while not self._stopping:
            self._hint.clear()
            try:
                await self.sweep()
                pause = await self._pause()
            except Exception as error:  # noqa: BLE001 -- without this loop nothing would ever be purged again
                self._report("purge", error)
                pause = SWEEP_SECONDS
            await wait_for(self._hint, pause)

    async def sweep(self) -> None:
        """Purge everything that is due now."""
        while not self._stopping and (due := await self._store.purgeable(self._clock.now(), PURGE_BATCH_TASKS)):
            for record in due:
                await self._store.purge(record.id)

    async def _pause(self) -> float:
        due = await self._store.next_purge_at()
        if due is None:
            return SWEEP_SECONDS
        return min(SWEEP_SECONDS, max(0.0, (due - self._clock.now()) / MICROSECONDS))
