"""A text that the model's process may have died of is drawn alone, and drags nobody else down."""

import asyncio
from pathlib import Path
from typing import Literal

import pytest
from tests.unit.engine.stage import Stage, said, scenario, started, turns, undisturbed
from tests.unit.engine.test_run import error_of

from perdure.domain.lifecycle import Status
from perdure.engine.quarantine import Quarantine
from perdure.ports.runtime import RuntimeCrashed
from perdure.testing.scripted_runtime import Script

GONE: Exception = RuntimeCrashed("gone")


class Bad(asyncio.Event):
    """The token of which the process dies. It takes so long that the others have come into the batch."""

    def __init__(self) -> None:
        super().__init__()
        self.under_way = False

    async def wait(self) -> Literal[True]:
        self.under_way = True
        try:
            await turns(1_000)
        finally:
            self.under_way = False
        return True


class Slow(asyncio.Event):
    """A token that is not drawn before the process dies of the bad one, if that is in the batch or comes into it."""

    def __init__(self, bad: Bad) -> None:
        super().__init__()
        self._bad = bad

    async def wait(self) -> Literal[True]:
        await turns(200)
        while self._bad.under_way:
            await turns(1)
        return True


class Hints:
    """Runs that want to draw, by name."""

    def __init__(self) -> None:
        self.room = Quarantine()
        self.hints: dict[str, asyncio.Event] = {}

    def enter(self, name: str, *, suspect: bool = False, exact: bool = True) -> bool:
        hint = self.hints.setdefault(name, asyncio.Event())
        hint.clear()
        return self.room.enter(hint, suspect=suspect, exact=exact)

    def woken(self) -> set[str]:
        return {name for name, hint in self.hints.items() if hint.is_set()}


def test_without_a_suspect_everybody_draws_at_once() -> None:
    """Nobody waits, and nobody is woken."""
    runs = Hints()
    assert all(runs.enter(name) for name in "abc")
    runs.room.leave(runs.hints["a"])
    assert runs.woken() == set()


def test_a_suspect_waits_until_the_others_have_made_room_and_draws_alone() -> None:
    """Those under way are asked to; nobody comes in before it has left or got further."""
    runs = Hints()
    assert runs.enter("a")
    assert not runs.enter("bad", suspect=True)
    assert runs.woken() == {"a"}
    runs.room.leave(runs.hints["a"])
    assert not runs.enter("a")
    assert runs.enter("bad", suspect=True)
    assert not runs.enter("a")
    runs.room.clear(runs.hints["bad"])
    assert runs.woken() == {"a"}
    assert runs.enter("a")


def test_a_text_that_would_become_approximate_is_waited_for() -> None:
    """It is not interrupted; who comes after the suspect waits behind it."""
    runs = Hints()
    assert runs.enter("a", exact=False)
    assert not runs.enter("bad", suspect=True)
    assert runs.woken() == set()
    assert not runs.enter("b")
    runs.room.leave(runs.hints["a"])
    assert runs.woken() == {"bad", "b"}
    assert not runs.enter("b")
    assert runs.enter("bad", suspect=True)


def test_suspects_take_turns_in_the_order_in_which_they_came() -> None:
    """One at a time; one that is cleared makes room for the next; who gives up lets the next one in."""
    runs = Hints()
    assert runs.enter("one", suspect=True)
    assert not runs.enter("two", suspect=True)
    assert not runs.enter("three", suspect=True)
    runs.room.clear(runs.hints["one"])
    assert not runs.enter("three", suspect=True)
    assert runs.woken() >= {"one", "two"}
    runs.room.leave(runs.hints["one"])
    assert not runs.enter("three", suspect=True)
    assert not runs.enter("one")
    runs.room.leave(runs.hints["two"])  # cancelled while it waited
    assert runs.enter("three", suspect=True)
    runs.room.leave(runs.hints["three"])
    assert runs.enter("one")


async def all_ended(stage: Stage, idents: dict[str, str], length: int) -> None:
    """Each text is the undisturbed one."""
    for prompt, ident in idents.items():
        task = await stage.ended(ident)
        assert task.status is Status.COMPLETED
        assert said(await stage.log(ident)) == undisturbed(prompt, length - 1)


@pytest.mark.proves("C-10", "F-11")
@pytest.mark.parametrize("at", [0, 3, 10])
@scenario
async def test_one_bad_task_does_not_drag_the_others_down(tmp_path: Path, at: int) -> None:
    """It kills the process whenever it is drawn so far, and everything of the batch with it; it fails, the others
    complete, none of them with more than one crash counted."""
    async with started(tmp_path, slots=4) as stage:
        gate, troubles = Bad(), [(at, GONE) for _ in range(99)]
        stage.runtime.play("bad", Script(length=40, gates={at: gate}, troubles=troubles, fells_all=True))
        prompts = ["good 1", "good 2", "good 3", "good 4", "good 5"]
        for prompt in prompts:
            stage.runtime.play(prompt, Script(length=20, gates={0: Slow(gate), at + 1: Slow(gate)}))
        first = {prompt: await stage.submit(prompt) for prompt in prompts[:2]}
        bad = await stage.submit("bad")
        rest = {prompt: await stage.submit(prompt) for prompt in prompts[2:]}
        task = await stage.ended(bad)
        assert (task.status, error_of(task)["code"]) == (Status.FAILED, "attempts_exhausted")
        assert error_of(task)["detail"] == "runtime_crashed"
        assert said(await stage.log(bad)) == undisturbed("bad", at)
        await all_ended(stage, first | rest, 20)
        others = [change.crashes for change in stage.store.changes if change.task_id != task.id]
        assert {crashes for crashes in others if isinstance(crashes, int)} <= {0, 1}


@scenario
async def test_a_suspect_is_drawn_with_nobody_beside_it_until_it_gets_further(tmp_path: Path) -> None:
    """After a crash of two texts without a token, the first goes alone; when it has one, the other goes alone; then
    both go on together."""
    async with started(tmp_path, slots=2) as stage:
        one = stage.runtime.play("one", Script(length=9, gates={0: asyncio.Event(), 5: asyncio.Event()}))
        two = stage.runtime.play("two", Script(length=9, gates={0: asyncio.Event(), 5: asyncio.Event()}))
        one.troubles, one.fells_all = [(0, GONE)], True
        idents = {prompt: await stage.submit(prompt) for prompt in ("one", "two")}
        for ident in idents.values():
            await stage.store.reaches(ident, Status.RUNNING)
        while len(stage.runtime.jobs) < 2:
            await turns(1)
        one.gates[0].set()
        for ident in idents.values():
            await stage.store.until(ident, lambda task: task.crashes == 1)
        while len(stage.runtime.jobs) < 3:
            await turns(1)
        assert stage.runtime.busy == 1
        two.gates[0].set()
        for ident in idents.values():
            await stage.store.until(ident, lambda task: task.tokens_kept >= 1)
        for script in (one, two):
            script.gates[5].set()
        await all_ended(stage, idents, 9)


@scenario
async def test_a_suspect_that_waits_can_be_cancelled(tmp_path: Path) -> None:
    """At once, and those behind it are not held up by it."""
    async with started(tmp_path, slots=2) as stage:
        gate = asyncio.Event()
        stage.runtime.play("one", Script(length=9, gates={0: gate}, troubles=[(0, GONE)], fells_all=True))
        stage.runtime.play("two", Script(length=9, gates={0: asyncio.Event()}))
        one, two = await stage.submit("one"), await stage.submit("two")
        while len(stage.runtime.jobs) < 2:
            await turns(1)
        hold = asyncio.Event()
        stage.runtime.play("one", Script(length=9, gates={0: hold}))
        gate.set()
        for ident in (one, two):
            await stage.store.until(ident, lambda task: task.crashes == 1)
        await stage.cancel(two)
        assert (await stage.ended(two)).status is Status.CANCELLED
        hold.set()
        assert (await stage.ended(one)).status is Status.COMPLETED
        assert (await stage.ended(await stage.submit("next"))).status is Status.COMPLETED
