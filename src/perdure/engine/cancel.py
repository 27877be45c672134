"""Cancel: whatever state a task is in, one step towards its end, written before anybody is told."""

from collections.abc import Callable

from perdure.domain.lifecycle import TERMINAL, Cause, Status, step
from perdure.engine.record import Recorder
from perdure.engine.run import Run
from perdure.ports.storage import StaleTask, Store, TaskRecord


class Cancel:
    """Asks tasks to end. `run_of` gives the run that works on a task in this process, if one does."""

    def __init__(self, store: Store, recorder: Recorder, run_of: Callable[[int], Run | None]) -> None:
        self._store = store
        self._recorder = recorder
        self._run_of = run_of

    async def __call__(self, ident: str, why: str = "cancel requested") -> None:
        """Take the task as far as can be done at once: to its end, or to `cancelling` while a model works on it.
        `why` is noted in its history.
        """
        while (record := await self._store.task(ident)) and record.status not in TERMINAL:
            try:
                await self._once(record, why)
            except StaleTask:
                continue  # it moved meanwhile: look again
            return

    async def _once(self, record: TaskRecord, why: str) -> None:
        if record.status is Status.RUNNING:
            record = await self._request(record.ident, record.id, why)
        run = self._run_of(record.id)
        if record.status is Status.CANCELLING and run is not None:
            run.poke()
            return
        await self._recorder.close_cancelled(record, await self._recorder.journal(record), why)
        if run is not None:
            run.poke()

    async def _request(self, ident: str, task_id: int, why: str) -> TaskRecord:
        """running -> cancelling, in turn with the run, which may be writing its text at this moment."""
        async with self._recorder.turn(task_id):
            record = await self._store.task(ident)
            if record is None or record.status is not Status.RUNNING:
                raise StaleTask(f"task {task_id} has moved on")
            return await self._recorder.move(record, step(record.status, Cause.CANCEL), note=why)
