"""A helper: single operations on databases of different size, all of them open in one process."""

import asyncio
import random
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path

import uvloop

from benchmarks.figures import percentiles
from benchmarks.filled import BODY, MODEL, fill
from benchmarks.kept import kept
from benchmarks.processes import heard, say
from benchmarks.store_alone import QUEUE_MAX, new_tasks
from perdure.ambient.clock import SystemClock
from perdure.bootstrap import SWITCH_SECONDS
from perdure.domain.events import Event
from perdure.domain.lifecycle import Cause, Status, step
from perdure.domain.parts import Text
from perdure.engine.record import Recorder
from perdure.engine.wakeups import Wakeups
from perdure.ports.storage import TaskRecord
from perdure.storage.sqlite.store import SqliteStore

PAGE = 100
CLIENT = 1
BOOT = "bench"

Operation = Callable[[], Awaitable[object]]


class Sized:
    """A store, and what can be asked of it.

    Each of `what` gives one operation after the other. What it does between two of them is not measured.
    """

    def __init__(self, store: SqliteStore, path: Path, tasks: int) -> None:
        self._store = store
        self._path = path
        self._tasks = tasks
        self._recorder = Recorder(store, SystemClock(), Wakeups())
        self._random = random.Random(tasks)  # noqa: S311 -- places to look at need no cryptography
        self.what: dict[str, Callable[[int], AsyncIterator[Operation]]] = {
            "submit": self._submits,
            "append": self._appends,
            "claim": self._claims,
            "newest": self._newest,
            "middle": self._middle,
            "events": self._events,
            "version": self._versions,
        }

    async def measure(self, what: str, count: int) -> dict[str, float]:
        """Make so many operations, one after the other."""
        taken, cpu = list[float](), 0.0
        async for operation in self.what[what](count):
            began, used = time.perf_counter(), time.process_time()
            await operation()
            cpu += time.process_time() - used
            taken.append(time.perf_counter() - began)
        assert len(taken) == count
        return {"cpu": cpu / count, **percentiles(taken)}

    async def _submits(self, count: int) -> AsyncIterator[Operation]:
        for new in new_tasks(BODY, CLIENT, count):
            yield partial(self._store.submit, new, QUEUE_MAX)

    async def _appends(self, count: int) -> AsyncIterator[Operation]:
        await self._queue(1)
        record = await self._take()
        record = await self._recorder.move(record, step(record.status, Cause.LOADED))
        journal = await self._recorder.journal(record)
        moved: list[TaskRecord] = []
        for tokens in range(count + 1):
            events = journal.write([Text(" word")], [7])
            append = partial(self._move, record, events, tokens + 1, moved)
            if tokens:
                yield append
            else:  # the first word opens the item as well
                await append()
            record = moved.pop()
        await self._end(record)

    async def _move(self, record: TaskRecord, events: Sequence[Event], tokens: int, moved: list[TaskRecord]) -> None:
        moved.append(await self._recorder.move(record, record.status, events, tokens_kept=tokens))

    async def _claims(self, count: int) -> AsyncIterator[Operation]:
        """The first of the queue is found and taken, as a free slot does it. It ends before the next is taken."""
        await self._queue(count)
        for _ in range(count):
            taken: list[TaskRecord] = []
            yield partial(self._take, taken)
            await self._end(taken[0])

    async def _newest(self, count: int) -> AsyncIterator[Operation]:
        for _ in range(count):
            yield partial(self._page, None)

    async def _middle(self, count: int) -> AsyncIterator[Operation]:
        places = self._random.choices(range(2 * PAGE, self._tasks), k=count)
        sql = f"SELECT ident FROM tasks WHERE id IN ({', '.join(map(str, places))})"  # noqa: S608 -- numbers
        idents = [ident for (ident,) in kept(self._path, sql)]
        for ident in self._random.choices(idents, k=count):
            yield partial(self._page, ident)

    async def _page(self, after: str | None) -> None:
        found = await self._store.tasks(CLIENT, status=None, limit=PAGE, after=after, ascending=False)
        assert len(found) == PAGE

    async def _events(self, count: int) -> AsyncIterator[Operation]:
        for _ in range(count):
            yield partial(self._store.events, self._random.randrange(1, self._tasks), -1, PAGE)

    async def _versions(self, count: int) -> AsyncIterator[Operation]:
        for _ in range(count):
            yield self._store.version

    # How the writes are prepared.

    async def _queue(self, count: int) -> None:
        """Empty the queue, then put so many tasks into it."""
        while record := await self._store.next_runnable(BOOT, (), (MODEL,)):
            await self._end(record)
        await asyncio.gather(*(self._store.submit(new, QUEUE_MAX) for new in new_tasks(BODY, CLIENT, count)))

    async def _take(self, taken: list[TaskRecord] | None = None) -> TaskRecord:
        record = await self._store.next_runnable(BOOT, (), (MODEL,))
        assert record is not None
        assert record.status is Status.QUEUED
        journal = await self._recorder.journal(record)
        claimed = {"boot": BOOT, "attempt": 1, "claimed_at": self._recorder.now(), "note": "claimed"}
        record = await self._recorder.move(record, step(record.status, Cause.CLAIM), journal.claim(), **claimed)
        if taken is not None:
            taken.append(record)
        return record

    async def _end(self, record: TaskRecord) -> None:
        await self._recorder.close_cancelled(record, await self._recorder.journal(record))


async def _answer() -> None:
    stores: dict[str, Sized] = {}
    while question := heard():
        path = question["path"]
        if question["what"] == "open":
            events = await fill(Path(path), question["tasks"])
            stores[path] = Sized(await SqliteStore.open(Path(path)), Path(path), question["tasks"])
            say({"events": events})
        else:
            say(await stores[path].measure(question["what"], question["count"]))


def main() -> None:
    """Answer questions until there are no more."""
    sys.setswitchinterval(SWITCH_SECONDS)  # as the service has it
    say({"ready": True})
    with asyncio.Runner(loop_factory=uvloop.Loop) as runner:
        runner.run(_answer())


if __name__ == "__main__":
    main()
