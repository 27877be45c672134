"""What has ended does not change any more, which is why a reader may keep it for good."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.unit.engine.stage import Stage, opened, scenario, started, turns

from perdure.domain.errors import NotFound
from perdure.domain.lifecycle import TERMINAL, UNFINISHED, Status
from perdure.engine.signed import Reading
from perdure.ports.runtime import JobFailed
from perdure.testing.scripted_runtime import Script


def readings(stage: Stage, ident: str) -> list[Reading[Any]]:
    """Everything that shows one response by itself."""
    engine, me = stage.engine, stage.principal
    return [
        engine.response(me, ident),
        engine.task(me, ident),
        engine.events(me, ident, -1, 1_000),
        engine.events(me, ident, 2, 2),
    ]


async def shown(stage: Stage, ident: str) -> list[tuple[str | None, Any]]:
    """What identifies each, and what is read."""
    found = [await reading.find() for reading in readings(stage, ident)]
    return [(each.settled, await each.render()) for each in found]


async def each_end(stage: Stage) -> dict[str, Status]:
    """A response for each way to end, with its status."""
    held = asyncio.Event()
    stage.runtime.play("fails", Script(troubles=[(1, JobFailed("no"))]))
    stage.runtime.play("held", Script(gates={1: held}))
    ended = {
        await stage.submit("whole"): Status.COMPLETED,
        await stage.submit("cut", max_output_tokens=2): Status.INCOMPLETE,
        await stage.submit("fails"): Status.FAILED,
    }
    running = await stage.submit("held")
    queued = await stage.submit("waits")
    await stage.cancel(queued)
    await stage.store.reaches(running, Status.RUNNING)
    await stage.cancel(running)
    held.set()
    ended |= {queued: Status.CANCELLED, running: Status.CANCELLED}
    for ident, status in ended.items():
        assert (await stage.ended(ident)).status is status
    return ended


@pytest.mark.proves("C-01")
@scenario
async def test_nothing_that_happens_later_changes_what_has_ended(tmp_path: Path) -> None:
    """Not a late cancel, other work, the sweep or a restart; and no step starts from an end."""
    async with started(tmp_path) as stage:
        ended = await each_end(stage)
        before = {ident: await shown(stage, ident) for ident in ended}
        for ident in ended:
            assert None not in [settled for settled, _ in before[ident]]
            await stage.cancel(ident)
        await stage.ended(await stage.submit("later"))
        gone = await stage.submit("gone")
        await stage.ended(gone)
        await stage.delete(gone)
        assert {ident: await shown(stage, ident) for ident in ended} == before
        changes = list(stage.store.changes)
        await stage.restart()
        stage.clock.advance(3_600)
        await stage.ended(await stage.submit("after the restart"))
        await turns(50)
        assert {ident: await shown(stage, ident) for ident in ended} == before
        for change in changes + stage.store.changes:
            assert change.from_status <= UNFINISHED


@scenario
async def test_what_identifies_an_end_is_no_other_ones(tmp_path: Path) -> None:
    """No two responses share it, however alike they are."""
    async with started(tmp_path) as stage:
        ended = [*await each_end(stage), *await each_end(stage)]
        assert len({(await shown(stage, ident))[0][0] for ident in ended}) == len(ended)


@scenario
async def test_what_has_not_ended_is_not_settled(tmp_path: Path) -> None:
    """Queued, loading, running, cancelling: each may be something else at the next look."""
    async with started(tmp_path) as stage:
        stage.runtime.load_gate = asyncio.Event()
        stop = asyncio.Event()
        stage.runtime.play("held", Script(gates={1: asyncio.Event()}, stop_gate=stop))
        held, waits = await stage.submit("held"), await stage.submit("waits")
        cancelling: asyncio.Task[None] | None = None
        for status in (Status.LOADING, Status.RUNNING, Status.CANCELLING):
            await stage.store.reaches(held, status)
            for ident in (held, waits):
                assert {settled for settled, _ in await shown(stage, ident)} == {None}
            if status is Status.LOADING:
                stage.runtime.load_gate.set()
            elif status is Status.RUNNING:
                cancelling = asyncio.create_task(stage.cancel(held))
        stop.set()
        assert cancelling is not None
        await cancelling
        assert (await stage.ended(held)).status in TERMINAL


@scenario
async def test_what_is_removed_after_it_was_found_is_not_rendered(tmp_path: Path) -> None:
    """Nothing of what is left of it is given out as if it were whole."""
    async with opened(tmp_path) as stage:
        await stage.engine.start()
        ident = await stage.submit("whole")
        task = await stage.ended(ident)
        found = [await reading.find() for reading in readings(stage, ident)]
        await stage.store.purge([task.id])
        for each in found:
            with pytest.raises(NotFound):
                await each.render()
        await stage.stop(seconds=0)
