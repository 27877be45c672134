"""Pages of tasks."""

import apsw

from perdure.domain.errors import NotFound
from perdure.domain.lifecycle import Status
from perdure.ports.storage import TaskRecord
from perdure.storage.sqlite.query import Value, rows, value
from perdure.storage.sqlite.statements import load
from perdure.storage.sqlite.tasks import record

_sql = load("lists")
_PLACE_OF, _PURGEABLE, _OUTLIVED = _sql["place_of"], _sql["purgeable"], _sql["outlived"]
_NEXT_PURGE_AT = _sql["next_purge_at"]
_PAGE = {
    (False, False): _sql["newest"],
    (True, False): _sql["oldest"],
    (False, True): _sql["newest_by_status"],
    (True, True): _sql["oldest_by_status"],
}
"""By (ascending, with a status)."""
_STORED = {False: _sql["newest_stored"], True: _sql["oldest_stored"]}
_BEFORE_ALL, _AFTER_ALL = 0, 2**63 - 1


def page(
    connection: apsw.Connection, client_id: int, status: Status | None, limit: int, after: str | None, ascending: bool
) -> list[TaskRecord]:
    """A page of a client's own tasks."""
    asked = _asked(connection, client_id, limit, after, ascending)
    if status is not None:
        asked["status"] = status
    return [record(found) for found in rows(connection, _PAGE[ascending, status is not None], asked)]


def stored(
    connection: apsw.Connection, client_id: int, limit: int, after: str | None, ascending: bool
) -> list[TaskRecord]:
    """A page of a client's own stored responses."""
    asked = _asked(connection, client_id, limit, after, ascending)
    return [record(found) for found in rows(connection, _STORED[ascending], asked)]


def purgeable(connection: apsw.Connection, now: int, limit: int) -> list[TaskRecord]:
    """Finished tasks whose time has come."""
    return [record(found) for found in rows(connection, _PURGEABLE, {"now": now, "limit": limit})]


def outlived(connection: apsw.Connection, finished_before: int, limit: int) -> list[TaskRecord]:
    """Finished tasks that only their age removes."""
    asked = {"finished_before": finished_before, "limit": limit}
    return [record(found) for found in rows(connection, _OUTLIVED, asked)]


def next_purge_at(connection: apsw.Connection) -> int | None:
    """When the next one's time comes."""
    return value(connection, _NEXT_PURGE_AT)


def _asked(
    connection: apsw.Connection, client_id: int, limit: int, after: str | None, ascending: bool
) -> dict[str, Value]:
    """Where a page begins, whose it is, and how long it may be."""
    place = _BEFORE_ALL if ascending else _AFTER_ALL
    if after is not None:
        place = _place_of(connection, client_id, after)
    return {"client_id": client_id, "place": place, "limit": limit}


def _place_of(connection: apsw.Connection, client_id: int, ident: str) -> int:
    place = value(connection, _PLACE_OF, {"ident": ident, "client_id": client_id})
    if place is None:
        raise NotFound(f"No task of yours is named {ident}.", param="after")
    return place
