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
        while record.status not in TERMINAL:
            due = self._recorder.now() + DELETE_GRACE_SECONDS * MICROSECONDS
            try:
                await self._recorder.move(record, record.status, hidden=True, purge_at=due, note="deleted")
            except StaleTask:
                found = await self._store.task(record.ident)
                if found is None:
                    return
                record = found
                continue
            await self._cancel(record.ident)
            return
        await self._store.purge(record.id)
