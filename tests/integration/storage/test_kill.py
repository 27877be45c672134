"""The process is killed at some moment: whatever it had acknowledged is there, and nothing is torn.

This file is also the program that is killed. It reads a path and a name a line, forks a child for each that writes
for ever, prints the child's number, and then what the child was promised.
"""

import asyncio
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Generator
from pathlib import Path
from typing import IO

import pytest
from tests.integration.storage.workload import Promise, all_work, broken
from tests.soundness import damage

from perdure.storage.sqlite.store import SqliteStore
from perdure.testing.store_steps import add_client

ROOT = Path(__file__).parents[3]
KILLS, KILLS_OF_A_DATABASE = 30, 10
CALLERS = 8
LINES_MAX = 250
PAUSE_MAX_SECONDS = 0.01
CLIENT = 1
OVER = "over"


class Program:
    """The writer's parent, whose imports are made once."""

    def __init__(self) -> None:
        command = [sys.executable, "-m", "tests.integration.storage.test_kill"]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT)

    def killed_after(self, lines: int, pause: float, path: Path, name: str) -> dict[str, Promise]:
        """Let it write, kill it some time after so many promises, and return the last one for each task."""
        ask, told = self._pipes()
        ask.write(json.dumps([str(path), name]) + "\n")
        ask.flush()
        pid = int(told.readline())
        read = [told.readline() for _ in range(lines)]
        time.sleep(pause)  # no wait for anything: the moment is drawn by chance
        os.kill(pid, signal.SIGKILL)
        while not (line := told.readline()).endswith(f"{OVER}\n"):
            read.append(line)
        promises = [Promise(*json.loads(line)) for line in read]
        return {promise.ident: promise for promise in promises}

    def close(self) -> None:
        """End it."""
        ask, told = self._pipes()
        ask.close()
        assert self._process.wait(timeout=60) == 0
        told.close()

    def _pipes(self) -> tuple[IO[str], IO[str]]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        return self._process.stdin, self._process.stdout


@pytest.fixture
def program() -> Generator[Program]:
    """Started, and ended."""
    program = Program()
    yield program
    program.close()


@pytest.mark.proves("P3", "P4")
def test_nothing_acknowledged_is_lost_by_a_kill(
    tmp_path: Path, program: Program, pytestconfig: pytest.Config
) -> None:
    """Each database is killed ten times, and written on each time; 200 kills and more in `make soak STORE=10`."""
    kills = KILLS * int(pytestconfig.getoption("--store-soak") or 1)
    chance = random.Random(3 + int(pytestconfig.getoption("--store-seed") or 0))
    told: dict[str, Promise] = {}
    gone = 0
    for kill in range(kills):
        path = tmp_path / f"database-{kill // KILLS_OF_A_DATABASE}" / "perdure.db"
        if kill % KILLS_OF_A_DATABASE == 0:
            path.parent.mkdir()
            told = {}
        pause = chance.uniform(0, PAUSE_MAX_SECONDS)
        told |= program.killed_after(chance.randrange(1, LINES_MAX), pause, path, f"{kill}-")
        assert asyncio.run(_looked_at(path, told)) == []
        assert damage(path) == []
        assert [each.name for each in path.parent.iterdir()] == ["perdure.db"]
        gone += sum(promise.gone for promise in told.values())
    assert gone > kills


async def _looked_at(path: Path, told: dict[str, Promise]) -> list[str]:
    store = await SqliteStore.open(path)
    found = await broken(store, CLIENT, told.values())
    await store.close()
    return found


async def _write_for_ever(path: Path, name: str) -> None:
    store = await SqliteStore.open(path)
    await add_client(store)
    await all_work(store, CLIENT, _tell, CALLERS, None, name)


def _tell(promise: Promise) -> None:
    line = json.dumps([promise.ident, promise.events, promise.going, promise.gone, promise.named])
    os.write(sys.stdout.fileno(), f"{line}\n".encode())


def _serve() -> None:
    for line in sys.stdin:
        child = os.fork()
        if not child:
            os.write(sys.stdout.fileno(), f"{os.getpid()}\n".encode())
            path, name = json.loads(line)
            asyncio.run(_write_for_ever(Path(path), name))
        os.waitpid(child, 0)
        os.write(sys.stdout.fileno(), f"{OVER}\n".encode())


if __name__ == "__main__":
    _serve()
