"""Which task a free slot takes, and what it does before the model is touched."""

import asyncio
from pathlib import Path

import apsw
import msgspec
import pytest
from tests.unit.engine.stage import opened, request, scenario, started, turns, types, user

from perdure.domain.lifecycle import Status
from perdure.domain.principal import ALL_SCOPES, Principal
from perdure.ports.storage import Change
from perdure.testing.scripted_runtime import Script
from perdure.testing.store_steps import add_client


@scenario
async def test_foreground_goes_before_background_and_each_in_order(tmp_path: Path) -> None:
    """Whoever waits for an answer is served first."""
    async with started(tmp_path) as stage:
        gate = asyncio.Event()
        stage.runtime.play("first", Script(gates={0: gate}))
        first = await stage.submit("first", background=False)
        fore, viewers = list[str](), [asyncio.create_task(stage.follow(first))]
        await stage.store.reaches(first, Status.RUNNING)
        back = [await stage.submit(f"back {n}") for n in range(2)]
        for number in range(2):
            fore.append(await stage.submit(f"fore {number}", background=False))
            viewers.append(asyncio.create_task(stage.follow(fore[-1])))
        gate.set()
        for ident in (*fore, *back):
            assert (await stage.ended(ident)).status is Status.COMPLETED
        await asyncio.gather(*viewers)
        assert [job.ident for job in stage.runtime.jobs] == [first, *fore, *back]


@pytest.mark.proves("F-18")
@pytest.mark.parametrize("background", [True, False])
@scenario
async def test_a_pile_of_one_client_does_not_delay_another(tmp_path: Path, background: bool) -> None:
    """500 background tasks wait; what somebody else asks is the next that a slot takes."""
    async with started(tmp_path, slots=2) as stage:
        gate = asyncio.Event()
        for place in range(2):
            stage.runtime.play(f"pile {place}", Script(gates={1: gate}))
        pile = [await stage.submit(f"pile {number}") for number in range(500)]
        for ident in pile[:2]:
            await stage.store.reaches(ident, Status.RUNNING)
        other = Principal(await add_client(stage.store, "other", b"\x02" * 32), "other", ALL_SCOPES)
        asked = await stage.engine.submit(other, request(background=background), [user("question")])
        gate.set()
        async with stage.engine.follow(other, asked.ident, -1) as events:
            assert [event async for event in events]
        claims = [change.task_id for change in stage.store.changes if change.status is Status.LOADING]
        assert claims[:3] == [1, 2, len(pile) + 1]


@scenario
async def test_what_a_restart_left_running_goes_before_the_queue(tmp_path: Path) -> None:
    """Also before foreground work that was accepted earlier."""
    async with started(tmp_path) as stage:
        stage.runtime.play("first", Script(gates={1: asyncio.Event()}))
        queued = [await stage.submit("first"), await stage.submit("second")]
        await stage.store.until(queued[0], lambda task: task.tokens_kept == 1)
        await stage.kill()
        stage.runtime.play("first", Script())
        stage.runtime.jobs.clear()
        await stage.restart()
        for ident in queued:
            await stage.ended(ident)
        assert [job.ident for job in stage.runtime.jobs] == queued


@scenario
async def test_slots_are_never_exceeded_and_each_task_runs_once(tmp_path: Path) -> None:
    """Sixty tasks, three slots: three at a time, sixty starts."""
    async with started(tmp_path, slots=3) as stage:
        idents = await asyncio.gather(*(stage.submit(f"task {n}") for n in range(60)))
        for ident in idents:
            assert (await stage.ended(ident)).status is Status.COMPLETED
        assert stage.runtime.busiest == 3
        assert sorted(job.ident for job in stage.runtime.jobs) == sorted(idents)


@scenario
async def test_the_claim_is_a_row_before_the_model_is_touched(tmp_path: Path) -> None:
    """No load and no token while the claim has not been committed."""
    async with opened(tmp_path) as stage:
        ident = await stage.submit()
        loads: list[int] = []

        async def look(change: Change) -> None:
            if change.status is Status.LOADING:
                loads.append(stage.runtime.loads)

        stage.store.before_apply = look
        await stage.engine.start()
        await stage.ended(ident)
        assert loads == [0]
        claim = stage.store.changes[0]
        assert (claim.status, claim.boot, claim.attempt, types(claim.events)) == (
            Status.LOADING,
            "boot-1",
            1,
            ["in_progress"],
        )
        await stage.stop()


@pytest.mark.proves("C-10")
@scenario
async def test_a_task_that_crashed_too_often_fails_at_the_claim(tmp_path: Path) -> None:
    """The model is not touched for it again, and what waits behind it runs."""
    async with opened(tmp_path) as stage:
        poison, healthy = await stage.submit("poison"), await stage.submit("healthy")
        task = await stage.store.task(poison)
        assert task is not None
        await stage.store.apply(
            Change(task.id, frozenset({Status.QUEUED}), task.next_seq, Status.QUEUED, 1, crashes=3)
        )
        await stage.engine.start()
        failed = await stage.ended(poison)
        assert failed.error is not None
        assert msgspec.json.decode(failed.error)["code"] == "attempts_exhausted"
        assert types(await stage.log(poison)) == ["created", "queued", "failed"]
        assert (await stage.ended(healthy)).status is Status.COMPLETED
        assert [job.ident for job in stage.runtime.jobs] == [healthy]
        await stage.stop()


@scenario
async def test_a_cancel_that_wins_over_the_claim_does_not_stop_the_dispatch(tmp_path: Path) -> None:
    """The claim is stale, and the slot takes the next task."""
    async with opened(tmp_path) as stage:
        first, second = await stage.submit("first"), await stage.submit("second")

        async def overtake(change: Change) -> None:
            if change.status is Status.LOADING and not stage.store.changes:
                await stage.cancel(first)

        stage.store.before_apply = overtake
        await stage.engine.start()
        assert (await stage.ended(second)).status is Status.COMPLETED
        assert types(await stage.log(first)) == ["created", "queued", "cancelled"]
        assert [job.ident for job in stage.runtime.jobs] == [second]
        await stage.stop()


@pytest.mark.parametrize("error", [AssertionError("broken"), OSError("odd")])
@scenario
async def test_the_dispatch_survives_whatever_goes_wrong_in_it(tmp_path: Path, error: Exception) -> None:
    """A fault is told and the next poll tries again; the service does not stand still from then on."""
    async with opened(tmp_path) as stage:
        ident = await stage.submit()
        troubles = [error]
        stage.store.trouble = lambda call: troubles.pop() if call == "next_runnable" and troubles else None
        await stage.engine.start()
        assert (await stage.ended(ident)).status is Status.COMPLETED
        assert ("dispatch", error) in stage.reports
        await stage.stop()


@pytest.mark.parametrize("error", [AssertionError("broken"), OSError("odd")])
@scenario
async def test_a_run_that_breaks_is_taken_up_again_in_whatever_state(tmp_path: Path, error: Exception) -> None:
    """A task must not stay `loading` until the next restart because reading its row failed once."""
    async with started(tmp_path) as stage:
        troubles = [error]
        stage.store.trouble = lambda call: troubles.pop() if call == "task" and troubles else None
        ident = await stage.submit()
        assert (await stage.ended(ident)).status is Status.COMPLETED
        assert (f"run {ident}", error) in stage.reports


@scenario
async def test_the_wake_up_of_a_submit_may_be_lost(tmp_path: Path) -> None:
    """The next poll finds the task."""
    async with started(tmp_path) as stage:
        other = stage.new_engine()
        ident = await stage.submit()
        stage.engine, working = other, stage.engine
        late = await stage.submit("late")  # accepted by an engine whose hints reach nobody
        for each in (ident, late):
            assert (await stage.ended(each)).status is Status.COMPLETED
        stage.engine = working


@scenario
async def test_nothing_is_taken_before_it_is_known_how_many_fit(tmp_path: Path) -> None:
    """A model that gives fewer slots than were asked for must not find more work than it has slots."""
    async with started(tmp_path, slots=0) as stage:
        idents = [await stage.submit(f"job {number}") for number in range(5)]
        await turns(200)
        assert [change for change in stage.store.changes if change.status is Status.LOADING] == []
        stage.runtime.resize(2)
        for ident in idents:
            assert (await stage.ended(ident)).status is Status.COMPLETED
        assert stage.runtime.busiest == 2


@scenario
async def test_a_row_that_cannot_be_understood_does_not_block_the_queue(tmp_path: Path) -> None:
    """It is told once and stays as it is; what stands behind it runs."""
    async with started(tmp_path) as stage:
        gate = asyncio.Event()
        stage.runtime.play("first", Script(gates={0: gate}))
        first, bad, good = [await stage.submit(name) for name in ("first", "bad", "good")]
        await stage.store.reaches(first, Status.RUNNING)
        record = await stage.store.task(bad)
        assert record is not None
        other = apsw.Connection(str(tmp_path / "perdure.db"))
        other.execute("DROP TRIGGER responses_never_change")
        other.execute("UPDATE responses SET request = '{}' WHERE id = ?", (record.id,))
        other.close()
        gate.set()
        assert (await stage.ended(good)).status is Status.COMPLETED
        assert [what for what, _ in stage.reports] == [f"claim of {bad}"]
        left = await stage.store.task(bad)
        assert left is not None
        assert left.status is Status.QUEUED
