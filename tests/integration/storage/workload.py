"""Callers who see tasks through their lives, and note each promise of the store: for tests that cut them off.

Every text can be told from the name and the number of its event, so that a check needs no record of it.
"""

import asyncio
import itertools
import random
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from perdure.domain import events as ev
from perdure.domain.lifecycle import TERMINAL, Status
from perdure.ports.storage import Change, Store, TaskRecord
from perdure.testing.store_steps import (
    END_TYPES,
    QUEUE_MAX,
    TOO_MANY,
    all_events,
    claim,
    delta,
    end,
    found,
    grow,
    new_task,
    start,
)

PAGE = 3
"""So many finished tasks are purged at once."""
SOON, LATE = 1, 1_000
"""Until when names are remembered; `SOON` is over."""
Step = Callable[[TaskRecord], Change]


@dataclass(frozen=True)
class Promise:
    """What a caller knows of a task: it has at least so many `events`. With `going` somebody has asked for its purge,
    with `gone` that was answered. `named` says whether a purge leaves its name; with None it may be forgotten."""

    ident: str
    events: int
    going: bool = False
    gone: bool = False
    named: bool | None = False


Tell = Callable[[Promise], None]


def words(ident: str, seq: int) -> str:
    """The text of an event; some are so long that they are kept apart from their event."""
    return f"{ident}/{seq} " * (1 + zlib.crc32(f"{ident}/{seq}".encode()) % 200)


def append(task: TaskRecord) -> Change:
    """running -> running, with more text."""
    return grow(task, words(task.ident, task.next_seq))


def ask_for_end(task: TaskRecord) -> Change:
    """running -> cancelling."""
    return Change(
        task.id, frozenset({Status.RUNNING}), task.next_seq, Status.CANCELLING, 4_000, note="cancel requested"
    )


def ends(status: Status) -> Step:
    """The last step."""
    return lambda task: end(task, status)


LIVES: tuple[tuple[Step, ...], ...] = (
    (claim, start, append, append, append, ends(Status.COMPLETED)),
    (claim, start, append, append, ends(Status.INCOMPLETE)),
    (claim, start, append, ends(Status.FAILED)),
    (claim, start, append, ask_for_end, ends(Status.CANCELLED)),
    (ends(Status.CANCELLED),),
)


class Caller:
    """Makes tasks one after the other, and lets some of them go: alone, as a delete does, or by the page, as
    retention does. The caller number 0 leaves names that can be forgotten at once, and has them forgotten; so may the
    caller number 0 of the next life, who forgets whatever can be."""

    def __init__(self, store: Store, client: int, number: int, tell: Tell, name: str = "") -> None:
        self._store, self._client, self._tell = store, client, tell
        self._number, self._name = number, name or f"t{number}"
        self._chance = random.Random(self._name)
        self._finished: list[tuple[TaskRecord, Promise]] = []
        self._named: list[Promise] = []

    async def work(self, tasks: int | None = None) -> None:
        """Make so many, or go on for ever."""
        for number in itertools.count() if tasks is None else range(tasks):
            await self._live(f"{self._name}-{number}", self._chance.choice(LIVES))
            fate = self._chance.random()
            if fate < 0.2:
                await self._purge([self._finished.pop()], None)
            elif len(self._finished) >= PAGE and fate < 0.7:
                page, self._finished = self._finished, []
                await self._purge(page, LATE if self._number else SOON)
                if not self._number:
                    await self._forget()

    async def _live(self, ident: str, life: Sequence[Step]) -> None:
        await self._store.submit(new_task(ident, self._client), QUEUE_MAX)
        self._tell(Promise(ident, 2))
        task = await found(self._store, ident)
        for step in life:
            await self._store.apply(step(task))
            task = await found(self._store, ident)
            self._tell(Promise(ident, task.next_seq))
        self._finished.append((task, Promise(ident, task.next_seq)))

    async def _purge(self, page: Sequence[tuple[TaskRecord, Promise]], remembered_until: int | None) -> None:
        named = None if remembered_until == SOON else remembered_until is not None
        for _, promise in page:
            self._tell(replace(promise, going=True, named=named))
        await self._store.purge([task.id for task, _ in page], remembered_until)
        gone = [replace(promise, going=True, gone=True, named=named) for _, promise in page]
        for promise in gone:
            self._tell(promise)
        self._named += gone if remembered_until == SOON else []

    async def _forget(self) -> None:
        while await self._store.forget(SOON, PAGE - 1):
            pass
        for promise in self._named:
            self._tell(replace(promise, named=False))
        self._named = []


async def broken(store: Store, client: int, promises: Iterable[Promise]) -> list[str]:
    """Each promise that is not kept, and everything that is torn."""
    found_broken: list[str] = []
    for promise in promises:
        found_broken += [f"{promise}: {what}" for what in await _unkept(store, client, promise)]
    listed = await store.tasks(client, status=None, limit=TOO_MANY * 10, after=None, ascending=True)
    for task in listed:
        found_broken += [f"{task.ident} ({task.status}): {what}" for what in await _torn(store, task)]
    unfinished = [task.ident for task in listed if task.status not in TERMINAL]
    if [task.ident for task in await store.unfinished(0, TOO_MANY * 10)] != unfinished:
        found_broken.append("a start would not find what is unfinished")
    return found_broken


async def _unkept(store: Store, client: int, promise: Promise) -> list[str]:
    task, name = await store.task(promise.ident), await store.expired(promise.ident)
    if task is not None:
        told = ["is back"] if promise.gone else ["left its name and is there"] if name is not None else []
        return told + (["has lost events"] if task.next_seq < promise.events else [])
    if not promise.going:
        return ["is lost"]
    if promise.named is not None and name != (client if promise.named else None):
        return [f"has left the name of {name}"]
    return []


async def _torn(store: Store, task: TaskRecord) -> Iterator[str]:
    log = await all_events(store, task)
    texts = [event for event in log if event.type == ev.TEXT_DELTA]
    wrong = [each.seq for each in texts if each.data != delta(each.seq, words(task.ident, each.seq)).data]
    last = log[-1].type
    ended = END_TYPES.get(task.status)
    return iter(
        [f"the events {wrong} have another text"] * bool(wrong)
        + [f"its last event is {last}"] * (last != ended if ended else last in END_TYPES.values())
        + [f"{len(texts)} texts and {task.tokens_kept} tokens"] * (len(texts) != task.tokens_kept)
    )


async def all_work(store: Store, client: int, tell: Tell, callers: int, tasks: int | None, name: str) -> None:
    """Several callers at once."""
    await asyncio.gather(
        *(Caller(store, client, number, tell, f"{name}{number}").work(tasks) for number in range(callers))
    )
