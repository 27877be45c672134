"""The journal's rows."""

from collections.abc import Sequence
from contextlib import closing

import apsw

from perdure.domain.events import Event
from perdure.domain.limits import EVENTS_PAGE_MAX_BYTES
from perdure.ports.storage import EventsPage
from perdure.storage.sqlite.query import rows, value
from perdure.storage.sqlite.statements import load
from perdure.storage.sqlite.tokens import packed, unpacked

ROW_MAX_BYTES = 800
"""JSON above this stands apart. A cell of more than about 1,000 bytes would leave the page of its neighbours."""

_sql = load("events")
_INSERT_EVENT, _INSERT_BODY = _sql["insert_event"], _sql["insert_body"]
_EVENTS_AFTER, _LAST_SNAPSHOT = _sql["events_after"], _sql["last_snapshot"]


def append(connection: apsw.Connection, task_id: int, first: int, events: Sequence[Event]) -> None:
    """Write events, numbered on from `first`."""
    for number, event in enumerate(events, first):
        if event.seq != number:
            raise AssertionError(f"event {event.seq} of task {task_id} stands where {number} belongs")
        _append_one(connection, task_id, event)


def page(connection: apsw.Connection, task_id: int, after: int, limit: int) -> EventsPage:
    """Events with numbers above `after`."""
    found, size = list[Event](), 0
    # What is asked for beyond the page only tells whether there is more.
    bindings = {"task_id": task_id, "after": after, "limit": limit + 1}
    with closing(connection.execute(_EVENTS_AFTER, bindings)) as cursor:
        for seq, kind, data, snapshot, tokens in cursor:
            size += len(data) + len(snapshot or b"")
            if len(found) == limit or (found and size > EVENTS_PAGE_MAX_BYTES):
                return EventsPage(tuple(found), more=True)
            found.append(Event(seq, kind, data, snapshot, unpacked(tokens) if tokens else ()))
    return EventsPage(tuple(found), more=False)


def snapshot(connection: apsw.Connection, task_id: int) -> bytes | None:
    """The response object of the last lifecycle event."""
    return value(connection, _LAST_SNAPSHOT, {"task_id": task_id})


def _append_one(connection: apsw.Connection, task_id: int, event: Event) -> None:
    tokens = packed(event.tokens) if event.tokens else None
    data = event.data.decode()
    apart = event.snapshot is not None or len(event.data) > ROW_MAX_BYTES
    rows(connection, _INSERT_EVENT, (task_id, event.seq, event.type, None if apart else data, tokens))
    if apart:
        snapshot = None if event.snapshot is None else event.snapshot.decode()
        rows(connection, _INSERT_BODY, (task_id, event.seq, data, snapshot))
