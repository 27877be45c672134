"""What goes when its time is over, and what never goes."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import apsw
import pytest
from tests.unit.engine.stage import Stage, StageStore, opened, said, scenario, started, turns, undisturbed

from perdure.domain.errors import NotFound, StorageFailed, StorageFull
from perdure.domain.lifecycle import Status
from perdure.domain.limits import (
    PURGE_BATCH_EVENTS,
    PURGE_BATCH_TASKS,
    PURGE_PAUSE_SECONDS,
    SWEEP_SECONDS,
    TOMBSTONE_KEEP_SECONDS,
)
from perdure.domain.principal import ALL_SCOPES, Principal
from perdure.engine import retain
from perdure.engine.wakeups import wait_for
from perdure.ports.storage import Change, Store, TaskRecord
from perdure.testing.scripted_runtime import Script
from perdure.testing.store_steps import add_client, delta, end, finished, found, moved, running

DAY = 24 * 3600
SMALL_BYTES = 2 * 1024 * 1024
LONG_TOKENS = 1_500


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """How long the sweep waits each time; it waits as ever."""
    noted: list[float] = []

    async def noting(hint: asyncio.Event, seconds: float) -> bool:
        noted.append(seconds)
        return await wait_for(hint, seconds)

    monkeypatch.setattr(retain, "wait_for", noting)
    return noted


async def wake(stage: Stage) -> None:
    """Have the next sweep now, as after any delete."""
    ident = await stage.submit("to be deleted")
    await stage.cancel(ident)
    await stage.delete(ident)


@scenario
async def test_a_response_that_is_not_to_be_stored_is_gone_sixty_seconds_after_its_end(tmp_path: Path) -> None:
    """Readable until then, unreadable from that moment on, and then no row is left."""
    async with started(tmp_path) as stage:
        ident = await stage.submit(store=False)
        task = await stage.ended(ident)
        stage.clock.advance(59)
        assert (await stage.response(ident))["status"] == "completed"
        assert len(await stage.follow(ident)) == task.next_seq
        stage.clock.advance(1)
        assert await stage.store.task(ident) is not None
        with pytest.raises(NotFound):
            await stage.response(ident)
        with pytest.raises(NotFound):
            await stage.follow(ident)
        await stage.store.gone(ident)
        assert (await stage.store.events(task.id, -1, 10)).events == ()


@scenario
async def test_a_sweep_takes_what_is_due_and_leaves_what_is_not(tmp_path: Path) -> None:
    """Two that ended thirty seconds apart go thirty seconds apart."""
    async with started(tmp_path) as stage:
        first = await stage.submit(store=False)
        await stage.ended(first)
        stage.clock.advance(30)
        second = await stage.submit(store=False)
        await stage.ended(second)
        stage.clock.advance(30)
        await wake(stage)
        await stage.store.gone(first)
        await turns(50)
        assert (await stage.response(second))["status"] == "completed"


@pytest.mark.proves("P7")
@scenario
async def test_nothing_unfinished_is_ever_purged(tmp_path: Path) -> None:
    """Not even a row whose time is long over: the sweep passes it by."""
    async with started(tmp_path) as stage:
        gate = asyncio.Event()
        stage.runtime.play("hold", Script(gates={2: gate}))
        held, queued = await stage.submit("hold", store=False), await stage.submit("next", store=False)
        await stage.store.until(held, lambda task: task.tokens_kept == 2)
        for ident in (held, queued):
            task = await stage.store.task(ident)
            assert task is not None
            await stage.store.apply(
                Change(task.id, frozenset({task.status}), task.next_seq, task.status, 1, purge_at=1)
            )
        stage.clock.advance(10_000_000)
        done = await stage.submit("done", store=False)
        await stage.cancel(done)
        stage.clock.advance(61)
        await wake(stage)
        await stage.store.gone(done)
        for ident in (held, queued):
            assert await stage.store.task(ident) is not None
        gate.set()
        assert (await stage.ended(queued)).status is Status.COMPLETED


@scenario
async def test_a_stored_response_stays(tmp_path: Path) -> None:
    """With a retention time of for ever nothing goes by itself."""
    async with started(tmp_path) as stage:
        ident = await stage.submit()
        await stage.ended(ident)
        stage.clock.advance(100_000_000)
        other = await stage.submit(store=False)
        await stage.ended(other)
        stage.clock.advance(61)
        await stage.store.gone(other)
        assert (await stage.response(ident))["status"] == "completed"


@pytest.mark.parametrize("error", [StorageFailed("failed"), AssertionError("broken")])
@scenario
async def test_the_sweep_survives_whatever_goes_wrong_in_it(tmp_path: Path, error: Exception) -> None:
    """It is told, and the next sweep does the work."""
    async with started(tmp_path) as stage:
        troubles = [error]
        stage.store.trouble = lambda call: troubles.pop() if call == "purge" and troubles else None
        ident = await stage.submit(store=False)
        await stage.ended(ident)
        stage.clock.advance(61)
        await wake(stage)
        while not stage.reports:
            await turns(1)
        await wake(stage)
        await stage.store.gone(ident)
        assert stage.reports == [("purge", error)]


@scenario
async def test_a_clock_that_was_set_back_purges_nothing_early(tmp_path: Path) -> None:
    """Rows stay longer then, never shorter; and the sweep does not spin."""
    async with started(tmp_path) as stage:
        ident = await stage.submit(store=False)
        await stage.ended(ident)
        stage.clock.step(-3600)
        stage.clock.advance(61)
        other = await stage.submit(store=False)
        await stage.ended(other)
        await turns(50)
        assert (await stage.response(ident))["status"] == "completed"


# By age.


async def refusal(stage: Stage, ident: str, principal: Principal | None = None) -> str:
    """The code with which every door answers for a response."""
    who = principal or stage.principal

    async def follow() -> None:
        async with stage.engine.follow(who, ident, -1) as events:
            async for _ in events:
                pass

    doors = (
        lambda: stage.engine.response(who, ident),
        lambda: stage.engine.task(who, ident),
        lambda: stage.engine.events(who, ident, -1, 10),
        lambda: stage.engine.cancel(who, ident, background_only=False),
        lambda: stage.engine.cancel(who, ident, background_only=True),
        lambda: stage.engine.delete(who, ident),
        follow,
    )
    codes: set[str] = set()
    for door in doors:
        with pytest.raises(NotFound) as caught:
            await door()
        codes.add(f"{caught.value.error_code}: {caught.value.message}")
    (only,) = codes
    return only.partition(":")[0]


@pytest.mark.proves("P6", "B-29")
@scenario
async def test_a_response_goes_when_its_retention_is_over(tmp_path: Path) -> None:
    """Whole until then, with every event from the first; then its client is told that it has expired, at every door,
    and nobody else is told anything; in the end it is as unknown as one that never was."""
    async with started(tmp_path, retention_seconds=30 * DAY) as stage:
        other = Principal(await add_client(stage.store, "other", b"\x02" * 32), "other", ALL_SCOPES)
        ident = await stage.submit()
        task = await stage.ended(ident)
        stage.clock.advance(30 * DAY - 1)
        await wake(stage)
        await turns(50)
        assert (await stage.response(ident))["status"] == "completed"
        assert len(await stage.follow(ident)) == task.next_seq
        stage.clock.advance(1)
        await wake(stage)
        await stage.store.gone(ident)
        assert (await stage.store.events(task.id, -1, 10)).events == ()
        assert await refusal(stage, ident) == "response_expired"
        assert await refusal(stage, ident, other) == await refusal(stage, "never was") == "not_found"
        stage.clock.advance(TOMBSTONE_KEEP_SECONDS)
        await wake(stage)
        while await stage.store.expired(ident) is not None:
            await turns(1)
        assert await refusal(stage, ident) == "not_found"


@pytest.mark.proves("P6")
@scenario
async def test_what_was_deleted_or_not_stored_leaves_no_name(tmp_path: Path) -> None:
    """It is not found, however long the retention is."""
    async with started(tmp_path, retention_seconds=DAY) as stage:
        deleted, unstored = await stage.submit(), await stage.submit(store=False)
        await stage.ended(deleted)
        await stage.ended(unstored)
        await stage.delete(deleted)
        stage.clock.advance(61)
        await wake(stage)
        await stage.store.gone(unstored)
        assert [await refusal(stage, ident) for ident in (deleted, unstored)] == ["not_found"] * 2


@pytest.mark.proves("P6", "E-23")
@scenario
async def test_rows_go_by_their_age_however_many_there_are(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Each a day after its end and not before: of forty that ended an hour apart, those that are due. It is told."""
    caplog.set_level("INFO", retain.__name__)
    async with opened(tmp_path, retention_seconds=DAY) as stage:
        now, client = stage.clock.now(), stage.principal.client_id
        for hours in range(40):
            task = await running(stage.store, f"{hours:02}", client)
            await stage.store.apply(end(task, at=now - hours * 3600 * 1_000_000))
        await stage.engine.start()
        await stage.store.gone("24")
        await turns(50)
        page = await stage.engine.tasks(stage.principal, status=None, limit=100, after=None, ascending=True)
        assert [task.id.removeprefix("task_") for task in page.data] == [f"{hours:02}" for hours in range(24)]
        await stage.stop()
    assert "removed 16 finished responses that were older than retention_days allows" in caplog.text


@pytest.mark.proves("P6")
@scenario
async def test_a_changed_setting_counts_for_old_rows_too(tmp_path: Path) -> None:
    """The age is looked at in the sweep; nothing was settled when the response ended."""
    async with started(tmp_path) as stage:
        ident = await stage.submit()
        await stage.ended(ident)
        stage.clock.advance(10 * DAY)
        await stage.stop()
        stage.retention_seconds = 11 * DAY
        await stage.restart()
        await turns(50)
        assert (await stage.response(ident))["status"] == "completed"
        await stage.stop()
        stage.retention_seconds = 9 * DAY
        await stage.restart()
        await stage.store.gone(ident)


@pytest.mark.proves("P7")
@scenario
async def test_no_clock_makes_unfinished_work_go(tmp_path: Path) -> None:
    """It steps forward by years and back again, with tasks in every unfinished state: all of them are there, with
    their events, and end as they should."""
    async with started(tmp_path, slots=2, retention_seconds=1) as stage:
        gate, stopped = asyncio.Event(), asyncio.Event()
        stage.runtime.play("hold", Script(gates={2: gate}))
        stage.runtime.play("slow", Script(gates={2: asyncio.Event()}, stop_gate=stopped))
        held, slow = await stage.submit("hold"), await stage.submit("slow")
        for ident in (held, slow):
            await stage.store.until(ident, lambda task: task.tokens_kept == 2)
        cancelling = asyncio.create_task(stage.cancel(slow))
        await stage.store.reaches(slow, Status.CANCELLING)
        queued = [await stage.submit(f"queued {number}") for number in range(3)]
        open_ = [held, slow, *queued]
        before = [await stage.store.task(ident) for ident in open_]
        for years in (10, -20, 100, -95):
            stage.clock.step(years * 365 * DAY)
            await wake(stage)
            await turns(100)
            assert [await stage.store.task(ident) for ident in open_] == before
        stopped.set()
        await cancelling
        gate.set()
        ends = [(await stage.ended(ident)).status for ident in open_]
        assert ends == [Status.COMPLETED, Status.CANCELLED, *[Status.COMPLETED] * 3]
        assert [await stage.log(ident) for ident in open_]


class NotedStore(StageStore):
    """Notes the batches of the sweep."""

    def __init__(self, *parts: Any, **others: Any) -> None:
        super().__init__(*parts, **others)
        self.batches: list[list[int]] = []

    async def purge(self, task_ids: Sequence[int], remembered_until: int | None = None) -> None:
        self.batches.append(list(task_ids))
        await super().purge(task_ids, remembered_until)


async def told(store: Store, name: str, client: int, events: int) -> TaskRecord:
    """A finished task with so many events."""
    task = await running(store, name, client)
    text = tuple(delta(number, "word") for number in range(task.next_seq, events - 1))
    await store.apply(Change(task.id, frozenset({Status.RUNNING}), task.next_seq, Status.RUNNING, 1, text))
    return await moved(store, await found(store, name), end)


@pytest.mark.proves("E-14")
@scenario
async def test_a_batch_has_few_tasks_and_few_events(tmp_path: Path, pauses: list[float]) -> None:
    """A response with more events than a batch may have goes alone, and all go in one sweep, with a pause after each
    batch."""
    async with opened(tmp_path, retention_seconds=DAY, kind=NotedStore) as stage:
        assert isinstance(stage.store, NotedStore)
        sizes = [*[6] * 25, *[PURGE_BATCH_EVENTS // 2 - 50] * 3, PURGE_BATCH_EVENTS + 1, *[6] * 5]
        client = stage.principal.client_id
        tasks = [await told(stage.store, f"t{number}", client, size) for number, size in enumerate(sizes)]
        await stage.engine.start()
        await stage.store.gone(tasks[-1].ident)
        events = {task.id: task.next_seq for task in tasks}
        assert [task_id for batch in stage.store.batches for task_id in batch] == list(events)
        assert [len(batch) for batch in stage.store.batches] == [10, 10, 7, 1, 1, 5]
        while SWEEP_SECONDS not in pauses:
            await turns(1)
        assert pauses == [*[PURGE_PAUSE_SECONDS] * 6, SWEEP_SECONDS]
        for batch in stage.store.batches:
            assert len(batch) == 1 or sum(events[task_id] for task_id in batch) <= PURGE_BATCH_EVENTS
        await stage.stop()


@scenario
async def test_a_stop_ends_the_sweep_between_two_batches(tmp_path: Path) -> None:
    """What is left goes after the next start."""
    async with opened(tmp_path, retention_seconds=DAY, kind=NotedStore) as stage:
        assert isinstance(stage.store, NotedStore)
        for number in range(5 * PURGE_BATCH_TASKS):
            await finished(stage.store, f"t{number}", stage.principal.client_id)
        await stage.engine.start()
        await stage.store.gone("t0")
        await stage.stop()
        begun = len(stage.store.batches)
        assert begun < 5
        assert await stage.store.task("t49") is not None
        await stage.restart()
        await stage.store.gone("t49")
        assert len(stage.store.batches) == 5
        await stage.stop()


@pytest.mark.parametrize("trouble", [StorageFull("full"), StorageFailed("failed")])
@scenario
async def test_a_disk_that_refuses_does_not_stop_the_sweep_for_ever(tmp_path: Path, trouble: Exception) -> None:
    """It is told, and a minute later it is tried again."""
    async with started(tmp_path, retention_seconds=DAY) as stage:
        ident = await stage.submit()
        await stage.ended(ident)
        troubles = [trouble]
        stage.store.trouble = lambda call: troubles.pop() if call == "purge" and troubles else None
        stage.clock.advance(DAY)
        async with asyncio.timeout(3 * SWEEP_SECONDS):  # of the loop's time
            await stage.store.gone(ident)
        assert stage.reports == [("purge", trouble)]


@scenario
async def test_one_that_cannot_be_purged_keeps_no_other(tmp_path: Path, pauses: list[float]) -> None:
    """It is told once a sweep and stays; the sweep neither stands still nor spins."""
    async with opened(tmp_path, retention_seconds=DAY) as stage:
        client = stage.principal.client_id
        for number in range(3 * PURGE_BATCH_TASKS):
            await finished(stage.store, f"t{number}", client, purge_at=1 if number == 4 else None)
        other = apsw.Connection(str(tmp_path / "perdure.db"))
        other.execute("CREATE TABLE notes (task_id INTEGER REFERENCES tasks (id))")
        other.execute("INSERT INTO notes SELECT id FROM tasks WHERE ident IN ('t4', 't5')")
        other.close()
        await stage.engine.start()
        await stage.store.gone(f"t{3 * PURGE_BATCH_TASKS - 1}")
        while SWEEP_SECONDS not in pauses:
            await turns(1)
        left = await stage.engine.tasks(stage.principal, status=None, limit=100, after=None, ascending=True)
        assert [each.id for each in left.data] == ["task_t4", "task_t5"]
        assert [what for what, _ in stage.reports] == ["purge"] * 2
        await stage.stop()


async def aged(stage: Stage, prompt: str, at: int) -> str:
    """A response that has ended then."""
    ident = await stage.submit(prompt)
    await stage.store.apply(end(await found(stage.store, ident), at=at))
    return ident


@pytest.mark.proves("E-27", "P6")
@scenario
async def test_a_database_of_limited_size_refuses_new_work_until_some_has_gone(tmp_path: Path) -> None:
    """Nothing that was handed out is lost: what is kept stays readable, what was accepted goes on to its end, over a
    restart too, and the next create is accepted without one."""
    async with opened(tmp_path, retention_seconds=DAY, bytes_max=SMALL_BYTES) as stage:
        gate, now = asyncio.Event(), stage.clock.now()
        stage.runtime.play("hold", Script(length=LONG_TOKENS, gates={2: gate}))
        await stage.engine.start()
        held = await stage.submit("hold")
        await stage.store.until(held, lambda task: task.tokens_kept == 2)
        young, old = await aged(stage, "young", now + DAY * 1_000_000), list[str]()
        with suppress(StorageFull):
            while len(old) < 1_000:
                old.append(await aged(stage, "large " * 500, now))
        with pytest.raises(StorageFull):
            await stage.submit("one too many")
        condition = stage.store.condition()
        assert (condition.trouble, condition.writes_refused) == ("storage_full", 0)
        assert not stage.engine.health().ready
        await stage.restart()
        gate.set()
        assert (await stage.ended(held)).status is Status.COMPLETED
        assert said(await stage.log(held)) == undisturbed("hold", LONG_TOKENS - 1)
        for ident in (young, *old):
            assert (await stage.engine.events(stage.principal, ident, -1, 100))[0][-1].snapshot
        stage.clock.advance(DAY)
        await stage.delete(old.pop())  # which is possible, and has the next sweep now
        await stage.store.gone(old[-1])
        assert [await refusal(stage, ident) for ident in (old[0], old[-1])] == ["response_expired"] * 2
        assert (await stage.engine.events(stage.principal, young, -1, 100))[0][-1].snapshot
        assert (await stage.ended(await stage.submit("there is room again"))).status is Status.COMPLETED
        assert stage.store.condition().trouble is None
        await stage.stop()
