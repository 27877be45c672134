"""A helper: leaves a long log behind, and opens databases."""

import asyncio
import time
from pathlib import Path

import apsw
import uvloop

from benchmarks.filled import copy, first, open_copier
from benchmarks.processes import heard, say
from perdure.storage.sqlite.store import SqliteStore

COMMIT_TASKS = 50


def leave(path: Path, log_bytes: int) -> int:
    """Add tasks until the log is so long. Nothing of it is moved, since a reader needs it all; whoever asked kills
    this process now. Returns how many tasks there are."""
    reader = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    reader.execute("BEGIN")
    reader.execute("SELECT count(*) FROM tasks").fetchall()
    connection, tasks = open_copier(path), 1
    log = Path(connection.filename_wal)
    while log.stat().st_size < log_bytes:
        copy(connection, tasks + 1, tasks + COMMIT_TASKS)
        tasks += COMMIT_TASKS
    _held.extend((reader, connection))
    return tasks


_held: list[apsw.Connection] = []
"""What must stay open until the end."""


async def opened(path: Path) -> dict[str, float]:
    """How long the store takes to open, and what the processor does for it."""
    began, cpu = time.perf_counter(), time.process_time()
    store = await SqliteStore.open(path)
    seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
    await store.close()
    return {"seconds": seconds, "cpu": cpu}


def main() -> None:
    """Answer questions until there are no more."""
    say({"ready": True})
    while question := heard():
        path = Path(question["path"])
        with asyncio.Runner(loop_factory=uvloop.Loop) as runner:
            if question["what"] == "leave":
                runner.run(first(path))
                say({"tasks": leave(path, question["bytes"])})
            else:
                say(runner.run(opened(path)))


if __name__ == "__main__":
    main()
