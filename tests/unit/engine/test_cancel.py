"""A cancel, at every moment of a task's life."""

import asyncio
from pathlib import Path

import pytest
from tests.unit.engine.mishaps import overtaken
from tests.unit.engine.stage import opened, said, scenario, started, turns, types, undisturbed

from perdure.domain.errors import InvalidRequest, StorageFull
from perdure.domain.lifecycle import Status
from perdure.ports.runtime import JobFailed
from perdure.ports.storage import Change
from perdure.testing.scripted_runtime import Script


@pytest.mark.proves("C-24")
@scenario
async def test_a_queued_task_is_cancelled_at_once_and_never_starts(tmp_path: Path) -> None:
    """What waits for a slot ends without a token drawn for it, while the work before it goes on."""
    async with started(tmp_path) as stage:
        gate = asyncio.Event()
        stage.runtime.play("first", Script(gates={0: gate}))
        first, second = await stage.submit("first"), await stage.submit("second")
        await stage.store.reaches(first, Status.RUNNING)
        await stage.cancel(second)
        assert (await stage.response(second))["status"] == "cancelled"
        gate.set()
        assert (await stage.ended(first)).status is Status.COMPLETED
        assert [job.ident for job in stage.runtime.jobs] == [first]
        assert types(await stage.log(second)) == ["created", "queued", "cancelled"]


@pytest.mark.proves("C-24")
@scenario
async def test_a_task_whose_model_is_loading_is_cancelled_at_once(tmp_path: Path) -> None:
    """A load that does not end holds neither the task nor the slot."""
    async with started(tmp_path) as stage:
        stage.runtime.load_gate = asyncio.Event()
        loading = await stage.submit("loading")
        await stage.store.reaches(loading, Status.LOADING)
        while not stage.runtime.loads:
            await turns(1)
        await stage.cancel(loading)
        assert (await stage.response(loading))["status"] == "cancelled"
        stage.runtime.load_gate = None
        behind = await stage.submit("behind")
        assert (await stage.ended(behind)).status is Status.COMPLETED
        assert [job.ident for job in stage.runtime.jobs] == [behind]


@pytest.mark.proves("C-22")
@scenario
async def test_a_running_task_is_cancelled_with_its_text_and_its_viewers_told(tmp_path: Path) -> None:
    """What was drawn before stays; the viewer's last event is the cancelled one."""
    async with started(tmp_path) as stage:
        stage.runtime.play("hold", Script(gates={3: asyncio.Event()}))
        ident = await stage.submit("hold")
        viewer = asyncio.create_task(stage.follow(ident))
        await stage.store.until(ident, lambda task: task.tokens_kept == 3)
        await stage.cancel(ident)
        seen = await viewer
        assert seen == await stage.log(ident)
        assert types(seen)[-4:] == ["output_text.done", "content_part.done", "output_item.done", "cancelled"]
        assert said(seen) == undisturbed("hold", 3)
        assert stage.runtime.busy == 0


@pytest.mark.proves("C-01")
@scenario
async def test_a_repeated_or_late_cancel_changes_nothing(tmp_path: Path) -> None:
    """The final object is byte for byte the same, and so is the row."""
    async with started(tmp_path) as stage:
        stage.runtime.play("hold", Script(gates={1: asyncio.Event()}))
        done, held = await stage.submit("done"), await stage.submit("hold")
        await stage.ended(done)
        await stage.store.reaches(held, Status.RUNNING)
        await stage.cancel(held)
        for ident, status in ((done, Status.COMPLETED), (held, Status.CANCELLED)):
            before, body = await stage.store.task(ident), await stage.engine.response(stage.principal, ident)
            await stage.cancel(ident)
            await stage.cancel(ident)
            assert before is not None
            assert before.status is status
            assert await stage.store.task(ident) == before
            assert await stage.engine.response(stage.principal, ident) == body


@scenario
async def test_a_foreground_response_is_refused_where_only_background_may_be_cancelled(tmp_path: Path) -> None:
    """The refusal says so, and nothing changes."""
    async with started(tmp_path) as stage:
        stage.runtime.play("hold", Script(gates={0: asyncio.Event()}))
        ident = await stage.submit("hold", background=False)
        with pytest.raises(InvalidRequest) as refused:
            await stage.engine.cancel(stage.principal, ident, background_only=True)
        assert refused.value.error_code == "not_background"
        await stage.store.reaches(ident, Status.RUNNING)


@pytest.mark.proves("C-28")
@pytest.mark.parametrize("how", ["raises", "finishes", "slow"])
@scenario
async def test_cancelled_stays_whatever_the_model_does_when_it_is_stopped(tmp_path: Path, how: str) -> None:
    """A stop that raises, a text that ends all the same, a stop that takes long: one end, and it is the cancel's."""
    async with started(tmp_path) as stage:
        gate, stopped = asyncio.Event(), asyncio.Event()
        script = stage.runtime.play(
            "hold",
            Script(
                gates={2: gate},
                stop_trouble=JobFailed("it was stopped") if how == "raises" else None,
                stop_gate=stopped if how == "slow" else None,
            ),
        )
        ident = await stage.submit("hold")
        await stage.store.until(ident, lambda task: task.tokens_kept == 2)
        asked = asyncio.create_task(stage.cancel(ident))
        await stage.store.reaches(ident, Status.CANCELLING, Status.CANCELLED)
        if how == "finishes":
            gate.set()
        if how == "slow":
            await turns(50)
            stage.clock.advance(3)
            await asked
            assert (await stage.response(ident))["status"] == "in_progress"
        stopped.set()
        await asked
        assert (await stage.ended(ident)).status is Status.CANCELLED
        script.stop_trouble = None
        await stage.restart()
        assert types(await stage.log(ident))[-1] == "cancelled"
        assert (await stage.response(ident))["status"] == "cancelled"


@scenario
async def test_a_cancel_waits_two_seconds_for_a_slow_stop_and_no_longer(tmp_path: Path) -> None:
    """A model that does not stop keeps the task in `cancelling`, and the caller is answered."""
    async with started(tmp_path) as stage:
        stopped = asyncio.Event()
        stage.runtime.play("hold", Script(gates={1: asyncio.Event()}, stop_gate=stopped))
        ident = await stage.submit("hold")
        await stage.store.until(ident, lambda task: task.tokens_kept == 1)
        asked = asyncio.create_task(stage.cancel(ident))
        await stage.store.reaches(ident, Status.CANCELLING)
        await turns(50)
        stage.clock.advance(1.9)
        await turns(50)
        assert not asked.done()
        stage.clock.advance(0.2)
        await asked
        task = await stage.store.task(ident)
        assert task is not None
        assert task.status is Status.CANCELLING
        stopped.set()
        assert (await stage.ended(ident)).status is Status.CANCELLED


@scenario
async def test_a_task_that_waits_for_a_slot_after_a_restart_is_cancelled_at_once(tmp_path: Path) -> None:
    """It is `running` by its row, but nothing works on it: nobody has to be waited for."""
    async with started(tmp_path, slots=2) as stage:
        gate = asyncio.Event()
        for prompt in ("one", "two"):
            stage.runtime.play(prompt, Script(gates={2: gate}))
        one, two = await stage.submit("one"), await stage.submit("two")
        for ident in (one, two):
            await stage.store.until(ident, lambda task: task.tokens_kept == 2)
        await stage.kill()
        stage.runtime = type(stage.runtime)(slots=1)
        stage.runtime.play("one", Script(gates={2: gate}))
        await stage.restart()
        await stage.cancel(two)
        assert types(await stage.log(two))[-1] == "cancelled"
        gate.set()
        assert (await stage.ended(one)).status is Status.COMPLETED
        assert [job.ident for job in stage.runtime.jobs] == [one]


@pytest.mark.proves("P5", "C-03", "C-04")
@scenario
async def test_a_cancel_at_any_moment_agrees_with_the_row(tmp_path: Path) -> None:
    """Two hundred races with the end: one terminal event each; what the cancel was told is what stays."""
    async with started(tmp_path, slots=4) as stage:
        ends = set[Status]()
        for moment in range(200):
            ident = await stage.submit(f"race {moment}")
            await stage.store.until(ident, lambda task, due=moment % 7: task.tokens_kept >= due)
            await turns(moment)
            await stage.cancel(ident)
            told = (await stage.response(ident))["status"]
            task = await stage.ended(ident)
            assert told == str(task.status)
            assert types(await stage.log(ident))[-1] == told
            ends.add(task.status)
        assert ends == {Status.CANCELLED, Status.COMPLETED}


@scenario
async def test_a_cancel_that_the_claim_overtakes_is_made_from_the_new_state(tmp_path: Path) -> None:
    """The task was queued when the cancel looked and runs when it writes: it ends all the same."""
    async with opened(tmp_path) as stage:
        stage.runtime.play("hold", Script(gates={1: asyncio.Event()}))
        ident = await stage.submit("hold")

        async def claim_first(change: Change) -> None:
            if change.status is Status.CANCELLED:
                stage.store.before_apply = None
                await stage.engine.start()
                await stage.store.until(ident, lambda task: task.tokens_kept == 1)

        stage.store.before_apply = claim_first
        await stage.cancel(ident)
        assert (await stage.response(ident))["status"] == "cancelled"
        await stage.stop()


@scenario
async def test_a_cancel_does_not_run_after_a_text_that_is_faster_than_the_disk(tmp_path: Path) -> None:
    """Between the cancel's look at the row and its write the run would commit, each time: it has to give way."""
    async with started(tmp_path) as stage:
        gates = {position: asyncio.Event() for position in range(1, 6)}
        stage.runtime.play("hold", Script(length=6, gates=gates))
        ident = await stage.submit("hold")
        await stage.store.until(ident, lambda task: task.tokens_kept == 1)
        stage.store.before_apply = overtaken(gates, lambda change: change.status is Status.CANCELLING)
        await stage.cancel(ident)
        assert (await stage.ended(ident)).status is Status.CANCELLED


@scenario
async def test_a_caller_who_leaves_in_mid_cancel_does_not_undo_it(tmp_path: Path) -> None:
    """The task ends although nobody is there to be told."""
    async with started(tmp_path) as stage:
        stage.runtime.play("hold", Script(gates={1: asyncio.Event()}))
        ident = await stage.submit("hold")
        await stage.store.until(ident, lambda task: task.tokens_kept == 1)
        stage.store.commits.clear()
        asked = asyncio.create_task(stage.cancel(ident))
        await turns(20)
        asked.cancel()
        await asyncio.gather(asked, return_exceptions=True)
        stage.store.commits.set()
        assert (await stage.ended(ident)).status is Status.CANCELLED


@scenario
async def test_a_cancel_that_the_disk_refuses_is_told_and_changes_nothing(tmp_path: Path) -> None:
    """The caller reads why, and may ask again."""
    async with started(tmp_path) as stage:
        stage.runtime.play("hold", Script(gates={1: asyncio.Event()}))
        ident = await stage.submit("hold")
        running = await stage.store.until(ident, lambda task: task.tokens_kept == 1)
        stage.store.trouble = lambda call: StorageFull("full") if call == "apply" else None
        with pytest.raises(StorageFull):
            await stage.cancel(ident)
        assert await stage.store.task(ident) == running
        stage.store.trouble = lambda _: None
        await stage.cancel(ident)
        assert (await stage.ended(ident)).status is Status.CANCELLED


@scenario
async def test_two_hundred_cancels_of_one_task_make_one_end(tmp_path: Path) -> None:
    """All are answered alike."""
    async with started(tmp_path) as stage:
        stage.runtime.play("hold", Script(gates={1: asyncio.Event()}))
        ident = await stage.submit("hold")
        await stage.store.until(ident, lambda task: task.tokens_kept == 1)
        await asyncio.gather(*(stage.cancel(ident) for _ in range(200)))
        assert (await stage.response(ident))["status"] == "cancelled"
        await stage.log(ident)
