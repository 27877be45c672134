"""A disk that refuses is a state of the whole service: texts are held, callers are told, and it ends by itself."""

import asyncio
import logging
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.unit.engine.stage import Stage, StageStore, opened, said, scenario, undisturbed

from perdure import bootstrap
from perdure.domain.errors import StorageDamaged, StorageFailed, StorageFull, Unavailable
from perdure.domain.lifecycle import TERMINAL, Status
from perdure.storage.sqlite import whole
from perdure.storage.sqlite.store import SqliteStore
from perdure.testing.damage import overflow_of, overwrite_page
from perdure.testing.faulty_vfs import Fault, FaultyDisk, registered
from perdure.testing.scripted_runtime import Script
from perdure.testing.store_steps import end, grow, moved, running

VFS = "states"
TOLD: dict[Fault, type[Unavailable]] = {Fault.FULL: StorageFull, Fault.IO: StorageFailed}
PROMPTS = ("one", "two", "three")
LENGTH = 40
ROUNDS = 12


class StoreOnFaultyDisk(StageStore):
    """The store of the stage, on a disk that a test can break."""

    @classmethod
    async def open(cls, path: Path, **more: object) -> SqliteStore:
        del more
        return await super().open(path, vfs=VFS)


class Ended(logging.Handler):
    """Sets an event when the store says that writes work again."""

    def __init__(self) -> None:
        super().__init__()
        self.event = asyncio.Event()

    def emit(self, record: logging.LogRecord) -> None:
        if "takes writes again" in record.getMessage():
            self.event.set()


@contextmanager
def end_of_trouble() -> Generator[asyncio.Event]:
    """An event that is set at the end of the trouble."""
    handler, logger = Ended(), logging.getLogger("perdure.storage.sqlite.trouble")
    logger.addHandler(handler)
    try:
        yield handler.event
    finally:
        logger.removeHandler(handler)


async def refused(stage: Stage, kind: type[Unavailable], times: int) -> None:
    """New work, offered until so many writes of anybody were refused. Nothing of it may be kept."""
    start = stage.store.condition().writes_refused
    while stage.store.condition().writes_refused < start + times:
        with pytest.raises(kind):
            await stage.submit("late")


@pytest.mark.proves("E-12")
@pytest.mark.parametrize("fault", Fault, ids=lambda fault: fault.name)
@scenario
async def test_three_texts_are_held_while_the_disk_refuses(
    tmp_path: Path, fault: Fault, caplog: pytest.LogCaptureFixture
) -> None:
    """A dozen times in a row, at whatever place of a text it falls: never a failed one, never a text with a hole, and
    two lines each time."""
    disk = FaultyDisk(VFS)
    with registered(disk), end_of_trouble() as over:
        async with opened(tmp_path, slots=3, kind=StoreOnFaultyDisk) as stage:
            await stage.engine.start()
            gates = [asyncio.Event() for _ in range(ROUNDS)]
            script = Script(length=LENGTH, gates={3 * n + 1: gate for n, gate in enumerate(gates)})
            for prompt in PROMPTS:
                stage.runtime.play(prompt, script)
            idents = [await stage.submit(prompt) for prompt in PROMPTS]
            for gate in gates:
                disk.fail_from(fault, 1)
                gate.set()
                await refused(stage, TOLD[fault], 8)
                assert_held(stage, TOLD[fault])
                for ident in idents:
                    assert (await stage.response(ident))["status"] in ("queued", "in_progress")
                over.clear()
                disk.mend()
                await over.wait()
                assert stage.engine.health().ready
            tasks = [await stage.ended(ident) for ident in idents]
            logs = [await stage.log(ident) for ident in idents]
            assert [(task.status, task.attempt, task.crashes) for task in tasks] == [(Status.COMPLETED, 1, 0)] * 3
            assert [said(log) for log in logs] == [undisturbed(prompt, LENGTH - 1) for prompt in PROMPTS]
            assert len(await stage.store.unfinished(0, 100)) == 0
            await stage.stop()
    assert [record.levelname for record in caplog.records] == ["ERROR", "WARNING"] * ROUNDS
    assert stage.reports == [] or {type(error) for _, error in stage.reports} == {TOLD[fault]}


def assert_held(stage: Stage, kind: type[Unavailable]) -> None:
    """The state as the owner sees it."""
    health, condition = stage.engine.health(), stage.engine.condition()
    assert not health.ready
    assert health.reason == condition.reason
    assert condition.trouble == kind.code


@pytest.mark.parametrize("fault", Fault, ids=lambda fault: fault.name)
@scenario
async def test_a_foreground_text_whose_caller_left_meanwhile_is_stopped(tmp_path: Path, fault: Fault) -> None:
    """The cancel could not be written while the disk refused; it is not forgotten."""
    disk = FaultyDisk(VFS)
    with registered(disk):
        async with opened(tmp_path, kind=StoreOnFaultyDisk) as stage:
            await stage.engine.start()
            stage.runtime.play("left", Script(length=500, gates={2: asyncio.Event()}))
            ident = await stage.submit("left", background=False)
            async with stage.engine.follow(stage.principal, ident, -1):
                await stage.store.until(ident, lambda task: task.tokens_kept == 2)
                disk.fail_from(fault, 1)
            await refused(stage, TOLD[fault], 5)
            await asyncio.sleep(3)  # the loop's time: longer than a response may stay unattended
            assert [task.status for task in await stage.store.unfinished(0, 9)] == [Status.RUNNING]
            disk.mend()
            assert (await stage.ended(ident)).status is Status.CANCELLED
            await stage.stop()


@scenario
async def test_damage_holds_the_texts_and_the_stop_is_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A text under way when damage is met stays where it is, quietly; nothing new is accepted; the service can be
    stopped, and the next one that starts goes on with the text."""
    monkeypatch.setattr(whole, "CHECKED_MAX_BYTES", 0)
    path = tmp_path / "perdure.db"
    async with opened(tmp_path) as stage:
        long = await running(stage.store, "long", stage.principal.client_id)
        long = await moved(stage.store, long, lambda task: grow(task, "x" * 20_000), end)
    overwrite_page(path, overflow_of(path, "event_bodies")[0])
    async with opened(tmp_path) as stage:
        await stage.engine.start()
        gate = asyncio.Event()
        stage.runtime.play("held", Script(gates={2: gate}))
        ident = await stage.submit("held")
        await stage.store.until(ident, lambda task: task.tokens_kept == 2)
        with pytest.raises(StorageDamaged):
            await stage.store.events(long.id, -1, 10_000)
        gate.set()
        await asyncio.sleep(5)  # the loop's time: the text is offered again and again
        with pytest.raises(StorageDamaged):
            await stage.submit("new")
        assert_held(stage, StorageDamaged)
        assert (await stage.response(ident))["status"] == "in_progress"
        await stage.stop(seconds=0)
        assert len(caplog.records) == 1
    async with opened(tmp_path) as stage:
        assert await stage.engine.start() == 1
        assert said(await stage.log((await stage.ended(ident)).ident)) == undisturbed("held", 5)
        await stage.stop()


@scenario
async def test_a_database_that_is_moved_away_gets_no_work_until_it_is_back(tmp_path: Path) -> None:
    """What is accepted must be there at the next start; what was there can be read meanwhile."""
    path, away = tmp_path / "perdure.db", tmp_path / "away.db"
    with end_of_trouble() as over:
        async with opened(tmp_path) as stage:
            await stage.engine.start()
            ident = await stage.submit("one")
            await stage.ended(ident)
            path.rename(away)
            with pytest.raises(StorageFailed):
                await stage.submit("two")
            assert_held(stage, StorageFailed)
            assert (await stage.response(ident))["status"] == "completed"
            away.rename(path)
            await over.wait()
            last = await stage.ended(await stage.submit("three"))
            assert last.status in TERMINAL
            assert stage.engine.health().ready
            await stage.stop()


def test_the_service_does_not_repeat_what_the_store_tells(capsys: pytest.CaptureFixture[str]) -> None:
    """A text that is held is offered again every second; each of these refusals in the log would fill the disk."""
    for error in (StorageFull("full"), StorageFailed("failed"), StorageDamaged("damaged")):
        vars(bootstrap)["_fault"]("a run", error)
    assert capsys.readouterr().err == ""
    vars(bootstrap)["_fault"]("a run", RuntimeError("of another kind"))
    assert "of another kind" in capsys.readouterr().err
