"""Tasks: what moves them and what is read of them, one at a time."""

from collections.abc import Callable, Collection
from functools import cache
from typing import Any

import apsw
import msgspec
from msgspec import UNSET

from perdure.domain.errors import QueueFull
from perdure.domain.lifecycle import TERMINAL, Status
from perdure.domain.recovery import OnRestart
from perdure.ports.storage import Attempt, Change, NewTask, StaleTask, TaskRecord
from perdure.storage.sqlite import events
from perdure.storage.sqlite.query import row, rows, value
from perdure.storage.sqlite.statements import load
from perdure.storage.sqlite.tokens import packed, unpacked

_sql = load("tasks")
_QUEUE_UP, _INSERT_TASK, _INSERT_RESPONSE = _sql["queue_up"], _sql["insert_task"], _sql["insert_response"]
_MOVE, _GROW, _NOTE_ATTEMPT = _sql["move_task"], _sql["grow_task"], _sql["note_attempt"]
_BY_IDENT, _GOES_ON, _UNFINISHED = _sql["task_by_ident"], _sql["goes_on"], _sql["unfinished"]
_NEXT_OWNED, _NEXT_QUEUED, _QUEUE_POSITION = _sql["next_owned"], _sql["next_queued"], _sql["queue_position"]
_RECEIVED, _PROMPT, _ATTEMPTS, _FINISHED = _sql["received"], _sql["prompt"], _sql["attempts"], _sql["finished"]
_LEAVE_NAME, _EXPIRED, _FORGET = _sql["leave_name"], _sql["expired"], _sql["forget"]
_PURGE = tuple(_sql[f"purge_{what}"] for what in ("bodies", "events", "attempts", "response", "task"))

_NULLABLE = ("boot", "fingerprint", "purge_at")
"""Columns that a step can set back to NULL; each has a flag in `move_task`."""
_COLUMNS = (
    "attempt", "crashes", "tokens_kept", "tokens_mark", "claimed_at", "finished_at", "exact", "error", "hidden",
    *_NULLABLE,
)  # fmt: skip
_AS_IT_IS = {**dict.fromkeys(_COLUMNS), **{f"set_{name}": False for name in _NULLABLE}}
_GROWTH = frozenset({"tokens_kept"})
_FIELDS = TaskRecord.__struct_fields__
_KINDS: dict[str, Callable[[Any], Any]] = {
    "status": Status,
    "on_restart": OnRestart,
    **dict.fromkeys(("background", "stored", "exact", "hidden"), bool),
}
"""Fields that SQLite keeps as text or number."""


# What moves a task.


def submit(connection: apsw.Connection, new: NewTask, queue_max: int) -> None:
    """Write a new task."""
    rows(connection, _QUEUE_UP, {"most": queue_max})
    if not connection.changes():
        raise QueueFull(f"{queue_max} tasks wait already; try again later.")
    rows(connection, _INSERT_TASK, _task_columns(new))
    task_id = connection.last_insert_rowid()
    rows(connection, _INSERT_RESPONSE, (task_id, new.request.decode(), new.received.decode(), packed(new.prompt)))
    events.append(connection, task_id, 0, new.events)


def apply(connection: apsw.Connection, change: Change) -> None:
    """Make one step."""
    given = {name: given for name in _COLUMNS if (given := getattr(change, name)) is not UNSET}
    _check_end(change, given)
    where = {"id": change.task_id, "from_seq": change.from_seq, "status": change.status, "events": len(change.events)}
    if change.from_status == frozenset({change.status}) and given.keys() <= _GROWTH:
        rows(connection, _GROW, {"tokens_kept": None, **given, **where})
    else:
        flags = {f"set_{name}": name in given for name in _NULLABLE}
        rows(connection, _MOVE, {**_AS_IT_IS, **given, **flags, **where, "from_status": _listed(change.from_status)})
    if not connection.changes():
        raise StaleTask(f"task {change.task_id} has moved on")
    events.append(connection, change.task_id, change.from_seq, change.events)
    if change.note is not UNSET:
        rows(connection, _NOTE_ATTEMPT, {"id": change.task_id, "at": change.at, "note": change.note})


def purge(connection: apsw.Connection, task_ids: Collection[int], remembered_until: int | None) -> None:
    """Remove finished tasks with everything that hangs on them."""
    names = [_purge_one(connection, task_id) for task_id in task_ids]
    if remembered_until is None:
        return
    for ident, client_id in filter(None, names):  # last, so that there is room for them, however full the file is
        name = {"ident": ident, "client_id": client_id, "remembered_until": remembered_until}
        rows(connection, _LEAVE_NAME, name)


def forget(connection: apsw.Connection, now: int, limit: int) -> int:
    """Remove names whose time is over."""
    rows(connection, _FORGET, {"now": now, "limit": limit})
    return connection.changes()


# What is read.


def by_ident(connection: apsw.Connection, ident: str) -> TaskRecord | None:
    """The task of that name."""
    found = row(connection, _BY_IDENT, {"ident": ident})
    return None if found is None else record(found)


def ended(connection: apsw.Connection, ident: str) -> bool:
    """Whether no event can come any more."""
    return value(connection, _GOES_ON, {"ident": ident}) is None


def expired(connection: apsw.Connection, ident: str) -> int | None:
    """The client of a task that its age has removed."""
    return value(connection, _EXPIRED, {"ident": ident})


def unfinished(connection: apsw.Connection, after_id: int, limit: int) -> list[TaskRecord]:
    """Tasks in no terminal state."""
    return [record(found) for found in rows(connection, _UNFINISHED, {"after_id": after_id, "limit": limit})]


def next_runnable(
    connection: apsw.Connection, boot: str, live: Collection[int], models: Collection[str]
) -> TaskRecord | None:
    """What a free slot should take."""
    lists = {"live": _as_json(live), "models": _as_json(models)}
    found = row(connection, _NEXT_OWNED, {"boot": boot, **lists}) or row(connection, _NEXT_QUEUED, lists)
    return None if found is None else record(found)


def queue_position(connection: apsw.Connection, task_id: int) -> int | None:
    """How many queued tasks come first."""
    return value(connection, _QUEUE_POSITION, {"id": task_id})


def received(connection: apsw.Connection, task_id: int) -> bytes:
    """The items that the response answers."""
    return (value(connection, _RECEIVED, {"id": task_id}) or "").encode()


def prompt(connection: apsw.Connection, task_id: int) -> tuple[int, ...]:
    """The token ids to read."""
    return unpacked(value(connection, _PROMPT, {"id": task_id}) or b"")


def attempts(connection: apsw.Connection, task_id: int) -> list[Attempt]:
    """The history."""
    found = rows(connection, _ATTEMPTS, {"id": task_id})
    return [Attempt(at, attempt, Status(status), note) for at, attempt, status, note in found]


def record(columns: tuple[Any, ...]) -> TaskRecord:
    """A row of the views `task_records` and `task_lines`, whose columns stand in the order of the fields."""
    fields = dict(zip(_FIELDS, columns, strict=True))
    for name, kind in _KINDS.items():
        fields[name] = kind(fields[name])
    return TaskRecord(**fields)


# How.


def _task_columns(new: NewTask) -> tuple[str | int, ...]:
    """In the order of `insert_task`."""
    return (
        new.ident,
        new.client_id,
        new.model,
        new.on_restart,
        new.background,
        new.stored,
        new.exact,
        len(new.events),
        len(new.prompt),
        new.tokens_max,
        new.created_at,
    )


def _purge_one(connection: apsw.Connection, task_id: int) -> tuple[str, int] | None:
    """Remove a task if it is finished; its name and its client."""
    found = row(connection, _FINISHED, {"id": task_id})
    if found is not None:
        for statement in _PURGE:
            rows(connection, statement, {"id": task_id})
    return found


def _check_end(change: Change, given: dict[str, Any]) -> None:
    ends = change.status in TERMINAL and not change.from_status <= TERMINAL
    if ends != ("finished_at" in given):
        raise AssertionError(f"a step to {change.status} {'needs' if ends else 'has no'} finished_at")


def _as_json(values: Collection[int] | Collection[str]) -> str:
    return msgspec.json.encode(list(values)).decode()


@cache
def _listed(statuses: frozenset[Status]) -> str:
    return msgspec.json.encode(sorted(statuses)).decode()
