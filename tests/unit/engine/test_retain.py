"""What goes when its time is over, and what never goes."""

import asyncio
from pathlib import Path

import pytest
from tests.unit.engine.stage import Stage, scenario, started, turns

from perdure.domain.errors import NotFound, StorageFailed
from perdure.domain.lifecycle import Status
from perdure.ports.storage import Change
from perdure.testing.scripted_runtime import Script


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
        assert await stage.store.events(task.id, -1, 10) == []


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
    """Without a retention time nothing goes by itself."""
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
