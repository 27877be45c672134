"""The engine at work on a disk that refuses: who asked is told, what was drawn is held, no restart is needed.

As in `test_disk_faults` the n-th operation of the disk fails, for n = 1, 2, 3 ... until a verb goes through
untouched: full or broken, once or until two more writes were refused. The four take turns; `make soak STORE=10` makes
each of them at each place. One process lives through all of it. After each verb the file and its log, as a crash
would leave them, must be sound.
"""

import asyncio
import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import apsw
import pytest
from tests.soundness import unsound
from tests.unit.engine.stage import BriskLoop, Stage, StageStore, opened, said, undisturbed
from tests.unit.engine.test_recover import leave

from perdure.domain.errors import NotFound, StorageFailed, StorageFull, Unavailable
from perdure.domain.lifecycle import Status
from perdure.domain.recovery import OnRestart
from perdure.engine.record import Recorder
from perdure.engine.retain import Retain
from perdure.engine.wakeups import Wakeups
from perdure.testing.faulty_vfs import Fault, FaultyDisk, registered
from perdure.testing.scripted_runtime import Script

TOLD: dict[Fault, type[Unavailable]] = {Fault.FULL: StorageFull, Fault.IO: StorageFailed}
PLACES_MAX = 400
BOUND_SECONDS = 1_800  # of the loop's time: 90 of the wall's
WHOLE, KEPT = 5, 3
"""Tokens of a whole text, and of one that is under way."""
REFUSALS = 2
"""A lasting fault ends after so many more writes were tried."""
RETENTION_SECONDS = 60
DISK = "faulty-service"
LEFT = (
    (Status.RUNNING, OnRestart.RESUME, Status.COMPLETED),
    (Status.RUNNING, OnRestart.RETRY, Status.COMPLETED),
    (Status.CANCELLING, OnRestart.RESUME, Status.CANCELLED),
)
"""What a start finds, and what becomes of it."""


class FaultyStore(StageStore):
    """A store on a disk that is mended after some writes that came too early."""

    disk: FaultyDisk
    refused = writes = 0

    @classmethod
    async def open(cls, path: Path, **_: Any) -> "FaultyStore":
        """On the disk."""
        store = await super().open(path, vfs=DISK)
        assert isinstance(store, FaultyStore)
        return store

    async def _enter(self, call: str) -> None:
        await super()._enter(call)
        if call in ("boot", "submit", "apply", "purge") and self.disk.refused > self.refused:
            self.writes += 1
            if self.writes > REFUSALS:
                self.disk.mend()


class Place:
    """Where the disk fails while a verb is at work."""

    def __init__(self, stage: Stage, disk: FaultyDisk, fault: Fault, nth: int, *, lasting: bool) -> None:
        self.stage, self.nth = stage, nth
        self.prompt = f"prompt {nth}"
        self._disk, self._fault, self._lasting = disk, fault, lasting

    def begin(self) -> None:
        """From here on."""
        store = self.stage.store
        assert isinstance(store, FaultyStore)
        store.refused, store.writes = self._disk.refused, 0
        (self._disk.fail_from if self._lasting else self._disk.fail_once)(self._fault, self.nth)

    def end(self) -> None:
        """The disk works again."""
        self._disk.mend()

    async def told(self, verb: Awaitable[object]) -> bool:
        """Whether a verb was refused; the disk works again then."""
        (answer,) = await asyncio.gather(verb, return_exceptions=True)
        self.end()
        assert answer is None or isinstance(answer, str) or type(answer) is TOLD[self._fault]
        return isinstance(answer, Exception)

    async def runs(self, gate: int) -> tuple[str, asyncio.Event]:
        """A response whose text waits before a position, and what it waits for."""
        gates = {gate: asyncio.Event()}
        self.stage.runtime.play(self.prompt, Script(gates=gates))
        ident = await self.stage.submit(self.prompt)
        await self.stage.store.until(ident, lambda task: task.tokens_kept == gate)
        return ident, gates[gate]

    async def forget_all(self) -> None:
        """Begin anew with an empty store, which is sooner looked through."""
        store, client = self.stage.store, self.stage.principal.client_id
        kept = await store.tasks(client, status=None, limit=100, after=None, ascending=True)
        await store.purge([task.id for task in kept])
        await store.forget(self.stage.clock.now() * 2, 100)
        assert await store.unfinished(0, 1) == []

    async def completed(self, ident: str) -> None:
        """It comes to the end of an undisturbed run."""
        task = await self.stage.ended(ident)
        assert task.status is Status.COMPLETED
        await self.stage.log(ident)
        journal = await Recorder(self.stage.store, self.stage.clock, Wakeups()).journal(task)
        assert journal.text == undisturbed(self.prompt, WHOLE)


async def submit(place: Place) -> None:
    """The caller is told and nothing is kept; asked again, it is accepted."""
    stage = place.stage
    holds = asyncio.Event()
    stage.runtime.play("holds", Script(gates={0: holds}))
    before = await stage.submit("holds")
    await stage.store.reaches(before, Status.RUNNING)
    place.begin()
    if await place.told(stage.submit(place.prompt)):
        assert [task.ident for task in await stage.store.unfinished(0, 10)] == [before]
        await stage.submit(place.prompt)
    _, after = await stage.store.unfinished(0, 10)
    holds.set()
    await place.completed(after.ident)


async def append(place: Place) -> None:
    """What was drawn is held and kept later; the text goes on, and no token is drawn twice."""
    drawn = place.stage.runtime.drawn
    ident, gate = await place.runs(KEPT)
    place.begin()
    gate.set()
    await place.completed(ident)
    place.end()
    assert place.stage.runtime.drawn - drawn == WHOLE + 1


async def finish(place: Place) -> None:
    """The end is held and kept later; until then nobody sees it."""
    drawn = place.stage.runtime.drawn
    ident, gate = await place.runs(WHOLE)
    place.begin()
    gate.set()
    await place.completed(ident)
    place.end()
    assert place.stage.runtime.drawn - drawn == WHOLE + 1


async def cancel(place: Place) -> None:
    """Who asked is told, and the text is as it was; or it ends as soon as the disk takes it."""
    stage = place.stage
    ident, gate = await place.runs(KEPT)
    before = await stage.store.task(ident)
    place.begin()
    if await place.told(stage.cancel(ident)):
        assert await stage.store.task(ident) == before
        await stage.cancel(ident)
    assert (await stage.ended(ident)).status is Status.CANCELLED
    assert said(await stage.log(ident)) == undisturbed(place.prompt, KEPT)
    gate.set()


async def cancel_queued(place: Place) -> None:
    """Who asked is told, and the response still waits; or it has ended."""
    stage = place.stage
    holds = asyncio.Event()
    stage.runtime.play("holds", Script(gates={0: holds}))
    before = await stage.submit("holds")
    await stage.store.reaches(before, Status.RUNNING)
    ident = await stage.submit(place.prompt)
    place.begin()
    if await place.told(stage.cancel(ident)):
        waiting = await stage.store.task(ident)
        assert waiting is not None
        assert waiting.status is Status.QUEUED
        await stage.cancel(ident)
    assert (await stage.ended(ident)).status is Status.CANCELLED
    holds.set()
    await stage.ended(before)


async def delete(place: Place) -> None:
    """Who asked is told, and all of it can be read; or all of it is gone."""
    stage = place.stage
    ident = await stage.submit(place.prompt)
    await stage.ended(ident)
    place.begin()
    if await place.told(stage.delete(ident)):
        await place.completed(ident)
        await stage.delete(ident)
    with pytest.raises(NotFound):
        await stage.response(ident)
    assert await stage.store.task(ident) is None


async def recover(place: Place) -> None:
    """A start settles everything all the same, and all of it comes to its right end."""
    stage = place.stage
    await stage.kill()
    left = [await leave(stage, state, policy, prompt=place.prompt, note="left") for state, policy, _ in LEFT]
    stage.engine = stage.new_engine()
    place.begin()
    assert await stage.engine.start() == len(left)
    place.end()
    for task, (_, _, end) in zip(left, LEFT, strict=True):
        if end is Status.COMPLETED:
            await place.completed(task.ident)
        assert (await stage.ended(task.ident)).status is end


async def retain(place: Place) -> None:
    """A page of old responses goes with the sweep, or with the next one, all of it at once; the names stay."""
    stage = place.stage
    old = [await stage.ended(await stage.submit(place.prompt)) for _ in range(2)]
    stage.clock.advance(RETENTION_SECONDS + 1)
    sweep = Retain(stage.store, stage.clock, lambda _, error: pytest.fail(repr(error)), RETENTION_SECONDS).sweep
    place.begin()
    names = [stage.principal.client_id] * len(old)
    if await place.told(_none(sweep())):
        if [await stage.store.expired(task.ident) for task in old] != names:  # or it went, and what came then did not
            for task in old:
                assert await stage.store.expired(task.ident) is None
                await place.completed(task.ident)
        await sweep()
    assert [await stage.store.expired(task.ident) for task in old] == names
    assert [await stage.store.task(task.ident) for task in old] == [None] * len(old)


async def _none(verb: Awaitable[object]) -> None:
    await verb


VERBS: tuple[Callable[[Place], Awaitable[None]], ...] = (
    submit, append, finish, cancel, cancel_queued, delete, recover, retain,
)  # fmt: skip


WAYS = [(fault, lasting) for lasting in (False, True) for fault in Fault]


@pytest.mark.proves("P3", "P4", "P5", "E-12")
@pytest.mark.parametrize("verb", VERBS, ids=lambda verb: verb.__name__)
def test_a_verb_lives_through_every_refusal(
    tmp_path: Path, verb: Callable[[Place], Awaitable[None]], pytestconfig: pytest.Config
) -> None:
    """At each place where it touches the disk; the service goes on without a restart."""
    for turn in range(1 if int(pytestconfig.getoption("--store-soak") or 1) == 1 else len(WAYS)):
        folder = tmp_path / str(turn)
        folder.mkdir()
        with asyncio.Runner(loop_factory=BriskLoop) as runner:
            runner.run(_every_place(folder, verb, turn))
        assert unsound(folder / "perdure.db") == []


async def _every_place(folder: Path, verb: Callable[[Place], Awaitable[None]], turn: int) -> None:
    disk = FaultyStore.disk = FaultyDisk(DISK)
    slots = len(LEFT) if verb is recover else 1
    with registered(disk):
        async with asyncio.timeout(BOUND_SECONDS), opened(folder, slots=slots, kind=FaultyStore) as stage:
            await stage.engine.start()
            nth, refused = 0, -1
            while disk.refused != refused:
                nth, refused = nth + 1, disk.refused
                assert nth < PLACES_MAX
                fault, lasting = WAYS[(nth + turn) % len(WAYS)]
                place = Place(stage, disk, fault, nth, lasting=lasting)
                await verb(place)
                place.end()
                assert await after_a_crash(stage, folder) == []
                await place.forget_all()
            assert nth > 5
            await stage.stop()


async def after_a_crash(stage: Stage, folder: Path) -> list[str]:
    """What is wrong with the file and its log as they are at one moment: while the writer does nothing else, since it
    may move the log into the file."""
    crashed = folder / "crashed"
    crashed.mkdir(exist_ok=True)

    def copied(_: apsw.Connection) -> None:
        for name in ("perdure.db", "perdure.db-wal"):
            shutil.copyfile(folder / name, crashed / name)

    await stage.store._write(copied)  # pyright: ignore[reportPrivateUsage] -- a moment of the writer's is no verb
    return unsound(crashed / "perdure.db")
