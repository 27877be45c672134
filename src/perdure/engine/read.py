"""Read: what is kept, for those who may see it. Foreign and unknown names are the same to a reader."""

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

import msgspec

from perdure.domain.errors import NotFound
from perdure.domain.events import Event
from perdure.domain.lifecycle import TERMINAL, Status, shown
from perdure.domain.principal import Principal
from perdure.domain.response import ResponseError, response_id, task_id
from perdure.engine.record import MICROSECONDS, Recorder
from perdure.engine.service import Page, Step, Task
from perdure.engine.signed import Found, Reading
from perdure.ports.ambient import Clock
from perdure.ports.storage import Store, TaskRecord

T = TypeVar("T")


class Read:
    """Answers readers."""

    def __init__(self, store: Store, recorder: Recorder, clock: Clock) -> None:
        self._store = store
        self._recorder = recorder
        self._clock = clock

    async def record(self, principal: Principal, ident: str) -> TaskRecord:
        """The task, if this client may see it. Raises `NotFound`."""
        record = await self._store.task(ident)
        if record is None and await self._store.expired(ident) == principal.client_id:
            raise _expired()
        if record is None or record.client_id != principal.client_id or record.hidden or self._over(record):
            raise _not_found()
        return record

    def response(self, principal: Principal, ident: str) -> Reading[bytes]:
        """The response object as JSON; of a finished response, the very bytes of its last event."""
        return self._of_one(principal, ident, self._response)

    def task(self, principal: Principal, ident: str) -> Reading[Task]:
        """The task with what has become of it so far."""
        return self._of_one(principal, ident, self._task_with_history)

    def tasks(
        self, principal: Principal, *, status: Status | None, limit: int, after: str | None, ascending: bool
    ) -> Reading[Page]:
        """A page of the client's own tasks."""

        async def render() -> Page:
            found = await self._store.tasks(
                principal.client_id, status=status, limit=limit + 1, after=after, ascending=ascending
            )
            return Page(tuple([await self._task(record) for record in found[:limit]]), len(found) > limit)

        async def find() -> Found[Page]:
            return Found(render)

        return Reading(find)

    def events(
        self, principal: Principal, ident: str, after: int, limit: int
    ) -> Reading[tuple[Sequence[Event], int, bool]]:
        """A page of the log, the number of its last event, and whether there are more."""
        return self._of_one(principal, ident, lambda record: self._events(record, after, limit))

    # How. Each of these raises `NotFound` where the task was deleted after the record was read: what is left of it is
    # not what was asked for, and an answer for good must not be made of it.

    def _of_one(self, principal: Principal, ident: str, render: Callable[[TaskRecord], Awaitable[T]]) -> Reading[T]:
        async def find() -> Found[T]:
            record = await self.record(principal, ident)
            return Found(lambda: render(record), _settled(record))

        return Reading(find)

    async def _response(self, record: TaskRecord) -> bytes:
        if record.status in TERMINAL:
            kept = await self._store.snapshot(record.id)
            if kept is None:
                raise _not_found()
            return kept
        journal = await self._recorder.journal(record)
        if journal.next_seq < record.next_seq:
            raise _not_found()
        return msgspec.json.encode(journal.response(shown(record.status)))

    async def _task(self, record: TaskRecord) -> Task:
        error = msgspec.json.decode(record.error, type=ResponseError) if record.error else None
        queued = record.status is Status.QUEUED
        return Task(
            id=task_id(record.ident),
            response_id=response_id(record.ident),
            status=str(record.status),
            on_restart=str(record.on_restart),
            attempt=max(1, record.attempt),
            queue_position=await self._store.queue_position(record.id) if queued else None,
            created_at=record.created_at // MICROSECONDS,
            background=record.background,
            model=record.model,
            error=error,
        )

    async def _task_with_history(self, record: TaskRecord) -> Task:
        steps = await self._store.attempts(record.id)
        if not steps and record.status in TERMINAL:
            raise _not_found()
        history = tuple(Step(each.at // MICROSECONDS, each.attempt, str(each.status), each.note) for each in steps)
        return msgspec.structs.replace(await self._task(record), history=history)

    async def _events(self, record: TaskRecord, after: int, limit: int) -> tuple[Sequence[Event], int, bool]:
        found = await self._store.events(record.id, after, limit)
        if not found and after < record.next_seq - 1:
            raise _not_found()
        last = max(record.next_seq - 1, found[-1].seq if found else -1)  # the log may have grown in between
        return found, last, bool(found) and found[-1].seq < last

    def _over(self, record: TaskRecord) -> bool:
        ended = record.status in TERMINAL
        return ended and record.purge_at is not None and record.purge_at <= self._clock.now()


def _settled(record: TaskRecord) -> str | None:
    """What identifies a task that has ended, for as long as there is one of that name.

    Its status, its log and its history end there; the schema refuses to move it, and no step starts from an end.
    Where an older backup is put back, the same task may end anew, but later: at another microsecond.
    """
    if record.status not in TERMINAL:
        return None
    return f"{record.ident} {record.status} {record.finished_at} {record.next_seq}"


def _expired() -> NotFound:
    return NotFound(
        "This response was kept for as long as the retention time says, and is gone now.", code="response_expired"
    )


def _not_found() -> NotFound:
    return NotFound("There is nothing of this id that this token may see.")
