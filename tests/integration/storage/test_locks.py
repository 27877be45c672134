"""Locks: a foreign program that holds one delays the work and fails none of it; a caller who leaves holds none."""

import asyncio
import random
from contextlib import closing
from pathlib import Path

import apsw
import pytest
from tests.unit.engine.stage import Stage, opened, said, scenario, types, undisturbed

from perdure.domain.errors import StorageFailed
from perdure.domain.lifecycle import Status
from perdure.storage.sqlite import connection
from perdure.storage.sqlite.store import SqliteStore
from perdure.testing.scripted_runtime import Script
from perdure.testing.store_steps import QUEUE_MAX, add_client, all_events, found, grow, new_task, running

BUSY_MAX_MS = 5
WRITES = {"boot", "submit", "apply", "purge"}
CANCELS = 5_000
CALLERS = 10


class ForeignProgram:
    """Takes the write lock before each write of the store, keeps it until the store has given up, and lets the next
    try through: so each write is refused once."""

    def __init__(self, path: Path, stage: Stage) -> None:
        self.refused: list[str] = []
        self._other = apsw.Connection(str(path))
        self._other.set_busy_timeout(10_000)  # the store may be at a small write of its own
        self._stage = stage
        self._holds: str | None = None
        stage.store.trouble = self.before

    def before(self, call: str) -> None:
        """The store is about to be called."""
        if call not in WRITES:
            return
        if self._holds is None:
            self._other.execute("BEGIN IMMEDIATE")
            self._holds = call
        else:
            assert self._stage.store.condition().trouble == "storage_failed"
            self._other.execute("ROLLBACK")
            self.refused.append(self._holds)
            self._holds = None

    def close(self) -> None:
        """Leave."""
        self._stage.store.trouble = lambda _: None
        self._other.close()


@pytest.mark.proves("E-09")
@scenario
async def test_a_lock_at_each_step_delays_a_task_and_fails_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the start of the service over claim, start, each piece of text and the end to its removal. The text is the
    undisturbed one, drawn in one attempt. Callers are told, and what they repeat is made."""
    monkeypatch.setattr(connection, "WRITER_BUSY_MAX_MS", BUSY_MAX_MS)
    async with opened(tmp_path) as stage:
        foreign = ForeignProgram(tmp_path / "perdure.db", stage)
        await stage.engine.start()
        with pytest.raises(StorageFailed):
            await stage.submit("told")
        ident = await stage.submit("told")
        task = await stage.ended(ident)
        log = await stage.log(ident)
        assert (task.status, task.attempt, task.crashes) == (Status.COMPLETED, 1, 0)
        assert said(log) == undisturbed("told", 5)
        assert types(log)[-1] == "completed"
        assert [step.note for step in await stage.store.attempts(task.id)][-1] == "completed"
        with pytest.raises(StorageFailed):
            await stage.delete(ident)
        assert await stage.store.task(ident) == task
        await stage.delete(ident)
        assert await stage.store.task(ident) is None
        assert foreign.refused[:2] == ["boot", "submit"]
        assert foreign.refused[-1] == "purge"
        assert foreign.refused.count("apply") >= 4
        foreign.close()
        await stage.stop()


@pytest.mark.proves("E-09")
@scenario
async def test_a_lock_at_each_step_of_a_cancel_and_of_a_recovery(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cancel that was refused is repeated by its caller, and what the run has to do for it, by the run; a recovery
    that was refused is repeated before anybody is let in."""
    monkeypatch.setattr(connection, "WRITER_BUSY_MAX_MS", BUSY_MAX_MS)
    async with opened(tmp_path) as stage:
        await stage.engine.start()
        stage.runtime.play("held", Script(gates={2: asyncio.Event()}))
        ident = await stage.submit("held")
        await stage.store.until(ident, lambda task: task.tokens_kept == 2)
        foreign = ForeignProgram(tmp_path / "perdure.db", stage)
        assert await stage.restart() == 1
        await stage.store.until(ident, lambda task: bool(task.claimed_at))
        with pytest.raises(StorageFailed):
            await stage.cancel(ident)
        await stage.cancel(ident)
        task = await stage.ended(ident)
        assert (task.status, task.attempt, task.crashes) == (Status.CANCELLED, 1, 0)
        assert said(await stage.log(ident)) == undisturbed("held", 2)
        foreign.close()
        await stage.stop()


@pytest.mark.proves("E-10")
def test_callers_who_leave_in_the_middle_of_writes_hold_no_lock(tmp_path: Path) -> None:
    """Five thousand times, at any moment of a write: each task is there whole or not at all, and the next who writes
    waits for nobody, not even from another program."""
    chance = random.Random(10)

    async def call(store: SqliteStore, name: str, client: int) -> None:
        await store.submit(new_task(name, client), QUEUE_MAX)
        await store.apply(grow(await running(store, f"{name}-more", client)))

    async def play() -> None:
        store = await SqliteStore.open(tmp_path / "perdure.db")
        client = await add_client(store)
        cancelled = 0
        while cancelled < CANCELS:
            calls = [asyncio.create_task(call(store, f"t{cancelled}-{n}", client)) for n in range(CALLERS)]
            for each in calls:
                for _ in range(chance.randrange(4)):
                    await asyncio.sleep(chance.choice((0, 0, 0.0002)))
                cancelled += each.cancel()
            await asyncio.gather(*calls, return_exceptions=True)
        await asyncio.wait_for(store.submit(new_task("last", client), 10**6), 5)
        with closing(apsw.Connection(str(tmp_path / "perdure.db"))) as other:
            other.execute("BEGIN IMMEDIATE")
            other.execute("ROLLBACK")
        for task in await store.unfinished(0, 10**6):
            await all_events(store, task)
        assert await found(store, "last")
        condition = store.condition()
        assert (condition.trouble, condition.writes_refused) == (None, 0)
        await store.close()

    asyncio.run(play())
