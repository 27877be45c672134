"""The process is killed at some moment: whatever it had acknowledged is there, and nothing is torn.

This file is also the program that is killed: started with a path, it writes for ever and prints a line for each
acknowledgement.
"""

import asyncio
import random
import subprocess
import sys
from pathlib import Path

import apsw
import pytest

from perdure.ports.storage import Store
from perdure.storage.sqlite.store import SqliteStore
from perdure.testing.store_steps import (
    QUEUE_MAX,
    add_client,
    all_events,
    claim,
    end,
    found,
    grow,
    moved,
    new_task,
    start,
)

KILLS = 10
CALLERS = 8
LINES_MAX = 250


@pytest.mark.proves("P3", "P4")
def test_nothing_acknowledged_is_lost_by_a_kill(tmp_path: Path) -> None:
    """Ten kills of one and the same database, each after some number of acknowledgements."""
    chance = random.Random(3)
    path = tmp_path / "perdure.db"
    told: dict[str, int] = {}
    for kill in range(KILLS):
        told |= _kill_after(chance.randrange(1, LINES_MAX), path, kill)
        asyncio.run(_check(path, told))
        assert [each.name for each in tmp_path.iterdir()] == ["perdure.db"]
    assert len(told) > KILLS


def _kill_after(lines: int, path: Path, run: int) -> dict[str, int]:
    """What was acknowledged: the number of events by task."""
    writer = subprocess.Popen([sys.executable, __file__, str(path), str(run)], stdout=subprocess.PIPE, text=True)
    assert writer.stdout is not None
    with writer, writer.stdout as output:
        read = [output.readline() for _ in range(lines)]
        writer.kill()
        read += output.readlines()
    if read and not read[-1].endswith("\n"):
        read.pop()
    return {ident: int(events) for ident, events in (line.split() for line in read)}


async def _check(path: Path, told: dict[str, int]) -> None:
    store = await SqliteStore.open(path)
    for ident, events in told.items():
        task = await found(store, ident)
        assert task.next_seq >= events
        await all_events(store, task)
    for task in await store.unfinished(0, 10_000):
        await all_events(store, task)
    await store.close()
    connection = apsw.Connection(str(path))
    assert connection.pragma("integrity_check") == "ok"
    connection.close()


async def _write_for_ever(path: Path, run: str) -> None:
    store = await SqliteStore.open(path)
    client = await add_client(store)
    await asyncio.gather(*(_work(store, client, f"{run}-{caller}") for caller in range(CALLERS)))


async def _work(store: Store, client: int, caller: str) -> None:
    number = 0
    while True:
        number += 1
        ident = f"t{caller}-{number}"
        await store.submit(new_task(ident, client), QUEUE_MAX)
        _tell(ident, 2)
        task = await found(store, ident)
        for step in (claim, start, grow, grow, end):
            task = await moved(store, task, step)
            _tell(ident, task.next_seq)


def _tell(ident: str, events: int) -> None:
    sys.stdout.write(f"{ident} {events}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(_write_for_ever(Path(sys.argv[1]), sys.argv[2]))
