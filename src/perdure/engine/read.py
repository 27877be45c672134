"""Read: what is kept, for those who may see it. Foreign and unknown names are the same to a reader."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import TypeVar

import msgspec

from perdure.domain.errors import NotFound
from perdure.domain.events import Event
from perdure.domain.items import Item
from perdure.domain.lifecycle import TERMINAL, Status, shown
from perdure.domain.limits import RESPONSES_PAGE_MAX_BYTES
from perdure.domain.principal import Principal
from perdure.domain.response import ResponseError, response_id, task_id
from perdure.engine.kept import input_of
from perdure.engine.record import MICROSECONDS, Recorder
from perdure.engine.service import Listed, Page, Step, Task
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

    def input_items(
        self, principal: Principal, ident: str, *, limit: int, after: str | None, ascending: bool
    ) -> Reading[Listed]:
        """A page of the items that a response answers. They never change, whatever becomes of the response."""

        async def find() -> Found[Listed]:
            record = await self.record(principal, ident)
            return Found(
                lambda: self._input_items(record, limit, after, ascending=ascending),
                f"{record.ident} {record.created_at}",
            )

        return Reading(find)

    def responses(self, principal: Principal, *, limit: int, after: str | None, ascending: bool) -> Reading[Listed]:
        """A page of the client's own stored responses."""

        async def render() -> Listed:
            records = await self._store.responses(
                principal.client_id, limit=limit + 1, after=after, ascending=ascending
            )
            return await self._responses(records, limit)

        async def find() -> Found[Listed]:
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
        if journal.next_seq > record.next_seq and await self._store.ended(record.ident):
            return await self._response(await self._whole(record))  # it has ended between the two reads
        return msgspec.json.encode(journal.response(shown(record.status)))

    async def _input_items(self, record: TaskRecord, limit: int, after: str | None, *, ascending: bool) -> Listed:
        received = await self._store.received(record.id)
        if not received:
            raise _not_found()
        items = input_of(received, record.ident)
        if not ascending:
            items.reverse()
        begin = 0 if after is None else 1 + _place(items, after)
        page = tuple((item["id"], msgspec.json.encode(item)) for item in items[begin : begin + limit])
        return Listed(page, len(items) > begin + limit)

    async def _responses(self, records: Sequence[TaskRecord], limit: int) -> Listed:
        """As many of the responses as make a page; one that is deleted meanwhile is left out."""
        page, size = list[tuple[str, bytes]](), 0
        for record in records[:limit]:
            with suppress(NotFound):
                response = await self._response(await self._whole(record))
                size += len(response)
                if page and size > RESPONSES_PAGE_MAX_BYTES:
                    return Listed(tuple(page), has_more=True)
                page.append((response_id(record.ident), response))
            await asyncio.sleep(0)  # others have their turn between two large reads
        return Listed(tuple(page), len(records) > limit)

    async def _whole(self, line: TaskRecord) -> TaskRecord:
        """A line of a list with its request, which is needed only where it has not ended."""
        record = line if line.status in TERMINAL else await self._store.task(line.ident)
        if record is None:
            raise _not_found()
        return record

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
        found = (await self._store.events(record.id, after, limit)).events
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


def _place(items: Sequence[Item], item_id: str) -> int:
    for place, item in enumerate(items):
        if item["id"] == item_id:
            return place
    raise NotFound("The response answers no item of this id.", param="after")


def _expired() -> NotFound:
    return NotFound(
        "This response was kept for as long as the retention time says, and is gone now.", code="response_expired"
    )


def _not_found() -> NotFound:
    return NotFound("There is nothing of this id that this token may see.")
