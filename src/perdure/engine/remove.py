"""Remove: a deleted response is out of sight at once, ends, and then leaves nothing behind."""

from collections.abc import Awaitable, Callable

from perdure.domain.lifecycle import TERMINAL
from perdure.domain.limits import DELETE_GRACE_SECONDS
from perdure.engine.record import MICROSECONDS, Recorder
from perdure.ports.storage import StaleTask, Store, TaskRecord


class Remove:
    """Deletes responses. `cancel` takes an unfinished one towards its end."""

    def __init__(self, store: Store, recorder: Recorder, cancel: Callable[[str], Awaitable[None]]) -> None:
        self._store = store
        self._recorder = recorder
        self._cancel = cancel

    async def __call__(self, record: TaskRecord) -> None:
        """Purge a finished response; hide and cancel an unfinished one, and have it purged shortly after its end, so
        that its viewers still get the last event."""
        if await self._hide(record.ident, record.id):
            await self._cancel(record.ident)
        else:
            await self._store.purge([record.id])

    async def _hide(self, ident: str, task_id: int) -> bool:
        """Take an unfinished response out of sight; whether there was one. In turn with the run that writes it."""
        while True:
            async with self._recorder.turn(task_id):
                record = await self._store.task(ident)
                if record is None or record.status in TERMINAL:
                    return False
                due = self._recorder.now() + DELETE_GRACE_SECONDS * MICROSECONDS
                try:
                    await self._recorder.move(record, record.status, hidden=True, purge_at=due, note="deleted")
                except StaleTask:
                    continue  # a claim, or an end: look again
                return True
