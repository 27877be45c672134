"""Foreground work stops when the last one who waits for it has left."""

import asyncio
from pathlib import Path

import pytest
from tests.unit.engine.stage import Stage, scenario, started, turns

from perdure.domain.errors import NotFound
from perdure.domain.events import Event
from perdure.domain.lifecycle import Status
from perdure.domain.principal import Principal
from perdure.engine.attendance import Attendance
from perdure.ports.storage import TaskRecord
from perdure.testing.scripted_runtime import Script

Caller = asyncio.Task[list[Event]]


async def held(stage: Stage, callers: int, *, background: bool = False) -> tuple[TaskRecord, list[Caller]]:
    """A running response that does not end by itself, and those who wait for it."""
    stage.runtime.play("hold", Script(gates={1: asyncio.Event()}))
    ident = await stage.submit("hold", background=background)
    waiting = [asyncio.create_task(stage.follow(ident)) for _ in range(callers)]
    return await stage.store.until(ident, lambda task: task.tokens_kept == 1), waiting


@scenario
async def test_foreground_work_stops_when_its_caller_leaves(tmp_path: Path) -> None:
    """Within a second, and the slot is free."""
    async with started(tmp_path) as stage:
        task, (caller,) = await held(stage, 1)
        caller.cancel()
        async with asyncio.timeout(10):
            assert (await stage.ended(task.ident)).status is Status.CANCELLED
        await stage.ended(await stage.submit("next"))


@scenario
async def test_foreground_work_goes_on_while_one_is_left(tmp_path: Path) -> None:
    """The last one counts, not the first."""
    async with started(tmp_path) as stage:
        task, (first, last) = await held(stage, 2)
        first.cancel()
        await asyncio.sleep(3)  # the loop's time: longer than anybody is waited for
        assert (await stage.store.task(task.ident)) == task
        last.cancel()
        assert (await stage.ended(task.ident)).status is Status.CANCELLED


@scenario
async def test_foreground_work_that_nobody_comes_for_stops(tmp_path: Path) -> None:
    """Its caller was gone before he could wait."""
    async with started(tmp_path) as stage:
        task, _ = await held(stage, 0)
        assert (await stage.ended(task.ident)).status is Status.CANCELLED


@scenario
async def test_background_work_never_depends_on_a_viewer(tmp_path: Path) -> None:
    """Viewers come and go; the work ends by itself."""
    async with started(tmp_path) as stage:
        task, (viewer,) = await held(stage, 1, background=True)
        viewer.cancel()
        await asyncio.sleep(3)  # the loop's time: longer than anybody is waited for
        assert (await stage.store.task(task.ident)) == task


@scenario
async def test_one_who_may_not_see_a_response_does_not_end_it(tmp_path: Path) -> None:
    """Whoever is turned away has never attended, so nobody has left."""
    async with started(tmp_path) as stage:
        stage.runtime.play("hold", Script(gates={1: asyncio.Event()}))
        ident = await stage.submit("hold", background=False)
        with pytest.raises(NotFound):
            async with stage.engine.follow(Principal(99, "stranger", frozenset()), ident, -1):
                pass
        caller = asyncio.create_task(stage.follow(ident))
        await stage.store.until(ident, lambda task: task.tokens_kept == 1)
        caller.cancel()


@scenario
async def test_a_stopping_service_is_not_a_caller_who_has_left(tmp_path: Path) -> None:
    """Foreground work whose callers go while the service stops, by themselves or not, is left to its policy."""
    async with started(tmp_path) as stage:
        task, (impatient, patient) = await held(stage, 2)
        stage.engine.drain()
        impatient.cancel()
        await turns(20)
        patient.cancel()
        await turns(20)
        await stage.stop(seconds=0)
        left = await stage.store.task(task.ident)
        assert left is not None
        assert (left.status, left.boot) == (Status.RUNNING, None)


@scenario
async def test_those_who_have_left_take_no_memory(tmp_path: Path) -> None:
    """Neither a reader nor an expectation leaves a count behind."""
    empty: list[str] = []
    attendance = Attendance(empty.append)
    with attendance.attend("unexpected"):
        pass  # what a restart has left is for nobody here: no passer-by ends it by leaving
    for number in range(3):
        attendance.expect(f"r{number}")
        with attendance.attend(f"r{number}"), attendance.attend(f"r{number}"):
            assert len(attendance) == 2
    attendance.expect("r9")
    await asyncio.sleep(1.5)  # the loop's time
    assert empty == ["r0", "r1", "r2", "r9"]
    assert vars(attendance)["_readers"] == {}
    assert vars(attendance)["_expected"] == set()
