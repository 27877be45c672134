"""A deleted response: out of sight at once, ended, and then gone with everything."""

import asyncio
from pathlib import Path

import pytest
from tests.unit.engine.mishaps import overtaken
from tests.unit.engine.stage import Stage, scenario, started, turns, types

from perdure.domain.errors import NotFound, StorageFull
from perdure.domain.lifecycle import Status
from perdure.ports.storage import Change, StaleTask
from perdure.testing.scripted_runtime import Script


async def unreadable(stage: Stage, ident: str) -> None:
    """Every door says that there is no such response."""
    readers = (
        lambda: stage.response(ident),
        lambda: stage.follow(ident),
        lambda: stage.engine.task(stage.principal, ident),
        lambda: stage.engine.events(stage.principal, ident, -1, 10),
        lambda: stage.cancel(ident),
        lambda: stage.delete(ident),
    )
    for reader in readers:
        with pytest.raises(NotFound):
            await reader()
    page = await stage.engine.tasks(stage.principal, status=None, limit=10, after=None, ascending=True)
    assert ident not in [task.id.removeprefix("task_") for task in page.data]


@scenario
async def test_a_finished_response_is_gone_at_once(tmp_path: Path) -> None:
    """With its events; a second delete does not find it."""
    async with started(tmp_path) as stage:
        ident = await stage.submit()
        task = await stage.ended(ident)
        await stage.delete(ident)
        await unreadable(stage, ident)
        assert await stage.store.task(ident) is None
        assert (await stage.store.events(task.id, -1, 10)).events == ()


@pytest.mark.proves("C-23")
@pytest.mark.parametrize("state", [Status.QUEUED, Status.LOADING, Status.RUNNING])
@scenario
async def test_an_unfinished_response_ends_and_then_goes(tmp_path: Path, state: Status) -> None:
    """Nobody finds it any more; its viewer gets the cancelled event; a moment later no row is left."""
    async with started(tmp_path) as stage:
        prompt = "hold"
        stage.runtime.play("hold", Script(gates={2: asyncio.Event()}))
        if state is Status.QUEUED:
            await stage.store.reaches(await stage.submit("hold"), Status.RUNNING)
            prompt = "other"
        if state is Status.LOADING:
            stage.runtime.load_gate = asyncio.Event()
        ident = await stage.submit(prompt)
        await stage.store.reaches(ident, state)
        viewer = asyncio.create_task(stage.follow(ident))
        await turns(20)
        await stage.delete(ident)
        await unreadable(stage, ident)
        seen = await viewer
        assert types(seen)[-1] == "cancelled"
        task = await stage.ended(ident)
        stage.clock.advance(1.1)
        async with asyncio.timeout(20):  # not with the sweep of the next minute
            await stage.store.gone(ident)
        assert (await stage.store.events(task.id, -1, 10)).events == ()


@pytest.mark.proves("C-23")
@scenario
async def test_a_late_write_does_not_bring_a_deleted_response_back(tmp_path: Path) -> None:
    """The model draws on while its stop takes long: what comes then is dropped."""
    async with started(tmp_path) as stage:
        gate, stopped = asyncio.Event(), asyncio.Event()
        stage.runtime.play("slow", Script(gates={2: gate}, stop_gate=stopped))
        ident = await stage.submit("slow")
        task = await stage.store.until(ident, lambda task: task.tokens_kept == 2)
        await stage.delete(ident)
        gate.set()
        await unreadable(stage, ident)
        stopped.set()
        await stage.ended(ident)
        stage.clock.advance(1.1)
        await stage.store.gone(ident)
        with pytest.raises(StaleTask):
            await stage.store.apply(
                Change(task.id, frozenset({Status.RUNNING}), task.next_seq, Status.RUNNING, 1, tokens_kept=3)
            )
        assert await stage.store.task(ident) is None


@scenario
async def test_the_viewers_of_a_slow_stop_still_get_the_last_event(tmp_path: Path) -> None:
    """The rows stay for a moment after the end, not after the delete."""
    async with started(tmp_path) as stage:
        stopped = asyncio.Event()
        stage.runtime.play("slow", Script(gates={2: asyncio.Event()}, stop_gate=stopped))
        ident = await stage.submit("slow")
        await stage.store.until(ident, lambda task: task.tokens_kept == 2)
        await stage.delete(ident)
        stage.clock.advance(30)
        stopped.set()
        task = await stage.ended(ident)
        assert task.purge_at == stage.clock.now() + 1_000_000


@scenario
async def test_a_delete_does_not_run_after_a_text_that_is_faster_than_the_disk(tmp_path: Path) -> None:
    """A run that commits without a pause gives way to the delete."""
    async with started(tmp_path) as stage:
        gates = {position: asyncio.Event() for position in range(1, 6)}
        stage.runtime.play("hold", Script(length=6, gates=gates))
        ident = await stage.submit("hold")
        await stage.store.until(ident, lambda task: task.tokens_kept == 1)
        stage.store.before_apply = overtaken(gates, lambda change: change.hidden is True)
        await stage.delete(ident)
        assert (await stage.ended(ident)).status is Status.CANCELLED


@scenario
async def test_a_caller_who_leaves_in_mid_delete_does_not_undo_it(tmp_path: Path) -> None:
    """What was hidden is also cancelled; it does not run on unseen."""
    async with started(tmp_path) as stage:
        stage.runtime.play("hold", Script(gates={1: asyncio.Event()}))
        ident = await stage.submit("hold")
        await stage.store.until(ident, lambda task: task.tokens_kept == 1)
        stage.store.commits.clear()
        asked = asyncio.create_task(stage.delete(ident))
        await turns(20)
        asked.cancel()
        await asyncio.gather(asked, return_exceptions=True)
        stage.store.commits.set()
        task = await stage.ended(ident)
        assert (task.status, task.hidden) == (Status.CANCELLED, True)


@pytest.mark.proves("C-23")
@scenario
async def test_what_was_hidden_is_cancelled_as_soon_as_the_disk_lets_it(tmp_path: Path) -> None:
    """The delete stands, and its caller could not ask again: nothing of that name is there any more."""
    async with started(tmp_path) as stage:
        gate = asyncio.Event()
        stage.runtime.play("hold", Script(gates={2: gate}))
        ident = await stage.submit("hold")
        await stage.store.until(ident, lambda task: task.tokens_kept == 2)
        refused = 0

        async def refuse(change: Change) -> None:
            nonlocal refused
            if change.status is Status.CANCELLING and refused < 3:
                refused += 1
                raise StorageFull("no room")

        stage.store.before_apply = refuse
        await stage.delete(ident)
        await unreadable(stage, ident)
        task = await stage.ended(ident)
        assert (task.status, task.hidden, refused) == (Status.CANCELLED, True, 3)
        assert stage.reports == []


@scenario
async def test_a_cancel_that_the_disk_refuses_does_not_hold_up_the_stop(tmp_path: Path) -> None:
    """The next start does it."""
    async with started(tmp_path) as stage:
        stage.runtime.play("hold", Script(gates={2: asyncio.Event()}))
        ident = await stage.submit("hold")
        await stage.store.until(ident, lambda task: task.tokens_kept == 2)

        async def refuse(change: Change) -> None:
            if change.status is Status.CANCELLING:
                raise StorageFull("no room")

        stage.store.before_apply = refuse
        await stage.delete(ident)
        async with asyncio.timeout(60):
            await stage.stop(seconds=0)
        assert (await stage.store.reaches(ident, Status.RUNNING)).hidden
        stage.store.before_apply = None
        await stage.restart()
        assert (await stage.ended(ident)).status is Status.CANCELLED


@pytest.mark.proves("C-23")
@pytest.mark.parametrize("state", [Status.QUEUED, Status.LOADING, Status.RUNNING])
@scenario
async def test_what_was_hidden_and_not_cancelled_ends_with_the_next_start(tmp_path: Path, state: Status) -> None:
    """The process was gone between the two writes: nobody would read what a new one goes on with."""
    async with started(tmp_path) as stage:
        stage.runtime.play("hold", Script(gates={2: asyncio.Event()}))
        prompt = "hold"
        if state is Status.QUEUED:
            await stage.store.reaches(await stage.submit("hold"), Status.RUNNING)
            prompt = "other"
        if state is Status.LOADING:
            stage.runtime.load_gate = asyncio.Event()
        ident = await stage.submit(prompt)
        task = await stage.store.reaches(ident, state)
        await stage.store.apply(
            Change(task.id, frozenset({state}), task.next_seq, state, task.created_at, hidden=True)
        )
        await stage.restart()
        assert (await stage.ended(ident)).status is Status.CANCELLED
