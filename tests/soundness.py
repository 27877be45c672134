"""What must be true of a database at any moment, also at the one at which its process was killed.

The rows are read as they lie there, before any program has had a chance to mend them.
"""

from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import apsw
import msgspec

from perdure.domain import events as ev
from perdure.domain.events import TERMINAL_TYPES, Event
from perdure.domain.journal import Journal
from perdure.domain.lifecycle import OWNED, TERMINAL, Status
from perdure.domain.request import CreateRequest
from perdure.ports.storage import Attempt, TaskRecord
from perdure.storage.sqlite import events, tasks
from perdure.testing.store_steps import END_TYPES

EVERYTHING = 1_000_000


def unsound(path: Path) -> list[str]:
    """Everything that is wrong with a database that nobody has open, each with the task that it is wrong with."""
    with _opened(path) as connection:
        found = list(_file(connection))
        for ident in _idents(connection):
            task = tasks.by_ident(connection, ident)
            if task is None:
                found.append(f"{ident} has no request")
                continue
            history = tasks.attempts(connection, task.id)
            found += [f"{ident} ({task.status}) {what}" for what in _task(task, _log(connection, task.id), history)]
        return found


def damage(path: Path) -> list[str]:
    """What is wrong with the file itself and with what its rows count and point to."""
    with _opened(path) as connection:
        return list(_file(connection))


def idents(path: Path) -> list[str]:
    """The names of all tasks, hidden or not, in the order of their submit."""
    with _opened(path) as connection:
        return _idents(connection)


@contextmanager
def _opened(path: Path) -> Generator[apsw.Connection]:
    connection = apsw.Connection(str(path))
    try:
        yield connection
    finally:
        connection.close()


def _idents(connection: apsw.Connection) -> list[str]:
    return [str(ident) for (ident,) in connection.execute("SELECT ident FROM tasks ORDER BY id").fetchall()]


def _log(connection: apsw.Connection, task_id: int) -> list[Event]:
    log, more = list[Event](), True
    while more:
        page = events.page(connection, task_id, log[-1].seq if log else -1, EVERYTHING)
        log += page.events
        more = page.more
    return log


def _file(connection: apsw.Connection) -> Iterator[str]:
    if (answer := connection.pragma("integrity_check")) != "ok":
        yield f"the file is damaged: {answer}"
    if (answer := connection.pragma("foreign_key_check")) is not None:
        yield f"something points to nothing: {answer}"
    counts = "SELECT tasks_queued, (SELECT count(*) FROM tasks WHERE status = 'queued') FROM service_config"
    for counted, queued in connection.execute(counts):
        if counted != queued:
            yield f"{queued} tasks are queued and {counted} were counted"


def _task(task: TaskRecord, log: Sequence[Event], history: Sequence[Attempt]) -> Iterator[str]:
    types = [event.type for event in log]
    if [event.seq for event in log] != list(range(task.next_seq)):
        yield f"has the events {[event.seq for event in log]} where {task.next_seq} were numbered"
        return
    ends = [kind for kind in types if kind in TERMINAL_TYPES]
    if task.status in TERMINAL and (ends != types[-1:] or ends != [END_TYPES[task.status]]):
        yield f"has the ends {ends}, and its last event is {types[-1]}"
    if task.status not in TERMINAL and ends:
        yield f"has the end {ends}"
    if (task.error is not None) != (task.status is Status.FAILED):
        yield f"has the error {task.error}"
    claims = [line for line in history if line.note == "claimed"]
    if len(claims) != types.count(ev.IN_PROGRESS):
        yield f"was claimed {len(claims)} times, and told {types.count(ev.IN_PROGRESS)} times"
    if task.status in OWNED and _last(types, ev.RETRIED) >= _last(types, ev.IN_PROGRESS):
        yield "is worked on, and no event says so"
    if history[-1].status is not task.status:
        yield f"has a history that ends with {history[-1].status}"
    if (kept := len(_fold(task, log).tokens)) != task.tokens_kept:
        yield f"has {kept} tokens in its events and {task.tokens_kept} in its row"


def _fold(task: TaskRecord, log: Sequence[Event]) -> Journal:
    request = msgspec.json.decode(task.request, type=CreateRequest)
    return Journal(task.ident, 0, request, task.prompt_tokens).replay(log)


def _last(types: Sequence[str], kind: str) -> int:
    """The place of the last event of a kind, -1 where there is none."""
    return max((place for place, each in enumerate(types) if each == kind), default=-1)
