"""The engine put together: the verbs, the two loops, and the order in which they start and stop."""

import asyncio
import hashlib
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Sequence
from contextlib import aclosing, asynccontextmanager, suppress
from typing import Any, TypeVar

from perdure.domain.errors import InvalidRequest, StorageFailed, StorageFull, Unauthenticated, Unavailable
from perdure.domain.events import Event
from perdure.domain.items import Item
from perdure.domain.lifecycle import Status
from perdure.domain.limits import CANCEL_WAIT_SECONDS, FEED_POLL_SECONDS, STORAGE_RETRY_SECONDS
from perdure.domain.model import ModelCard
from perdure.domain.principal import Principal
from perdure.domain.request import CreateRequest
from perdure.engine.attendance import Attendance
from perdure.engine.cancel import Cancel
from perdure.engine.context import Context
from perdure.engine.dispatch import Dispatcher
from perdure.engine.feed import Feed
from perdure.engine.models import Models
from perdure.engine.read import Read
from perdure.engine.record import Recorder
from perdure.engine.recover import Recover
from perdure.engine.remove import Remove
from perdure.engine.retain import Retain
from perdure.engine.run import Report, Runner
from perdure.engine.service import Accepted, Health, Listed, Page, Task, Workload
from perdure.engine.signed import Ask, NotModified, Reading, Signed, Signer
from perdure.engine.submit import Submit
from perdure.engine.wakeups import Wakeups, unless, wait_for
from perdure.ports.ambient import Clock, Names
from perdure.ports.runtime import Runtime, Statistics
from perdure.ports.storage import Condition, Store, TaskRecord

T = TypeVar("T")


class Engine:
    """The one implementation of `Service`. `boot` names this process; `report` is where faults are told."""

    def __init__(
        self,
        store: Store,
        runtime: Runtime,
        clock: Clock,
        names: Names,
        report: Report,
        *,
        boot: str,
        queue_max: int,
        crashes_max: int,
        retention_seconds: float | None,
    ) -> None:
        self._store = store
        self._runtime = runtime
        self._clock = clock
        self._report = report
        self._boot = boot
        self._ready = False
        self._draining = asyncio.Event()
        self._closed = asyncio.Event()
        self._loops: list[asyncio.Task[None]] = []
        self._errands: set[asyncio.Task[None]] = set()
        self._wakeups = Wakeups()
        self._attendance = Attendance(self._abandoned)
        self._retain = Retain(store, clock, report, retention_seconds)
        recorder = Recorder(store, clock, self._wakeups, self._ended)
        self._runner = Runner(store, runtime, recorder, report, boot=boot, crashes_max=crashes_max)
        self._dispatcher = Dispatcher(
            store, runtime, recorder, self._runner, report, boot=boot, crashes_max=crashes_max
        )
        self._feed = Feed(store, self._wakeups, clock)
        self._cancel = Cancel(store, recorder, self._dispatcher.run_of)
        self._remove = Remove(store, recorder, self._cancel_deleted)
        self._read = Read(store, recorder, clock)
        self._submit = Submit(store, runtime, Context(store, self._read), clock, names, queue_max)
        self._models = Models(runtime)
        self._signed = Signer(store, report)
        self._recover = Recover(store, runtime, recorder, report, boot=boot)

    # Start and stop.

    async def start(self) -> int:
        """Settle what the last process left, then begin to work; returns how many tasks were left over."""
        left = await self._recover(self._clock.now())
        self._loops = [
            asyncio.create_task(self._dispatcher.serve(), name="dispatch"),
            asyncio.create_task(self._retain.serve(), name="retain"),
        ]
        self._ready = True
        self._errand(self._wake_when_known(), "slots")
        return left

    async def _wake_when_known(self) -> None:
        """Begin as soon as it is known how many texts fit, instead of at the next look. A stop does not wait for it:
        a large model is read for minutes."""
        await unless(self._draining, self._runtime.models())
        self._dispatcher.wake()

    def drain(self) -> None:
        """Take no new work and let the viewers go; those who wait for foreground work may wait on."""
        self._draining.set()
        self._dispatcher.stop()
        self._retain.stop()
        self._wakeups.notify_all()

    async def settle(self, seconds: float) -> None:
        """Let the work under way end, at most so long."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._loops_ended()
                await self._dispatcher.settle(seconds)

    async def finish(self) -> None:
        """Leave what is still under way to its policy; returns when every loop and run has ended."""
        await self._loops_ended()
        await self._dispatcher.finish()
        self._closed.set()
        self._wakeups.notify_all()
        while self._errands:  # one may begin another
            await asyncio.gather(*self._errands, return_exceptions=True)

    def health(self) -> Health:
        """Whether work can be taken."""
        if self._draining.is_set():
            return Health(False, "The service is stopping.")
        if not self._ready:
            return Health(False, "The service is starting.")
        reason = self._store.condition().reason or self._runtime.fault()
        return Health(reason is None, reason)

    # Verbs.

    async def authenticate(self, token: str) -> Principal:
        """The client of a token."""
        principal = await self._store.principal(hashlib.sha256(token.encode()).digest(), self._clock.now())
        if principal is None:
            raise Unauthenticated("This token is not known here. The owner's is in the file owner.token.")
        return principal

    async def submit(self, principal: Principal, request: CreateRequest, items: Sequence[Item]) -> Accepted:
        """Accept a request."""
        if self._draining.is_set():
            raise Unavailable("The service is stopping; send the request again in a moment.")
        prepared = await self._submit.prepare(principal, request, items)
        try:
            response = await self._submit.keep(principal, prepared)
        finally:  # also when the caller left during the write: it may have been kept, and nobody will come for it
            if not request.background:
                self._attendance.expect(prepared.ident)
            self._dispatcher.wake()
        return Accepted(prepared.ident, response)

    async def input_tokens(self, principal: Principal, request: CreateRequest, items: Sequence[Item]) -> int:
        """How long the prompt would be."""
        return len((await self._submit.prepare(principal, request, items)).prompt)

    async def signed(self, reading: Reading[T], ask: Ask) -> Signed[T] | NotModified:
        """A read by the rule."""
        return await self._signed(reading, ask)

    def response(self, principal: Principal, ident: str) -> Reading[bytes]:
        """The response object as JSON."""
        return self._read.response(principal, ident)

    async def cancel(self, principal: Principal, ident: str, *, background_only: bool) -> None:
        """Ask for the end, and wait a moment for it."""
        record = await self._read.record(principal, ident)
        if background_only and not record.background:
            raise InvalidRequest(
                "Only a background response can be cancelled; a foreground one stops when its caller disconnects.",
                code="not_background",
            )
        await asyncio.shield(self._errand(self._cancel(ident), f"cancel {ident}"))
        deadline = self._clock.monotonic() + CANCEL_WAIT_SECONDS
        await self._until_ended(ident, lambda: deadline - self._clock.monotonic())

    async def delete(self, principal: Principal, ident: str) -> None:
        """Remove a response."""
        record = await self._read.record(principal, ident)
        try:
            await asyncio.shield(self._errand(self._remove(record), f"delete {ident}"))
        finally:
            self._retain.wake()

    @asynccontextmanager
    async def follow(
        self, principal: Principal, ident: str, after: int
    ) -> AsyncGenerator[AsyncIterator[Event | None]]:
        """Attend a response."""
        record = await self._read.record(principal, ident)  # first: one who may not see it does not attend it
        with self._attendance.attend(ident):
            async with aclosing(self._feed.follow(record, after, self._stop_of(record))) as events:
                yield events

    async def outcome(self, principal: Principal, ident: str) -> bytes | None:
        """Attend a response up to its end."""
        record = await self._read.record(principal, ident)  # first, as in `follow`
        stop = self._stop_of(record)
        with self._attendance.attend(ident):
            if not await self._until_ended(ident, lambda: 0.0 if stop.is_set() else FEED_POLL_SECONDS):
                return None
        return await self._read.response(principal, ident)

    def task(self, principal: Principal, ident: str) -> Reading[Task]:
        """A task."""
        return self._read.task(principal, ident)

    def tasks(
        self, principal: Principal, *, status: Status | None, limit: int, after: str | None, ascending: bool
    ) -> Reading[Page]:
        """A page of the client's own tasks."""
        return self._read.tasks(principal, status=status, limit=limit, after=after, ascending=ascending)

    def input_items(
        self, principal: Principal, ident: str, *, limit: int, after: str | None, ascending: bool
    ) -> Reading[Listed]:
        """A page of what a response answers."""
        return self._read.input_items(principal, ident, limit=limit, after=after, ascending=ascending)

    def responses(self, principal: Principal, *, limit: int, after: str | None, ascending: bool) -> Reading[Listed]:
        """A page of the client's own stored responses."""
        return self._read.responses(principal, limit=limit, after=after, ascending=ascending)

    def events(
        self, principal: Principal, ident: str, after: int, limit: int
    ) -> Reading[tuple[Sequence[Event], int, bool]]:
        """A page of the log."""
        return self._read.events(principal, ident, after, limit)

    def models(self) -> Reading[Sequence[ModelCard]]:
        """Models that can be asked."""
        return self._models.all()

    def model(self, name: str) -> Reading[ModelCard]:
        """One of them."""
        return self._models.one(name)

    def statistics(self) -> Sequence[Statistics]:
        """Counters of the runtime."""
        return self._runtime.statistics()

    def condition(self) -> Condition:
        """How the store stands."""
        return self._store.condition()

    async def workload(self) -> Workload:
        """How much there is to do."""
        try:
            queued = await self._store.queued()
        except Unavailable:
            queued = None
        return Workload(queued, self._dispatcher.running)

    # How.

    def _stop_of(self, record: TaskRecord) -> asyncio.Event:
        """What ends the wait for a response that has not ended: who reads background work can come back later."""
        return self._draining if record.background else self._closed

    async def _until_ended(self, ident: str, left: Callable[[], float]) -> bool:
        """Whether a task has ended, or is gone, by the time that no seconds are `left`. Only the rows tell."""
        with self._wakeups.listen(ident, end_only=True) as hint:
            while True:
                hint.clear()
                if await self._store.ended(ident):
                    return True
                if (seconds := left()) <= 0:
                    return False
                await wait_for(hint, min(seconds, FEED_POLL_SECONDS))

    async def _loops_ended(self) -> None:
        """Both loops have been told to stop and end after what they are at."""
        if self._loops:
            await asyncio.wait(self._loops)

    def _ended(self, record: TaskRecord) -> None:
        """A task has ended."""
        self._attendance.over(record.ident)
        if record.purge_at is not None:
            self._retain.wake()  # it has to go soon

    def _errand(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        """Do something to its end, whether or not somebody waits for it: a step that is written must also be told
        to the run that it concerns."""
        errand = asyncio.create_task(work, name=name)
        self._errands.add(errand)
        errand.add_done_callback(self._errands.discard)
        return errand

    async def _cancel_deleted(self, ident: str) -> None:
        """Cancel what is out of sight already. Its caller has what he asked for, and could not ask again."""
        try:
            await self._cancel(ident)
        except (StorageFull, StorageFailed):
            self._errand(self._stop_unattended(ident), f"deleted {ident}")

    def _abandoned(self, ident: str) -> None:
        """Nobody attends a response any more. A stopping service is not a caller who has left."""
        if not self._draining.is_set():
            self._errand(self._stop_unattended(ident), f"abandoned {ident}")

    async def _stopped_unattended(self, ident: str) -> bool:
        """Cancel a response for which nobody waits; False while the disk refuses."""
        try:
            record = await self._store.task(ident)
            if record is not None and (record.hidden or not record.background):
                await self._cancel(ident, "deleted" if record.hidden else "its caller has left")
        except (StorageFull, StorageFailed):
            return False
        return True

    async def _stop_unattended(self, ident: str) -> None:
        try:
            while not await self._stopped_unattended(ident) and not self._draining.is_set():
                await wait_for(self._draining, STORAGE_RETRY_SECONDS)
        except Exception as error:  # noqa: BLE001 -- nobody waits for this errand who could be told
            self._report(f"stop of unattended {ident}", error)
