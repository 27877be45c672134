"""Record: one step of one task, durable before anybody is told of it."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any
from weakref import WeakValueDictionary

import msgspec

from perdure.domain.errors import StorageFailed, StorageFull
from perdure.domain.events import Event
from perdure.domain.journal import Journal
from perdure.domain.lifecycle import TERMINAL, Cause, Status, step
from perdure.domain.limits import (
    DELETE_GRACE_SECONDS,
    EPHEMERAL_KEEP_SECONDS,
    EVENTS_PAGE_MAX,
    STORAGE_RETRY_SECONDS,
)
from perdure.domain.request import CreateRequest
from perdure.domain.response import ResponseError
from perdure.engine.wakeups import Wakeups, wait_for
from perdure.ports.ambient import Clock
from perdure.ports.storage import Change, Store, TaskRecord

MICROSECONDS = 1_000_000
UNCLAIMED = 0
"""`claimed_at` of a running task that a restart has left and no run has taken up yet."""


class Recorder:
    """Writes steps and tells the listeners; `on_end` is told of each task that has ended."""

    def __init__(
        self, store: Store, clock: Clock, wakeups: Wakeups, on_end: Callable[[TaskRecord], None] | None = None
    ) -> None:
        self._store = store
        self._clock = clock
        self._wakeups = wakeups
        self._on_end = on_end
        self._turns: WeakValueDictionary[int, asyncio.Lock] = WeakValueDictionary()

    def turn(self, task_id: int) -> asyncio.Lock:
        """Whose turn it is to move a task, first come, first served.

        Compare-and-set alone keeps the rows right but is not fair: a run that commits without a pause would make
        stale whatever somebody else reads. Who reads and moves inside his turn comes through. Hold it for one step.
        """
        return self._turns.setdefault(task_id, asyncio.Lock())

    def now(self) -> int:
        """The time of day as it is stored."""
        return self._clock.now()

    def seconds(self) -> int:
        """The time of day as the API shows it."""
        return self._clock.now() // MICROSECONDS

    async def journal(self, record: TaskRecord) -> Journal:
        """The journal of a task, folded from its stored events."""
        journal = Journal(
            ident=record.ident,
            created_at=record.created_at // MICROSECONDS,
            request=msgspec.json.decode(record.request, type=CreateRequest),
            input_tokens=record.prompt_tokens,
            exact=record.exact,
        )
        more = True
        while more:
            page = await self._store.events(record.id, journal.next_seq - 1, EVENTS_PAGE_MAX)
            journal.replay(page.events)
            more = page.more
        journal.attempt = max(1, record.attempt)
        return journal

    async def move(
        self, record: TaskRecord, status: Status, events: Sequence[Event] = (), **fields: Any
    ) -> TaskRecord:
        """Make one step from where `record` stands; returns the record after it.

        Raises `StaleTask` when the task does not stand there any more, `StorageFull` and `StorageFailed`.
        """
        now = self._clock.now()
        if status in TERMINAL and record.status not in TERMINAL:
            fields |= {"finished_at": now, "boot": None}
            if (keep := _keep_seconds(record)) is not None:
                fields["purge_at"] = now + keep * MICROSECONDS
        change = Change(
            task_id=record.id,
            from_status=frozenset({record.status}),
            from_seq=record.next_seq,
            status=status,
            at=now,
            events=tuple(events),
            **fields,
        )
        await self._store.apply(change)
        self._wakeups.notify(record.ident, ended=status in TERMINAL)
        kept = {name: value for name, value in fields.items() if name != "note"}
        after = msgspec.structs.replace(record, status=status, next_seq=record.next_seq + len(events), **kept)
        if status in TERMINAL and self._on_end is not None:
            self._on_end(after)
        return after

    async def move_when_possible(
        self, record: TaskRecord, status: Status, events: Sequence[Event], give_up: asyncio.Event, **fields: Any
    ) -> TaskRecord:
        """`move`, offered again for as long as the storage refuses: the output is held, not lost.

        Raises the storage's error once `give_up` is set.
        """
        while True:
            try:
                async with self.turn(record.id):
                    return await self.move(record, status, events, **fields)
            except (StorageFull, StorageFailed):
                if await wait_for(give_up, STORAGE_RETRY_SECONDS):
                    raise

    async def fail(self, record: TaskRecord, journal: Journal, error: ResponseError, **fields: Any) -> TaskRecord:
        """End a task as failed, with the event that says why."""
        events = journal.fail(error)
        reason = msgspec.json.encode(error).decode()
        note = error.code if error.detail is None else f"{error.code}: {error.detail}"
        status = step(record.status, Cause.ERROR)
        return await self.move(record, status, events, error=reason, note=note, **fields)

    async def close_cancelled(self, record: TaskRecord, journal: Journal, note: str = "cancelled") -> TaskRecord:
        """End a task as cancelled."""
        return await self.move(record, Status.CANCELLED, journal.cancel(), note=note)


def _keep_seconds(record: TaskRecord) -> int | None:
    """How long a task's rows outlive its end, where that is not left to the retention time."""
    if record.hidden:
        return DELETE_GRACE_SECONDS
    return None if record.stored else EPHEMERAL_KEEP_SECONDS
