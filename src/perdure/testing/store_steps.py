# ruff: noqa: S101 -- these helpers state what must be so, as tests do
"""The steps of a task's life, for tests of stores and of what stands on them.

The builders make what is handed to a store; the coroutines hand it over and return the task as it then is.
"""

from collections.abc import Callable, Sequence

from msgspec import UNSET, UnsetType

from perdure.domain import events as ev
from perdure.domain.events import Event
from perdure.domain.lifecycle import UNFINISHED, Status
from perdure.domain.principal import ALL_SCOPES
from perdure.domain.recovery import OnRestart
from perdure.ports.storage import Change, NewTask, Store, TaskRecord

BOOT = "boot-1"
MODEL = "tiny"
TOKEN = b"\x01" * 32
QUEUE_MAX = 10_000
TOO_MANY = 1_000


def lifecycle(seq: int, kind: str, **response: object) -> Event:
    """A lifecycle event with some response object."""
    return ev.lifecycle(seq, (), kind, {"object": "response", **response})


def delta(seq: int, text: str, tokens: tuple[int, ...] = ()) -> Event:
    """New text."""
    return ev.plain(seq, tokens, ev.TEXT_DELTA, delta=text)


def new_task(ident: str, client_id: int, *, background: bool = True, prompt: tuple[int, ...] = (1, 2, 3)) -> NewTask:
    """A response to be accepted, with the events of a background one."""
    return NewTask(
        ident=ident,
        client_id=client_id,
        model=MODEL,
        on_restart=OnRestart.RESUME,
        background=background,
        stored=True,
        exact=True,
        created_at=1_000,
        request=b'{"model":"tiny"}',
        received=b'"Hello"',
        prompt=prompt,
        tokens_max=100,
        events=(lifecycle(0, ev.CREATED, id=ident), lifecycle(1, ev.QUEUED, id=ident)),
    )


def claim(task: TaskRecord, boot: str = BOOT) -> Change:
    """queued -> loading."""
    return Change(
        task_id=task.id,
        from_status=frozenset({Status.QUEUED}),
        from_seq=task.next_seq,
        status=Status.LOADING,
        at=2_000,
        events=(lifecycle(task.next_seq, ev.IN_PROGRESS),),
        boot=boot,
        attempt=task.attempt + 1,
        claimed_at=2_000,
        note="claimed",
    )


def start(task: TaskRecord) -> Change:
    """loading -> running, which writes no event."""
    return Change(task.id, frozenset({Status.LOADING}), task.next_seq, Status.RUNNING, 3_000)


def grow(task: TaskRecord, text: str = "word", tokens: tuple[int, ...] = (7,)) -> Change:
    """running -> running, with more text."""
    return Change(
        task_id=task.id,
        from_status=frozenset({Status.RUNNING}),
        from_seq=task.next_seq,
        status=Status.RUNNING,
        at=4_000,
        events=(delta(task.next_seq, text, tokens),),
        tokens_kept=task.tokens_kept + len(tokens),
    )


END_TYPES = {
    Status.COMPLETED: ev.COMPLETED,
    Status.INCOMPLETE: ev.INCOMPLETE,
    Status.FAILED: ev.FAILED,
    Status.CANCELLED: ev.CANCELLED,
}


def end(
    task: TaskRecord,
    status: Status = Status.COMPLETED,
    *,
    at: int = 5_000,
    purge_at: int | UnsetType = UNSET,
    hidden: bool | UnsetType = UNSET,
) -> Change:
    """Any unfinished state -> `status`, with its event."""
    return Change(
        task_id=task.id,
        from_status=UNFINISHED,
        from_seq=task.next_seq,
        status=status,
        at=at,
        events=(lifecycle(task.next_seq, END_TYPES[status], status=str(status)),),
        boot=None,
        finished_at=at,
        purge_at=purge_at,
        hidden=hidden,
    )


async def found(store: Store, ident: str) -> TaskRecord:
    """The task, which must be there."""
    task = await store.task(ident)
    assert task is not None, f"{ident} is gone"
    return task


async def add_client(store: Store, name: str = "owner", token: bytes = TOKEN) -> int:
    """A client that may do everything."""
    return await store.add_client(name, token, "prefix", ALL_SCOPES, 1)


async def submitted(store: Store, ident: str, client_id: int, *, background: bool = True) -> TaskRecord:
    """A queued task."""
    await store.submit(new_task(ident, client_id, background=background), QUEUE_MAX)
    return await found(store, ident)


async def moved(store: Store, task: TaskRecord, *steps: Callable[[TaskRecord], Change]) -> TaskRecord:
    """The task after some steps."""
    for step in steps:
        await store.apply(step(task))
        task = await found(store, task.ident)
    return task


async def running(store: Store, ident: str, client_id: int) -> TaskRecord:
    """A running task."""
    return await moved(store, await submitted(store, ident, client_id), claim, start)


async def finished(store: Store, ident: str, client_id: int, *, purge_at: int | None = None) -> TaskRecord:
    """A completed task with some text."""
    task = await moved(store, await running(store, ident, client_id), grow)
    await store.apply(end(task, purge_at=UNSET if purge_at is None else purge_at))
    return await found(store, ident)


async def all_events(store: Store, task: TaskRecord) -> Sequence[Event]:
    """The whole log, which must be gapless."""
    log, more = list[Event](), True
    while more:
        page = await store.events(task.id, len(log) - 1, TOO_MANY)
        log.extend(page.events)
        more = page.more
        assert page.events or not more, "who reads on by the last event would never come to the end"
    assert [event.seq for event in log] == list(range(task.next_seq))
    return log
