"""The program whose children are killed.

    python -m tests.integration.failpoints.zygote

A line on its standard input is a job: a scenario, the folder to play it in, and the place where to die, or null. For
each it forks a child that plays, and when the child is gone it prints the child's wait status. Everything is imported
once, so that a life costs some hundredths of a second.
"""

import asyncio
import gc
import json
import os
import signal
import sys
import traceback
from pathlib import Path
from typing import Any

from perdure.engine.wakeups import wait_for
from perdure.storage.sqlite import connection
from perdure.storage.sqlite.connection import Pragma
from perdure.storage.sqlite.store import SqliteStore
from perdure.testing.failpoints import Failpoints
from tests.integration.failpoints.scenarios import RETENTION_SECONDS, SCENARIOS, Told
from tests.unit.engine.stage import BriskLoop, StageStore, opened

STEPS = "steps"
TROUBLE = "trouble"
LIFE_MAX_SECONDS = 60
ENGINE = ("engine", "submit", "record", "run", "cancel", "recover", "remove", "retain", "dispatch")
STORE = ("writer", "store", "tasks", "events", "lists", "log", "upkeep")
MINUTE_SECONDS = 0.2  # of the loop's time
EVENTS = ("domain/journal.py", "domain/drafts.py")
MODULES = (*(f"engine/{name}.py" for name in ENGINE), *(f"storage/sqlite/{name}.py" for name in STORE), *EVENTS)


class BusyStore(StageStore):
    """A store whose minutes are short."""

    @classmethod
    async def open(cls, path: Path, **how: Any) -> SqliteStore:
        """Begin its upkeep at once."""
        return await super().open(path, pause=_soon, **how)


async def _soon(hint: asyncio.Event, _seconds: float) -> bool:
    return await wait_for(hint, MINUTE_SECONDS)


def without_waiting(pragmas: tuple[Pragma, ...]) -> tuple[Pragma, ...]:
    """Settings with which the disk is not waited for: a kill takes nothing that the system was given."""
    return tuple(("synchronous", "off", 0) if each[0] == "synchronous" else each for each in pragmas)


async def _play(name: str, folder: Path, points: Failpoints) -> None:
    """Play, and vanish without closing anything."""
    async with opened(folder, retention_seconds=RETENTION_SECONDS, kind=BusyStore) as stage:
        SCENARIOS[name].prepare(stage)
        await SCENARIOS[name].play(stage, Told(folder))
        sys.settrace(None)
        (folder / STEPS).write_text(json.dumps(points.hits))
        os._exit(0)


def _live(scenario: str, folder: str, kill_at: str | None, nth: int) -> None:
    signal.alarm(LIFE_MAX_SECONDS)
    try:
        points = Failpoints(MODULES, kill_at, nth)
        with asyncio.Runner(loop_factory=BriskLoop) as runner:
            points.install()
            runner.run(_play(scenario, Path(folder), points))
    except BaseException:  # noqa: BLE001 -- whatever it is, whoever asked reads it
        Path(folder, TROUBLE).write_text(traceback.format_exc())
    finally:
        os._exit(1)


def main() -> None:
    """Answer each job."""
    connection.WRITER = without_waiting(connection.WRITER)
    gc.freeze()
    for line in sys.stdin:
        job: list[Any] = json.loads(line)
        child = os.fork()
        if not child:
            _live(*job)
        sys.stdout.write(f"{os.waitpid(child, 0)[1]}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
