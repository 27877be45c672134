"""What becomes of a response, for those who wait for its end and for nothing before it."""

import asyncio
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import UNSET
from tests.unit.engine.stage import Stage, StageStore, opened, scenario, started, turns

from perdure.domain.errors import NotFound
from perdure.domain.lifecycle import Status
from perdure.domain.principal import Principal
from perdure.engine.wakeups import Wakeups
from perdure.ports.storage import Change
from perdure.testing.scripted_runtime import Script

STRANGER = Principal(99, "stranger", frozenset())
ANSWERS = 4
POLLS = frozenset({"ended", "next_runnable"})
"""Reads that are made anew each second, too."""


def waiting(stage: Stage, ident: str) -> asyncio.Task[bytes | None]:
    """A caller who waits."""
    return asyncio.create_task(stage.engine.outcome(stage.principal, ident))


async def held(stage: Stage, **fields: bool) -> tuple[str, asyncio.Event, asyncio.Task[bytes | None]]:
    """A response that has drawn two tokens and waits for its gate, and a caller who waits for its end."""
    script = stage.runtime.play("hold", Script(gates={2: asyncio.Event()}))
    ident = await stage.submit("hold", **{"background": False, **fields})
    caller = waiting(stage, ident)
    await stage.store.until(ident, lambda task: task.tokens_kept == 2)
    await turns(20)
    assert not caller.done()
    return ident, script.gates[2], caller


@pytest.mark.parametrize("fields", [{}, {"store": False}, {"background": True}])
@scenario
async def test_the_outcome_is_what_a_read_gives(tmp_path: Path, fields: dict[str, bool]) -> None:
    """Byte for byte, whether somebody has waited for it or comes later."""
    async with started(tmp_path) as stage:
        ident, gate, caller = await held(stage, **fields)
        gate.set()
        outcome = await caller
        assert outcome is not None
        assert msgspec.json.decode(outcome)["status"] == "completed"
        assert outcome == await stage.engine.response(stage.principal, ident) == await waiting(stage, ident)


class CountingStore(StageStore):
    """Counts what is asked of the reading connection, by question."""

    def __init__(self, *parts: Any) -> None:
        super().__init__(*parts)
        self.reads = Counter[str]()

    def _read(self, question: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        self.reads[question.__name__] += 1
        return super()._read(question, *args, **kwargs)


@scenario
async def test_a_foreground_answer_costs_few_reads_however_often_it_is_written(tmp_path: Path) -> None:
    """The run reads where it stands at its start, with the model there, and at its end; claim and run read the log
    once each; the caller reads the task before and after, and the answer. Nothing else, and no sweep of old rows."""
    async with opened(tmp_path, kind=CountingStore) as stage:
        assert isinstance(stage.store, CountingStore)
        await stage.engine.start()
        reads, sweeps = stage.store.reads, 0
        for commits in range(3, 3 + ANSWERS):
            reads.clear()
            await answered(stage, commits)
            found = {name: count for name, count in reads.items() if name not in POLLS}
            sweeps += found.pop("purgeable", 0) + found.pop("next_purge_at", 0)
            assert found == {"by_ident": 5, "page": 2, "prompt": 1, "snapshot": 1}
        assert sweeps < ANSWERS  # one at the start, and one a minute of the loop's time
        await stage.stop(seconds=0)


async def answered(stage: Stage, commits: int) -> None:
    """An answer whose text takes so many commits at least: each token is held until the last one is being kept."""
    gates = {place: asyncio.Event() for place in range(1, commits)}
    closed = list(gates.values())

    async def next_gate(change: Change) -> None:
        if change.tokens_kept is not UNSET and closed:
            closed.pop(0).set()

    stage.store.before_apply = next_gate
    stage.runtime.play("hold", Script(length=commits + 1, gates=gates))
    before = len(stage.store.changes)
    assert await waiting(stage, await stage.submit("hold", background=False)) is not None
    await turns(50)  # what an end leaves to be done is done
    assert len(stage.store.changes) - before >= commits + 2
    assert not closed


@scenario
async def test_who_waits_for_the_end_is_not_woken_before(tmp_path: Path) -> None:
    """Listeners to all news are; both are woken by the end, and by the stop of the service."""
    wakeups = Wakeups()
    with wakeups.listen("r1") as news, wakeups.listen("r1", end_only=True) as end, wakeups.listen("r2") as other:
        wakeups.notify("r1")
        assert [hint.is_set() for hint in (news, end, other)] == [True, False, False]
        news.clear()
        wakeups.notify("r1", ended=True)
        assert [hint.is_set() for hint in (news, end, other)] == [True, True, False]
        end.clear()
        wakeups.notify_all()
        assert [hint.is_set() for hint in (news, end, other)] == [True, True, True]
    assert vars(wakeups)["_waiting"] == {}


@scenario
async def test_a_lost_wake_up_costs_a_moment_and_no_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rows tell of the end, the hint does not."""

    def say_nothing(_self: Wakeups, _ident: str, *, ended: bool = False) -> None:
        """Lose a hint."""

    async with started(tmp_path) as stage:
        _, gate, caller = await held(stage)
        monkeypatch.setattr(Wakeups, "notify", say_nothing)
        gate.set()
        assert await caller is not None


@scenario
async def test_a_hint_of_an_end_that_was_not_kept_is_no_end(tmp_path: Path) -> None:
    """Whoever is woken looks, and waits on."""
    async with started(tmp_path) as stage:
        ident, gate, caller = await held(stage)
        vars(stage.engine)["_wakeups"].notify(ident, ended=True)
        await turns(50)
        assert not caller.done()
        gate.set()
        assert await caller is not None


@pytest.mark.parametrize("background", [False, True])
@scenario
async def test_a_stop_lets_those_go_whose_response_has_not_ended(tmp_path: Path, background: bool) -> None:
    """At the drain who waits for background work, at the end of the stop who waits for foreground work; with
    nothing, since nothing has come of it."""
    async with started(tmp_path) as stage:
        ident, _, caller = await held(stage, background=background)
        stage.engine.drain()
        await turns(50)
        assert caller.done() == background
        await stage.stop(seconds=0)
        assert await caller is None
        left = await stage.store.task(ident)
        assert left is not None
        assert left.status is Status.RUNNING


@scenario
async def test_an_end_that_comes_with_the_stop_is_told(tmp_path: Path) -> None:
    """The caller looks once more before he goes: what was kept is not called left."""
    async with started(tmp_path) as stage:
        ident, gate, caller = await held(stage)
        stage.engine.drain()
        gate.set()
        await stage.ended(ident)
        vars(stage.engine)["_closed"].set()  # before the caller has had his turn
        assert await caller is not None


@scenario
async def test_the_outcome_of_what_was_deleted_meanwhile_is_that_it_is_not_there(tmp_path: Path) -> None:
    """As for a read that comes later, and never the text."""
    async with started(tmp_path) as stage:
        ident, _, caller = await held(stage)
        await stage.delete(ident)
        with pytest.raises(NotFound):
            await caller


@scenario
async def test_one_who_waits_for_the_end_attends(tmp_path: Path) -> None:
    """Foreground work stops when he leaves; a stranger is turned away, and stops nothing."""
    async with started(tmp_path) as stage:
        ident, _, caller = await held(stage)
        with pytest.raises(NotFound):
            await stage.engine.outcome(STRANGER, ident)
        await asyncio.sleep(3)  # the loop's time: longer than anybody is waited for
        task = await stage.store.task(ident)
        assert task is not None
        assert task.status is Status.RUNNING
        caller.cancel()
        assert (await stage.ended(ident)).status is Status.CANCELLED
