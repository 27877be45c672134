"""A helper: callers who submit, with or without retention at work beside them, on one store."""

import asyncio
import sys
from pathlib import Path
from typing import Any

import uvloop

from benchmarks.filled import BODY, fill
from benchmarks.processes import heard, say
from benchmarks.store_alone import new_tasks, submits
from perdure.ambient.clock import SystemClock
from perdure.bootstrap import SWITCH_SECONDS
from perdure.engine.retain import Retain
from perdure.storage.sqlite.store import SqliteStore

CLIENT = 1
RETENTION_SECONDS = 3_600
AGE = 2 * RETENTION_SECONDS * 1_000_000
"""How long ago the tasks ended that are to go, in microseconds."""


class Retained:
    """A store whose old tasks are due."""

    def __init__(self, store: SqliteStore) -> None:
        self._store = store
        self._clock = SystemClock()
        self._troubles: list[str] = []

    async def measure(self, callers: int, total: int, *, purging: bool) -> dict[str, Any]:
        """So many submits."""
        new = new_tasks(BODY, CLIENT, total)
        retain = Retain(self._store, self._clock, self._report, RETENTION_SECONDS)
        if not purging:
            retain.stop()
        before = await self._due()
        sweeping = asyncio.create_task(retain.serve())
        found = await submits(self._store, new, callers)
        left = await self._due()
        retain.stop()
        await sweeping
        assert not self._troubles, self._troubles
        assert left, "nothing was due any more"
        return {**found, "purged": before - left}

    async def _due(self) -> int:
        now = self._clock.now()
        return len(await self._store.outlived(now - RETENTION_SECONDS * 1_000_000, sys.maxsize))

    def _report(self, what: str, error: BaseException) -> None:
        self._troubles.append(f"{what}: {error!r}")


async def _answer() -> None:
    question = heard()
    assert question is not None
    path = Path(question["path"])
    await fill(path, question["tasks"], age=AGE)
    store = await SqliteStore.open(path)
    say({"ready": True})
    retained = Retained(store)
    while question := heard():
        say(await retained.measure(question["callers"], question["total"], purging=question["purging"]))
    await store.close()


def main() -> None:
    """Answer questions until there are no more."""
    sys.setswitchinterval(SWITCH_SECONDS)  # as the service has it
    say({"ready": True})
    with asyncio.Runner(loop_factory=uvloop.Loop) as runner:
        runner.run(_answer())


if __name__ == "__main__":
    main()
