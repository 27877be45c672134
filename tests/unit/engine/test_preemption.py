"""A foreground response that finds every slot taken is drawn in the place of the youngest background text."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec
import pytest
from tests.unit.engine.stage import Stage, said, scenario, started, turns, undisturbed

from perdure.domain.events import Event
from perdure.domain.lifecycle import Status
from perdure.domain.recovery import OnRestart
from perdure.engine.record import UNCLAIMED
from perdure.ports.runtime import RuntimeCrashed
from perdure.ports.storage import Change, TaskRecord
from perdure.testing.scripted_runtime import Script

LENGTH = 12


async def held(
    stage: Stage, prompt: str, tokens: int = 3, *, hold: asyncio.Event | None = None, crashes: bool = False
) -> tuple[str, asyncio.Event]:
    """A background text that has so many tokens and waits for what opens the next one: then it may crash. Two tokens
    later it may wait for `hold`."""
    gate, troubles = asyncio.Event(), list[tuple[int, Exception]]()
    if crashes:
        troubles.append((tokens, RuntimeCrashed("gone")))
    gates = {tokens: gate} | ({} if hold is None else {tokens + 2: hold})
    stage.runtime.play(prompt, Script(length=LENGTH, gates=gates, troubles=troubles))
    ident = await stage.submit(prompt)
    await stage.store.until(ident, lambda task: task.status is Status.RUNNING and task.tokens_kept == tokens)
    return ident, gate


async def ask(stage: Stage, prompt: str = "question") -> tuple[str, "asyncio.Task[list[Event]]"]:
    """A foreground response and its caller."""
    ident = await stage.submit(prompt, background=False, on_restart=OnRestart.FAIL)
    return ident, asyncio.create_task(stage.follow(ident))


async def put_off(stage: Stage, ident: str) -> TaskRecord:
    """The task once it has given way."""
    return await stage.store.until(ident, lambda task: task.claimed_at == UNCLAIMED)


async def notes(stage: Stage, ident: str) -> list[str]:
    """What its history says."""
    task = await stage.store.task(ident)
    assert task is not None
    return [step.note for step in await stage.store.attempts(task.id)]


@pytest.mark.proves("F-18")
@scenario
async def test_the_youngest_background_text_gives_way_and_goes_on_before_the_queue(tmp_path: Path) -> None:
    """Its stream stays open, its text is the undisturbed one, its history tells of it; nothing else is disturbed."""
    async with started(tmp_path, slots=2) as stage:
        old, old_gate = await held(stage, "old")
        young, young_gate = await held(stage, "young")
        viewer = asyncio.create_task(stage.follow(young))
        queued = await stage.submit("queued")
        asked, caller = await ask(stage)
        task = await put_off(stage, young)
        assert (task.status, task.boot, task.crashes, task.tokens_kept) == (Status.RUNNING, "boot-1", 0, 3)
        assert (await caller)[-1].type == "response.completed"
        young_gate.set()
        assert (await stage.ended(young)).status is Status.COMPLETED
        await stage.ended(queued)
        old_gate.set()
        await stage.ended(old)
        assert [job.ident for job in stage.runtime.jobs] == [old, young, asked, young, queued]
        assert said(await viewer) == undisturbed("young", LENGTH - 1)
        assert await stage.log(young) == await viewer
        assert "gave way to a foreground response after 3 tokens" in await notes(stage, young)
        assert not [note for note in await notes(stage, old) if "gave way" in note]


@scenario
async def test_a_text_does_not_give_way_again_before_it_has_got_further(tmp_path: Path) -> None:
    """Between two foreground texts it draws a token at least; with that, it can give way again."""
    async with started(tmp_path) as stage:
        hold = asyncio.Event()
        text, gate = await held(stage, "text", hold=hold)
        _, first = await ask(stage, "first")
        await first
        await stage.store.until(text, lambda task: task.claimed_at != UNCLAIMED)
        second, caller = await ask(stage, "second")
        await asyncio.sleep(5)  # of the loop's time: several looks of the dispatcher
        waiting = await stage.store.task(second)
        assert waiting is not None
        assert waiting.status is Status.QUEUED
        gate.set()
        await caller
        hold.set()
        assert (await stage.ended(text)).status is Status.COMPLETED
        assert said(await stage.log(text)) == undisturbed("text", LENGTH - 1)
        assert len([note for note in await notes(stage, text) if "gave way" in note]) == 2


@pytest.mark.parametrize("kind", ["approximate", "foreground"])
@scenario
async def test_what_may_not_give_way_is_waited_for(tmp_path: Path, kind: str) -> None:
    """A text that would not be the same, and one that somebody waits for."""
    async with started(tmp_path) as stage:
        card = stage.runtime.cards["tiny"]
        stage.runtime.cards["tiny"] = msgspec.structs.replace(card, exact=kind != "approximate")
        gate = asyncio.Event()
        stage.runtime.play("text", Script(length=LENGTH, gates={3: gate}))
        text = await stage.submit("text", background=kind != "foreground")
        reader = asyncio.create_task(stage.follow(text))
        await stage.store.until(text, lambda task: task.tokens_kept == 3)
        asked, caller = await ask(stage)
        await asyncio.sleep(5)  # of the loop's time: several looks of the dispatcher
        assert [job.ident for job in stage.runtime.jobs] == [text]
        gate.set()
        await asyncio.gather(reader, caller)
        assert [job.ident for job in stage.runtime.jobs] == [text, asked]


@scenario
async def test_each_of_several_foreground_responses_gets_a_slot(tmp_path: Path) -> None:
    """As many texts give way as are needed, the youngest first, and no more; the oldest of them goes on first."""
    async with started(tmp_path, slots=3) as stage:
        texts = [await held(stage, name) for name in ("a", "b", "c")]
        stage.runtime.play("one", Script(gates={0: (one := asyncio.Event())}))
        stage.runtime.play("two", Script(gates={0: (two := asyncio.Event())}))
        asked = [await ask(stage, prompt) for prompt in ("one", "two")]
        for ident, _ in asked:
            await stage.store.reaches(ident, Status.RUNNING)
        idents = [ident for ident, _ in texts]
        assert [(await stage.store.task(each) or pytest.fail("gone")).claimed_at == UNCLAIMED for each in idents] == [
            False,
            True,
            True,
        ]
        one.set()
        await asked[0][1]
        await stage.store.until(idents[1], lambda task: task.claimed_at != UNCLAIMED)
        two.set()
        await asked[1][1]
        for (ident, gate), name in zip(texts, "abc", strict=True):
            gate.set()
            await stage.ended(ident)
            assert said(await stage.log(ident)) == undisturbed(name, LENGTH - 1)


Act = Callable[[Stage, str], Awaitable[object]]


async def cancels(stage: Stage, ident: str) -> None:
    """Somebody cancels it."""
    await stage.cancel(ident)


async def deletes(stage: Stage, ident: str) -> None:
    """Somebody deletes it."""
    await stage.delete(ident)


@pytest.mark.parametrize("act", [cancels, deletes])
@pytest.mark.parametrize("moment", ["before the row", "after the row", "after the last look"])
@pytest.mark.parametrize("count", [0, 1, 5, 30])
@scenario
async def test_a_cancel_in_the_moment_of_giving_way_ends_it(
    tmp_path: Path, act: Act, moment: str, count: int
) -> None:
    """Just before the row says so, just after, or when the run has looked at it: at once, while no slot is free."""
    async with started(tmp_path) as stage:
        hold = asyncio.Event()
        stage.runtime.play("question", Script(gates={0: hold}))
        text, _ = await held(stage, "text")
        acting: list[asyncio.Future[object]] = []

        async def begin() -> None:
            if not acting:
                acting.append(asyncio.ensure_future(act(stage, text)))
                await turns(count)

        async def before(change: Change) -> None:
            if change.claimed_at == UNCLAIMED:
                await begin()

        async def looked(task: TaskRecord) -> None:
            if task.claimed_at == UNCLAIMED:
                await begin()

        async def later() -> None:
            await put_off(stage, text)
            await begin()

        waiting = asyncio.create_task(later() if moment == "after the row" else asyncio.sleep(0))
        if moment == "before the row":
            stage.store.before_apply = before
        elif moment == "after the last look":
            stage.store.after_task = looked
        _, caller = await ask(stage)
        await stage.store.until(text, lambda each: each.status is Status.CANCELLED)
        await asyncio.gather(waiting, *acting)
        hold.set()
        await caller
        assert (await stage.ended(await stage.submit("next"))).status is Status.COMPLETED


@scenario
async def test_a_text_that_ends_in_that_moment_has_ended(tmp_path: Path) -> None:
    """It is asked to give way when its last token has been drawn: it may do either, and is whole."""
    async with started(tmp_path) as stage:
        for number in range(20):
            text, gate = await held(stage, f"text {number}", LENGTH - 2)
            _, caller = await ask(stage, f"question {number}")
            await turns(number * 2)
            gate.set()
            await caller
            assert (await stage.ended(text)).status is Status.COMPLETED
            assert said(await stage.log(text)) == undisturbed(f"text {number}", LENGTH - 1)


@scenario
async def test_a_crash_in_that_moment_counts_and_the_text_goes_on(tmp_path: Path) -> None:
    """Whichever comes first."""
    async with started(tmp_path) as stage:
        for number in range(20):
            text, gate = await held(stage, f"text {number}", crashes=True)
            _, caller = await ask(stage, f"question {number}")
            await turns(number * 2)
            gate.set()
            await caller
            assert (await stage.ended(text)).status is Status.COMPLETED
            assert said(await stage.log(text)) == undisturbed(f"text {number}", LENGTH - 1)


@pytest.mark.parametrize("kill", [False, True])
@scenario
async def test_a_stop_while_it_is_put_off_counts_as_no_crash(tmp_path: Path, kill: bool) -> None:
    """Drained or not: nobody worked on it. The next process goes on with it before the queue."""
    async with started(tmp_path) as stage:
        text, gate = await held(stage, "text")
        stage.runtime.play("question", Script(gates={0: asyncio.Event()}))
        _, caller = await ask(stage)
        await put_off(stage, text)
        gate.set()
        if not kill:
            await stage.stop(0)
            await caller
        await stage.restart()
        task = await stage.ended(text)
        assert (task.status, task.crashes) == (Status.COMPLETED, 0)
        assert said(await stage.log(text)) == undisturbed("text", LENGTH - 1)
