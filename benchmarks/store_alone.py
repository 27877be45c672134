"""A helper: the store without anything above it, and the disk without a store."""

import asyncio
import os
import sys
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import uvloop

from benchmarks.figures import percentiles
from benchmarks.processes import heard, say
from perdure.ambient.clock import SystemClock
from perdure.ambient.names import RandomNames
from perdure.api.create_body import CreateBody
from perdure.bootstrap import SWITCH_SECONDS
from perdure.domain.events import TEXT_DELTA, plain
from perdure.domain.journal import Journal
from perdure.domain.lifecycle import Status
from perdure.domain.principal import ALL_SCOPES
from perdure.domain.recovery import OnRestart
from perdure.ports.storage import Change, NewTask
from perdure.storage.sqlite import writer
from perdure.storage.sqlite.store import SqliteStore
from perdure.testing.scripted_runtime import card

COMMIT_BYTES = 24 * 1024
"""What a commit of one create forces to the disk: six pages."""

QUEUE_MAX = 1_000_000


def new_tasks(body: str, client_id: int, count: int) -> list[NewTask]:
    """What the service would hand to the store for so many requests of that body."""
    names, now = RandomNames(), SystemClock().now()
    asked = CreateBody(OnRestart.RESUME, OnRestart.FAIL, names.seed).read(msgspec.json.decode(body))
    request = asked.request.settled(card(asked.request.model))
    prompt = tuple(range(40))
    made: list[NewTask] = []
    for _ in range(count):
        ident = names.ident(now)
        journal = Journal(ident, now // 1_000_000, request, len(prompt), exact=True)
        made.append(
            NewTask(
                ident=ident,
                client_id=client_id,
                model=request.model,
                on_restart=request.on_restart,
                background=request.background,
                stored=request.store,
                exact=True,
                created_at=now,
                request=msgspec.json.encode(request),
                received=msgspec.json.encode(asked.items),
                prompt=prompt,
                tokens_max=100,
                events=tuple(journal.create()),
            )
        )
    return made


@contextmanager
def batches() -> Generator[list[int]]:
    """The sizes of the batches that are committed meanwhile, in order."""
    sizes, commit_all = list[int](), writer.commit_all

    def counted(connection: Any, operations: Sequence[Any]) -> Any:
        sizes.append(len(operations))
        return commit_all(connection, operations)

    writer.commit_all = counted
    try:
        yield sizes
    finally:
        writer.commit_all = commit_all


async def submits(store: SqliteStore, new: Sequence[NewTask], callers: int) -> dict[str, Any]:
    """Submit them all from so many callers: the time of all, the processor time, and how long each caller waited."""
    waiting, taken = iter(new), list[float]()

    async def caller() -> None:
        for task in waiting:
            began = time.perf_counter()
            await store.submit(task, QUEUE_MAX)
            taken.append(time.perf_counter() - began)

    began, cpu = time.perf_counter(), time.process_time()
    await asyncio.gather(*(caller() for _ in range(callers)))
    seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
    return {"seconds": seconds, "cpu": cpu, "total": len(taken), **percentiles(taken)}


async def _submits(path: Path, body: str, callers: int, total: int) -> dict[str, Any]:
    store = await SqliteStore.open(path)
    client_id = await store.add_client("bench", b"\x01" * 32, "bench", ALL_SCOPES, SystemClock().now())
    new = new_tasks(body, client_id, total)
    with batches() as sizes:
        found = await submits(store, new, callers)
    await store.close()
    return {**found, "sizes": sizes}


async def _commits(path: Path, count: int) -> list[float]:
    """How long each of `count` commits takes that adds one word to a running text, one after the other."""
    store = await SqliteStore.open(path)
    now = SystemClock().now()
    client_id = await store.add_client("bench", b"\x01" * 32, "bench", ALL_SCOPES, now)
    body = '{"model":"m","input":"hello","background":true}'
    [new] = new_tasks(body, client_id, 1)
    await store.submit(new, QUEUE_MAX)
    found = await store.task(new.ident)
    assert found is not None
    task_id, seq = found.id, found.next_seq
    queued, running = frozenset({Status.QUEUED}), frozenset({Status.RUNNING})
    await store.apply(Change(task_id, queued, seq, Status.RUNNING, now, boot="b"))
    taken: list[float] = []
    for number in range(seq, seq + count):
        event = plain(number, (7,), TEXT_DELTA, delta=" word")
        began = time.perf_counter()
        await store.apply(Change(task_id, running, number, Status.RUNNING, now, events=(event,)))
        taken.append(time.perf_counter() - began)
    await store.close()
    return taken


def forced_writes(path: Path, count: int, size: int = COMMIT_BYTES) -> float:
    """Seconds for `count` writes of a commit's size, each forced to the disk: what no store on it can beat alone."""
    block = os.urandom(size)
    file = os.open(path, os.O_RDWR | os.O_CREAT)
    try:
        for number in range(8):  # room first: a file that grows forces its length to the disk as well
            os.pwrite(file, block, number * size)
        os.fsync(file)
        began = time.perf_counter()
        for number in range(count):
            os.pwrite(file, block, number % 8 * size)
            os.fdatasync(file)
        return time.perf_counter() - began
    finally:
        os.close(file)
        path.unlink()


def main() -> None:
    """Answer questions until there are no more."""
    sys.setswitchinterval(SWITCH_SECONDS)  # as the service has it
    say({"ready": True})
    while question := heard():
        path = Path(question["path"])
        if question["what"] == "disk":
            say({"seconds": forced_writes(path, question["total"], question.get("bytes", COMMIT_BYTES))})
            continue
        with asyncio.Runner(loop_factory=uvloop.Loop) as runner:
            if question["what"] == "commits":
                say(runner.run(_commits(path, question["total"])))
            else:
                say(runner.run(_submits(path, question["body"], question["callers"], question["total"])))


if __name__ == "__main__":
    main()
