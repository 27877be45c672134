"""A thousand cancels against whatever else may end a response: one end, and everybody is told the same.

Moments are drawn by seed, as so much progress of the text, or so many turns of the event loop. What the clients were
told is checked against the rows, and each response's history against the model of one that does one thing at a time.
"""

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.unit.engine.histories import DONE, NOT_FOUND, Clients
from tests.unit.engine.stage import Stage, scenario, started, turns, types

from perdure.domain.errors import NotFound
from perdure.domain.lifecycle import TERMINAL, Status
from perdure.domain.recovery import OnRestart
from perdure.ports.runtime import JobFailed, RuntimeCrashed
from perdure.ports.storage import TaskRecord
from perdure.testing.scripted_runtime import Script

SLOTS = 4
WAVE = 25
WAVES = 5
FEW = 10
EARLY = 0.3  # of the moments are a number of turns after the create; the others go by the text
LATE = 10  # of a wave are cancelled after the restart
SLOW = 0.6
GRACE_SECONDS = 1.1


class Race:
    """A wave of responses that run, and the clients who get at them."""

    def __init__(self, stage: Stage, seed: int) -> None:
        self.stage = stage
        self.clients = Clients(stage)
        self.chance = random.Random(seed)
        self.told: dict[str, str] = {}

    async def wave(
        self, script: Callable[[random.Random], Script], policies: Sequence[OnRestart] = (OnRestart.RESUME,)
    ) -> list[str]:
        """Some responses, accepted at once."""
        made: list[Coroutine[Any, Any, str]] = []
        for number in range(WAVE):
            prompt = f"{self.chance.random()}"
            self.stage.runtime.play(prompt, script(self.chance))
            made.append(self.clients.create(prompt, policies[number % len(policies)]))
        return await asyncio.gather(*made)

    async def moment(self, ident: str) -> None:
        """Wait for some place in the life of a response."""
        if self.chance.random() < EARLY:
            await turns(self.chance.randrange(60))
            return
        due = self.chance.randrange(6)
        await self.stage.store.until(ident, lambda task: task.status in TERMINAL or task.tokens_kept >= due)
        await turns(self.chance.randrange(8))

    async def commits(self, ident: str, count: int) -> None:
        """Wait for so many steps of any response of the wave; `ident` is one of them."""
        due = len(self.stage.store.changes) + count
        await self.stage.store.until(ident, lambda _: len(self.stage.store.changes) >= due)

    async def cancel(self, ident: str) -> None:
        """Ask for the end at some moment."""
        await self.moment(ident)
        self.told[ident] = await self.clients.cancel(ident)

    async def settled(self, ident: str) -> str:
        """How a response has ended: one terminal event, and the row, the task and the response say the same."""
        status = str((await self.stage.ended(ident)).status)
        assert types(await self.stage.log(ident))[-1] == status
        assert await self.clients.task(ident) == status
        assert await self.clients.response(ident) == status
        assert self.told.get(ident, status) == status
        return status


def seeds(part: int) -> range:
    """Those of the waves of a part of a test."""
    return range(part * WAVES, (part + 1) * WAVES)


async def cancelled_waves(folder: Path, part: int, script: Callable[[random.Random], Script]) -> Counter[str]:
    """Cancel every response of some waves at a moment of its own, twice now and then; how they ended."""
    ends = Counter[str]()
    async with started(folder, slots=SLOTS) as stage:
        for seed in seeds(part):
            race = Race(stage, seed)
            idents = await race.wave(script)
            again = race.chance.sample(idents, 5)
            async with asyncio.TaskGroup() as group:
                for ident in [*idents, *again]:
                    group.create_task(race.cancel(ident))
                group.create_task(race.clients.tasks())
            ends.update([await race.settled(ident) for ident in idents])
            race.clients.check()
    return ends


@pytest.mark.proves("P5", "C-03", "C-04")
@pytest.mark.parametrize("part", range(3))
@scenario
async def test_cancels_against_completion(tmp_path: Path, part: int) -> None:
    """Texts that end by themselves, some of them at once."""
    ends = await cancelled_waves(tmp_path, part, lambda chance: Script(length=chance.randrange(1, 7)))
    assert ends.total() == WAVES * WAVE
    assert set(ends) == {"completed", "cancelled"}
    assert min(ends.values()) > FEW


def failing(chance: random.Random) -> Script:
    """A text that fails somewhere: the model refuses it, its process dies each time, or the code has a fault.

    More often than it takes: a trouble is used up unseen where the text makes room for another in the same moment.
    """
    at = chance.randrange(4)
    refused, died, fault = JobFailed("no"), RuntimeCrashed("killed"), RuntimeError("a fault")
    return Script(
        troubles=[
            (at, error) for error in chance.choice([[refused] * 4, [died] * 9, [fault] * 9, [died, *[refused] * 4]])
        ]
    )


@pytest.mark.proves("P5", "C-03", "C-04")
@pytest.mark.parametrize("part", range(2))
@scenario
async def test_cancels_against_failure(tmp_path: Path, part: int) -> None:
    """Texts that fail by themselves, after crashes too."""
    ends = await cancelled_waves(tmp_path, part, failing)
    assert ends.total() == WAVES * WAVE
    assert set(ends) == {"failed", "cancelled"}
    assert min(ends.values()) > FEW


@pytest.mark.proves("P5", "P8", "R4", "C-03", "C-04", "C-22")
@pytest.mark.parametrize("part", range(2))
@scenario
async def test_cancels_against_recovery(tmp_path: Path, part: int) -> None:
    """The process ends while they are asked for, and the next one settles what it finds. Others come right after."""
    ends = Counter[str]()
    cut_off = held = 0
    async with started(tmp_path, slots=WAVE - LATE) as stage:
        for seed in seeds(part):
            race = Race(stage, seed)
            stopped = asyncio.Event()
            idents = await race.wave(partial(slow_to_stop, stopped), tuple(OnRestart))
            early, late = idents[:-LATE], idents[-LATE:]
            asked = [asyncio.create_task(race.cancel(ident)) for ident in early]
            await race.commits(idents[0], race.chance.randrange(20, 65))
            found = [await stage.store.task(ident) for ident in idents]
            held += sum(task is not None and task.status is Status.CANCELLING for task in found)
            stopped.set()  # too late for anybody to act on it in this process
            await race.clients.restart()
            cut_off += sum(task.cancelled() for task in asked)
            async with asyncio.TaskGroup() as group:
                for ident in [*late, *early[:5]]:
                    group.create_task(race.cancel(ident))
            ends.update([await race.settled(ident) for ident in idents])
            race.clients.check()
    assert set(ends) == {"completed", "failed", "cancelled"}
    assert cut_off > FEW
    assert held


def slow_to_stop(stopped: asyncio.Event, chance: random.Random) -> Script:
    """A text that some models are slow to draw, and slow to stop when they are told to."""
    length = chance.randrange(2, 9)
    if chance.random() < SLOW:
        return Script(length, gates={chance.randrange(length): stopped}, stop_gate=stopped)
    return Script(length)


@pytest.mark.proves("P5", "C-23")
@pytest.mark.parametrize("part", range(2))
@scenario
async def test_cancels_against_deletes(tmp_path: Path, part: int) -> None:
    """Whichever comes first: what is deleted is gone for everybody, and stays gone."""
    answers = Counter[str]()
    async with started(tmp_path, slots=SLOTS) as stage:
        for seed in seeds(part):
            race = Race(stage, seed)
            idents = await race.wave(lambda chance: Script(length=chance.randrange(1, 7)))
            async with asyncio.TaskGroup() as group:
                for ident in idents:
                    group.create_task(deleted_at_some_moment(race, ident))
            stage.clock.advance(GRACE_SECONDS)
            for ident in idents:
                await stage.store.gone(ident)
                assert await race.clients.delete(ident) == NOT_FOUND
            race.clients.check()
            answers.update(race.told.values())
    assert answers.total() == WAVES * WAVE
    assert set(answers) == {"completed", "cancelled", NOT_FOUND}


async def deleted_at_some_moment(race: Race, ident: str) -> None:
    """A cancel and two deletes of one response, while others look at it."""
    await race.moment(ident)
    clients = race.clients

    async def read() -> None:
        while await clients.response(ident) != NOT_FOUND:
            await turns(race.chance.randrange(1, 20))
        assert await clients.task(ident) == NOT_FOUND

    async def delete() -> str:
        await turns(race.chance.randrange(30))
        return await clients.delete(ident)

    async def cancel() -> None:
        await turns(race.chance.randrange(30))
        race.told[ident] = await clients.cancel(ident)

    *_, first, second = await asyncio.gather(read(), cancel(), delete(), delete())
    assert DONE in (first, second)


@pytest.mark.parametrize("status", [Status.RUNNING, Status.COMPLETED])
@scenario
async def test_a_read_that_a_delete_overtakes_finds_nothing(tmp_path: Path, status: Status) -> None:
    """The row was there, and its events are gone when they are asked for: half a response is none."""
    async with started(tmp_path) as stage:
        if status is Status.RUNNING:
            stage.runtime.play("text", Script(gates={1: asyncio.Event()}))
        reads: list[Callable[[str], Awaitable[object]]] = [
            stage.response,
            lambda ident: stage.engine.events(stage.principal, ident, -1, 10),
        ]
        reader = asyncio.current_task()
        assert reader is not None
        for read in reads:
            ident = await stage.submit("text")
            await stage.store.reaches(ident, status)

            stage.store.after_task = partial(overtake, stage, reader)
            with pytest.raises(NotFound):
                await read(ident)
            assert stage.store.after_task is None


async def overtake(stage: Stage, reader: asyncio.Task[Any], task: TaskRecord) -> None:
    """Between two looks of one reader, a response ends and is removed."""
    if asyncio.current_task() is reader:
        stage.store.after_task = None
        await stage.cancel(task.ident)
        await stage.store.purge([task.id])
