"""What the field has seen go wrong with who runs what, and how often: on the real store, with scripted models."""

import asyncio
import itertools
from pathlib import Path
from typing import Any

import pytest
from tests.unit.engine.stage import Stage, opened, scenario, started, turns, types

from perdure.domain.lifecycle import TERMINAL, Status
from perdure.domain.recovery import OnRestart
from perdure.engine.dispatch import Dispatcher
from perdure.engine.record import Recorder
from perdure.engine.run import Runner
from perdure.engine.wakeups import Wakeups
from perdure.ports.runtime import JobFailed
from perdure.testing.scripted_runtime import Script, ScriptedRuntime

DAY_SECONDS = 86_400
TASKS, WORKERS, PROCESSES = 1_000, 8, 2
BOUND_SECONDS = 240  # of the wall's time, for a machine that has other work


async def all_that_is_read(stage: Stage, ident: str) -> list[Any]:
    """Row, object, history and log."""
    record = await stage.store.task(ident)
    assert record is not None
    response = await stage.engine.response(stage.principal, ident)
    return [record, response, await stage.store.attempts(record.id), await stage.log(ident)]


async def brought_to(stage: Stage, status: Status) -> str:
    """A response that ended so."""
    stage.runtime.play("fails", Script(troubles=[(1, JobFailed("broken"))]))
    stage.runtime.play("hold", Script(gates={1: asyncio.Event()}))
    match status:
        case Status.FAILED:
            return await stage.submit("fails")
        case Status.INCOMPLETE:
            return await stage.submit(max_output_tokens=2)
        case Status.CANCELLED:
            ident = await stage.submit("hold")
            await stage.store.until(ident, lambda task: task.tokens_kept == 1)
            await stage.cancel(ident)
            return ident
        case _:
            return await stage.submit()


@pytest.mark.proves("C-01")
@pytest.mark.parametrize("status", sorted(TERMINAL))
@scenario
async def test_a_cancel_of_what_has_ended_changes_nothing_however_it_ended(tmp_path: Path, status: Status) -> None:
    """All four ends, a day later, twice: row, object, history and log are the same."""
    async with started(tmp_path) as stage:
        ident = await brought_to(stage, status)
        assert (await stage.ended(ident)).status is status
        before = await all_that_is_read(stage, ident)
        stage.clock.advance(DAY_SECONDS)
        for _ in range(2):
            await stage.engine.cancel(stage.principal, ident, background_only=True)
        assert await all_that_is_read(stage, ident) == before


@pytest.mark.proves("C-08")
@pytest.mark.parametrize(
    ("policy", "background"), [(OnRestart.FAIL, False), (OnRestart.RETRY, True), (OnRestart.RESUME, True)]
)
@scenario
async def test_a_text_that_takes_a_month_is_started_once(tmp_path: Path, policy: OnRestart, background: bool) -> None:
    """Days go by, the clock is also set back and forth, neighbours come and go, every loop looks again and again:
    time alone starts nothing a second time and ends nothing."""
    async with started(tmp_path, slots=2) as stage:
        gate = asyncio.Event()
        stage.runtime.play("long", Script(gates={2: gate}))
        ident = await stage.submit("long", on_restart=policy, background=background)
        viewer = asyncio.create_task(stage.follow(ident))
        before = await stage.store.until(ident, lambda task: task.tokens_kept == 2)
        for day in range(3, 31, 3):
            stage.clock.advance(3 * DAY_SECONDS)
            stage.clock.step((-1) ** day * 7 * DAY_SECONDS)
            await stage.ended(await stage.submit(f"day {day}", store=False))
            await asyncio.sleep(2.5)  # the loop's time: each loop looks at least twice
        assert await stage.store.task(ident) == before
        gate.set()
        ended = await stage.ended(ident)
        assert (ended.status, ended.attempt, ended.crashes) == (Status.COMPLETED, 1, 0)
        assert [job.ident for job in stage.runtime.jobs].count(ident) == 1
        notes = [step.note for step in await stage.store.attempts(ended.id)]
        assert notes == ["submitted", "claimed", "started", "completed"]
        assert await viewer == await stage.log(ident)


def worker(stage: Stage, runtime: ScriptedRuntime, boot: str) -> Dispatcher:
    """A dispatcher of its own with its own models and slots, as of another process that nobody has kept away."""
    recorder = Recorder(stage.store, stage.clock, Wakeups())

    def report(what: str, error: BaseException) -> None:
        stage.reports.append((what, error))

    runner = Runner(stage.store, runtime, recorder, report, boot=boot, crashes_max=3)
    return Dispatcher(stage.store, runtime, recorder, runner, report, boot=boot, crashes_max=3)


@pytest.mark.proves("C-14")
def test_a_thousand_queued_tasks_are_a_thousand_runs(tmp_path: Path) -> None:
    """Eight at a time, by two that take from one queue without knowing of each other."""
    asyncio.run(asyncio.wait_for(thousand_runs(tmp_path), BOUND_SECONDS))


async def thousand_runs(folder: Path) -> None:
    """The first eight are held until every slot is taken, so that from then on all work at once."""
    async with opened(folder, queue_max=TASKS) as stage:
        gate = asyncio.Event()
        runtimes = [ScriptedRuntime(slots=WORKERS // PROCESSES) for _ in range(PROCESSES)]
        for runtime, number in itertools.product(runtimes, range(WORKERS)):
            runtime.play(f"p{number}", Script(gates={0: gate}))
        ids = await asyncio.gather(*(stage.submit(f"p{n}", max_output_tokens=1) for n in range(TASKS)))
        workers = [worker(stage, runtime, f"process-{n}") for n, runtime in enumerate(runtimes)]
        loops = [asyncio.create_task(each.serve()) for each in workers]
        while sum(runtime.busy for runtime in runtimes) < WORKERS:
            await turns(1)
        gate.set()
        for ident in ids:
            ended = await stage.ended(ident)
            assert (ended.status, ended.attempt) == (Status.INCOMPLETE, 1)
        for each in workers:
            each.stop()
        await asyncio.gather(*loops)
        for each in workers:
            await each.finish()
        jobs = [job.ident for runtime in runtimes for job in runtime.jobs]
        assert sorted(jobs) == sorted(ids)
        assert all(runtime.busiest == WORKERS // PROCESSES for runtime in runtimes)
        assert stage.reports == []


@pytest.mark.proves("C-03")
@scenario
async def test_no_step_of_a_run_writes_what_the_client_asked_for(tmp_path: Path) -> None:
    """Over a whole life, with a crash in it, the stored request is the one that was accepted, and so is its flag."""
    async with started(tmp_path) as stage:
        gates = {position: asyncio.Event() for position in (1, 3)}
        stage.runtime.play("hold", Script(gates=gates))
        ident = await stage.submit("hold", on_restart=OnRestart.RETRY)
        seen = [await stage.store.until(ident, lambda task: task.tokens_kept == 1)]
        await stage.restart()
        seen.append(await stage.store.until(ident, lambda task: task.attempt == 2 and task.tokens_kept == 1))
        gates[1].set()
        await stage.engine.cancel(stage.principal, ident, background_only=True)
        seen.append(await stage.ended(ident))
        assert {task.background for task in seen} == {True}
        assert len({task.request for task in seen}) == 1
        assert types(await stage.log(ident))[-1] == "cancelled"


@pytest.mark.proves("C-03")
@pytest.mark.parametrize("state", [Status.QUEUED, Status.LOADING, Status.RUNNING, Status.CANCELLING])
@scenario
async def test_a_cancel_is_refused_in_no_state(tmp_path: Path, state: Status) -> None:
    """Each state is held and asked for its end through the door that takes background work only."""
    async with started(tmp_path, slots=2) as stage:
        stopped = asyncio.Event()
        for number in range(3):
            stage.runtime.play(f"p{number}", Script(gates={1: asyncio.Event()}, stop_gate=stopped))
        if state is Status.LOADING:
            stage.runtime.load_gate = asyncio.Event()
        ident = [await stage.submit(f"p{number}") for number in range(3)][-1 if state is Status.QUEUED else 0]
        await stage.store.reaches(ident, Status.RUNNING if state is Status.CANCELLING else state)
        asked = [asyncio.create_task(stage.engine.cancel(stage.principal, ident, background_only=True))]
        if state is Status.CANCELLING:
            await stage.store.reaches(ident, Status.CANCELLING)
            asked.append(asyncio.create_task(stage.engine.cancel(stage.principal, ident, background_only=True)))
        await turns(50)
        stopped.set()
        await asyncio.gather(*asked)
        task = await stage.ended(ident)
        assert (task.status, task.background) == (Status.CANCELLED, True)
