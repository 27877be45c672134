"""Dispatch: a free slot takes the next task. The claim is durable before the model is touched."""

import asyncio
from collections.abc import Awaitable, Callable

from perdure.domain.errors import PerdureError
from perdure.domain.lifecycle import Cause, Status, step
from perdure.domain.limits import DISPATCH_POLL_SECONDS
from perdure.engine.record import UNCLAIMED, Recorder
from perdure.engine.run import Report, Run, exhausted, may_give_way
from perdure.engine.wakeups import wait_for
from perdure.ports.runtime import Runtime
from perdure.ports.storage import StaleTask, Store, TaskRecord

Work = Callable[[Run], Awaitable[None]]


class Dispatcher:
    """Keeps the slots busy. One of it runs in a service; `boot` names the process."""

    def __init__(
        self,
        store: Store,
        runtime: Runtime,
        recorder: Recorder,
        work: Work,
        report: Report,
        *,
        boot: str,
        crashes_max: int,
    ) -> None:
        self._store = store
        self._runtime = runtime
        self._recorder = recorder
        self._work = work
        self._report = report
        self._boot = boot
        self._crashes_max = crashes_max
        self._hint = asyncio.Event()
        self._stopping = False
        self._live: dict[int, tuple[Run, asyncio.Task[None]]] = {}
        self._unreadable: set[int] = set()
        self._put_off: dict[int, int] = {}
        """Tasks that gave way to others and go on before the rest of the background, and how far they had come. In
        memory only: a restart takes them up first of all."""

    def wake(self) -> None:
        """There may be something to take."""
        self._hint.set()

    @property
    def running(self) -> int:
        """How many tasks are worked on now."""
        return len(self._live)

    def run_of(self, task_id: int) -> Run | None:
        """The run that works on a task now."""
        found = self._live.get(task_id)
        return found[0] if found else None

    async def serve(self) -> None:
        """Take tasks until `stop`."""
        while not self._stopping:
            self._hint.clear()
            try:
                await self._fill()
            except Exception as error:  # noqa: BLE001 -- without this loop nothing would ever start again
                self._report("dispatch", error)
            await wait_for(self._hint, DISPATCH_POLL_SECONDS)

    def stop(self) -> None:
        """Take nothing more."""
        self._stopping = True
        self.wake()

    async def settle(self, seconds: float) -> None:
        """Wait for the runs under way, at most so long. `serve` has ended, or a claim under way would be missed."""
        if runs := [task for _, task in self._live.values()]:
            await asyncio.wait(runs, timeout=seconds)

    async def finish(self) -> None:
        """Have the runs under way leave, and wait until they have. As for `settle`, `serve` has ended."""
        for run, _ in self._live.values():
            run.leave()
        await asyncio.gather(*(task for _, task in self._live.values()))

    async def _fill(self) -> None:
        while not self._stopping and self._runtime.slots:
            record = await self._next()
            if record is None:
                return
            if len(self._live) >= self._runtime.slots:
                await self._make_room(record)
                return
            await self._take(record)

    async def _next(self) -> TaskRecord | None:
        """What the next slot should take: what was put off comes after the foreground, before other background."""
        not_now = (*self._live, *self._unreadable)
        record = await self._store.next_runnable(self._boot, (*not_now, *self._put_off), self._runtime.usable)
        if self._put_off and (record is None or (record.status is Status.QUEUED and record.background)):
            record = await self._store.next_runnable(self._boot, not_now, self._runtime.usable)
            if record is None or record.id not in self._put_off:
                self._put_off.clear()  # those that are left have ended, or wait for their model
        return record

    async def _make_room(self, waiting: TaskRecord) -> None:
        """Have the youngest background text put off for a foreground task that is next, one at a time."""
        if waiting.status is not Status.QUEUED or waiting.background:
            return
        if any(run.giving_way for run, _ in self._live.values()):
            return
        for task_id in sorted(self._live, reverse=True):
            run = self.run_of(task_id)
            record = await self._store.task(run.ident) if run else None
            if run and record and may_give_way(run, record):
                run.give_way()
                return

    async def _take(self, record: TaskRecord) -> None:
        """Claim a task and start its run. A row that cannot be understood must not keep the others waiting."""
        try:
            if await (self._claim(record) if record.status is Status.QUEUED else self._claim_again(record)):
                self._start(record)
        except StaleTask:
            return  # somebody cancelled it meanwhile; the next look sees that
        except PerdureError:
            raise
        except Exception as error:  # noqa: BLE001 -- it stays as it is until a program reads it that can
            self._report(f"claim of {record.ident}", error)
            self._unreadable.add(record.id)

    async def _claim(self, record: TaskRecord) -> bool:
        """Make the task ours; whether there is something to run."""
        journal = await self._recorder.journal(record)
        if record.crashes >= self._crashes_max:
            await self._recorder.fail(record, journal, exhausted(record.crashes))
            return False
        await self._recorder.move(
            record,
            step(record.status, Cause.CLAIM),
            journal.claim(),
            boot=self._boot,
            attempt=journal.attempt,
            claimed_at=self._recorder.now(),
            note="claimed",
        )
        return True

    async def _claim_again(self, record: TaskRecord) -> bool:
        """Note that work on a resumed task begins: a process that ends while the task still waits was not ended by
        it."""
        if record.status is Status.RUNNING and record.claimed_at == UNCLAIMED:
            await self._recorder.move(record, record.status, claimed_at=self._recorder.now())
        return True

    def _start(self, record: TaskRecord) -> None:
        run = Run(record.id, record.ident, self._put_off.pop(record.id, -1))
        task = asyncio.create_task(self._supervise(run), name=f"run {record.ident}")
        self._live[record.id] = run, task

    async def _supervise(self, run: Run) -> None:
        try:
            await self._work(run)
        except Exception as error:  # noqa: BLE001 -- one run must not end the others; the row is still ours to take again
            self._report(f"run {run.ident}", error)
            await wait_for(run.leaving, DISPATCH_POLL_SECONDS)
        finally:
            del self._live[run.task_id]
            if run.gave_way_at is not None:
                self._put_off[run.task_id] = run.gave_way_at
            self.wake()
