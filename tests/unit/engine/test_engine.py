"""The engine as a whole: how it starts, how it stops, and what is left behind: nothing."""

import asyncio
from pathlib import Path

import pytest
from tests.unit.engine.stage import opened, scenario, started, turns, types

from perdure.domain.errors import Unauthenticated
from perdure.domain.lifecycle import Status
from perdure.domain.recovery import OnRestart
from perdure.ports.storage import Change
from perdure.testing.scripted_runtime import Script


@pytest.mark.proves("C-30")
@scenario
async def test_a_stop_cancels_nobody_and_the_next_start_goes_on(tmp_path: Path) -> None:
    """Two running, three queued: the running ones follow their policy, the queued ones run."""
    async with started(tmp_path, slots=2) as stage:
        never = asyncio.Event()
        for prompt in ("fails", "resumes"):
            stage.runtime.play(prompt, Script(gates={2: never}))
        fails = await stage.submit("fails", on_restart=OnRestart.FAIL)
        resumes = await stage.submit("resumes")
        for ident in (fails, resumes):
            await stage.store.until(ident, lambda task: task.tokens_kept == 2)
        queued = [await stage.submit(f"queued {number}") for number in range(3)]
        await stage.stop(seconds=0)
        for ident in queued:
            await stage.store.reaches(ident, Status.QUEUED)
        never.set()
        assert await stage.restart() == 5
        assert (await stage.ended(fails)).status is Status.FAILED
        for ident in (resumes, *queued):
            task = await stage.ended(ident)
            assert (task.status, task.crashes) == (Status.COMPLETED, 0)


@scenario
async def test_work_under_way_may_end_in_the_time_that_the_stop_gives(tmp_path: Path) -> None:
    """What ends in time ends properly; what waits is not started any more."""
    async with started(tmp_path) as stage:
        gate = asyncio.Event()
        stage.runtime.play("short", Script(gates={2: gate}))
        running = await stage.submit("short")
        await stage.store.until(running, lambda task: task.tokens_kept == 2)
        queued = await stage.submit("queued")
        stage.engine.drain()
        settling = asyncio.create_task(stage.engine.settle(200))
        await turns(30)
        assert not settling.done()
        gate.set()
        await settling
        await stage.engine.finish()
        await stage.store.reaches(running, Status.COMPLETED)
        await stage.store.reaches(queued, Status.QUEUED)


@scenario
async def test_a_stop_waits_no_longer_than_it_was_told(tmp_path: Path) -> None:
    """A text without end is left."""
    async with started(tmp_path) as stage:
        stage.runtime.play("never", Script(gates={2: asyncio.Event()}))
        ident = await stage.submit("never")
        await stage.store.until(ident, lambda task: task.tokens_kept == 2)
        loop = asyncio.get_running_loop()
        before = loop.time()
        await stage.stop(seconds=2)
        assert 2 <= loop.time() - before < 60


@pytest.mark.parametrize("seconds", [0, 60])
@scenario
async def test_a_claim_under_way_at_the_stop_does_not_outlive_it(tmp_path: Path, seconds: float) -> None:
    """The slot that was about to be filled is part of the work: nothing runs, and no row is owned, after the stop."""
    async with opened(tmp_path) as stage:
        ident = await stage.submit()
        claiming = asyncio.Event()

        async def note(change: Change) -> None:
            if change.status is Status.LOADING:
                claiming.set()
                await turns(50)

        stage.store.before_apply = note
        await stage.engine.start()
        await claiming.wait()
        await stage.stop(seconds)
        task = await stage.store.task(ident)
        assert task is not None
        assert task.boot is None
        assert task.status is (Status.COMPLETED if seconds else Status.LOADING)
        assert stage.runtime.busy == 0


@scenario
async def test_ready_is_after_recovery_and_before_the_stop(tmp_path: Path) -> None:
    """Each state has its reason, the runtime's own fault included."""
    async with opened(tmp_path) as stage:
        assert stage.engine.health().reason == "The service is starting."
        await stage.engine.start()
        assert stage.engine.health().ready
        stage.runtime.unavailable["tiny"] = "The model tiny is damaged."
        assert stage.engine.health().reason == "The model tiny is damaged."
        await stage.stop()
        assert stage.engine.health().reason == "The service is stopping."


@scenario
async def test_a_token_names_its_client_and_any_other_nobody(tmp_path: Path) -> None:
    """An unknown token is refused without a word about why."""
    async with opened(tmp_path) as stage:
        with pytest.raises(Unauthenticated):
            await stage.engine.authenticate("guess")


@scenario
async def test_a_busy_service_stops_cleanly_at_any_moment(tmp_path: Path) -> None:
    """Twenty-five stops, each a little later into the work: no task of the event loop is left, each log is sound."""
    async with started(tmp_path, slots=2) as stage:
        idents: list[str] = []
        for moment in range(25):
            idents += [await stage.submit(f"{moment} {number}") for number in range(2)]
            viewer = asyncio.create_task(stage.follow(idents[-1]))
            await turns(moment * 4)
            await stage.stop(seconds=0)
            await viewer
            assert stage.runtime.busy == 0
            left = {task.get_name() for task in asyncio.all_tasks() - {asyncio.current_task()}}
            assert left == {"upkeep"}  # the store's, which stays open
            stage.engine = stage.new_engine()
            await stage.engine.start()
        for ident in idents:
            assert (await stage.ended(ident)).status is Status.COMPLETED
            assert types(await stage.log(ident))[-1] == "completed"


@scenario
async def test_an_engine_that_was_never_started_can_be_stopped(tmp_path: Path) -> None:
    """The start may have failed before there was anything to stop."""
    async with opened(tmp_path) as stage:
        await stage.stop()


@scenario
async def test_a_reader_sees_each_state_as_it_is(tmp_path: Path) -> None:
    """Queued, in progress with the text so far marked incomplete or open, then the very bytes of the last event."""
    async with opened(tmp_path) as stage:
        gate = asyncio.Event()
        stage.runtime.play("hold", Script(gates={2: gate}))
        ident = await stage.submit("hold")
        assert (await stage.response(ident))["status"] == "queued"
        await stage.engine.start()
        await stage.store.until(ident, lambda task: task.tokens_kept == 2)
        halfway = await stage.response(ident)
        assert (halfway["status"], halfway["output"][0]["status"]) == ("in_progress", "in_progress")
        gate.set()
        await stage.ended(ident)
        assert (await stage.log(ident))[-1].snapshot == await stage.engine.response(stage.principal, ident)
        await stage.stop()


@pytest.mark.proves("D1")
@scenario
async def test_a_stop_does_not_wait_for_models_that_are_still_read(tmp_path: Path) -> None:
    """A file of many gigabytes may take minutes, and the stop has seconds."""
    async with opened(tmp_path) as stage:
        stage.runtime.models_gate = asyncio.Event()
        await stage.engine.start()
        await turns(20)
        async with asyncio.timeout(60):
            await stage.stop(seconds=0)
