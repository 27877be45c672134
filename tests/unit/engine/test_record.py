"""One step of one task: whole, in its turn, and told only when it is durable."""

import asyncio
from pathlib import Path

import pytest
from tests.unit.engine.stage import opened, scenario, turns, types

from perdure.domain.lifecycle import Status
from perdure.engine.record import Recorder
from perdure.engine.wakeups import Wakeups
from perdure.ports.storage import StaleTask


@pytest.mark.proves("P4", "P5")
@scenario
async def test_of_two_who_move_a_task_from_one_state_one_is_stale(tmp_path: Path) -> None:
    """Nothing of the loser is kept, not his event either."""
    async with opened(tmp_path) as stage:
        ident = await stage.submit()
        recorder = Recorder(stage.store, stage.clock, Wakeups())
        task = await stage.store.task(ident)
        assert task is not None
        journals = [await recorder.journal(task) for _ in range(2)]
        await recorder.close_cancelled(task, journals[0])
        with pytest.raises(StaleTask):
            await recorder.move(task, Status.LOADING, journals[1].claim(), boot="boot-1")
        assert types(await stage.log(ident)) == ["created", "queued", "cancelled"]


@pytest.mark.proves("P4")
@scenario
async def test_a_journal_is_read_from_the_rows_each_time(tmp_path: Path) -> None:
    """A step that was refused has left nothing in memory: the next one has the number that the row gives out."""
    async with opened(tmp_path) as stage:
        ident = await stage.submit()
        recorder = Recorder(stage.store, stage.clock, Wakeups())
        task = await stage.store.task(ident)
        assert task is not None
        (await recorder.journal(task)).claim()  # and nobody writes it
        assert (await recorder.journal(task)).claim()[0].seq == task.next_seq


@scenario
async def test_a_listener_is_woken_after_the_commit_and_not_before(tmp_path: Path) -> None:
    """Nobody hears of a step that a power cut could still take away."""
    async with opened(tmp_path) as stage:
        ident = await stage.submit()
        wakeups = Wakeups()
        recorder = Recorder(stage.store, stage.clock, wakeups)
        task = await stage.store.task(ident)
        assert task is not None
        stage.store.commits.clear()
        with wakeups.listen(ident) as hint:
            step = asyncio.create_task(recorder.close_cancelled(task, await recorder.journal(task)))
            await turns(30)
            assert not hint.is_set()
            stage.store.commits.set()
            await step
            assert hint.is_set()


@scenario
async def test_a_turn_is_given_in_the_order_of_asking_and_forgotten_after(tmp_path: Path) -> None:
    """Nobody overtakes, and the turns of finished tasks take no memory."""
    async with opened(tmp_path) as stage:
        recorder = Recorder(stage.store, stage.clock, Wakeups())
        order: list[str] = []

        async def take(name: str) -> None:
            async with recorder.turn(1):
                order.append(name)
                await turns(3)

        async def greedy() -> None:
            for _ in range(3):
                await take("greedy")

        await asyncio.gather(greedy(), take("other"))
        assert order == ["greedy", "other", "greedy", "greedy"]
        assert not recorder.turn(1).locked()
