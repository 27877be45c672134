"""The work on one task: what is drawn is kept, and whatever happens in between, it ends once."""

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.unit.engine.stage import Stage, opened, said, scenario, started, turns, types, undisturbed

from perdure.domain.errors import StorageFailed, StorageFull
from perdure.domain.lifecycle import Status
from perdure.ports.runtime import JobFailed, RuntimeCrashed
from perdure.ports.storage import Change, TaskRecord
from perdure.testing.scripted_runtime import Script, encoded

CLOSING = ["output_text.done", "content_part.done", "output_item.done"]


def error_of(task: TaskRecord) -> dict[str, Any]:
    """Why a task failed."""
    assert task.error is not None
    return msgspec.json.decode(task.error)


@pytest.mark.proves("P4")
@scenario
async def test_a_text_that_the_model_ends_is_completed(tmp_path: Path) -> None:
    """The end mark is counted and not shown; the end stands in one transaction with the last text."""
    async with started(tmp_path) as stage:
        stage.runtime.play("Hello", Script(length=6))
        ident = await stage.submit()
        task = await stage.ended(ident)
        log = await stage.log(ident)
        assert (task.status, task.tokens_kept) == (Status.COMPLETED, 6)
        assert said(log) == undisturbed("Hello", 5)
        assert types(log)[-4:] == [*CLOSING, "completed"]
        response = await stage.response(ident)
        assert response["output"][0]["content"][0]["text"] == said(log)
        assert response["usage"]["output_tokens"] == 6
        last = stage.store.changes[-1]
        assert (last.status, last.tokens_kept, types(last.events)[-1]) == (Status.COMPLETED, 6, "completed")


@scenario
async def test_a_text_at_its_limit_is_incomplete(tmp_path: Path) -> None:
    """The reason is in the object, and the counts are real."""
    async with started(tmp_path) as stage:
        ident = await stage.submit(max_output_tokens=3)
        assert (await stage.ended(ident)).status is Status.INCOMPLETE
        response = await stage.response(ident)
        assert response["incomplete_details"] == {"reason": "max_output_tokens"}
        assert response["usage"]["output_tokens"] == 3
        assert said(await stage.log(ident)) == undisturbed("Hello", 3)


@scenario
async def test_what_is_drawn_while_a_commit_is_under_way_becomes_one_event(tmp_path: Path) -> None:
    """No timer and no fixed window: the next batch gathers behind the write."""
    async with started(tmp_path) as stage:
        stage.runtime.play("long", Script(length=50))
        ident = await stage.submit("long")
        await stage.store.until(ident, lambda task: task.tokens_kept >= 1)
        stage.store.commits.clear()
        while stage.runtime.drawn < 50:
            await turns(1)
        stage.store.commits.set()
        await stage.ended(ident)
        log = await stage.log(ident)
        assert types(log).count("output_text.delta") <= 3
        assert said(log) == undisturbed("long", 49)


@scenario
async def test_tokens_without_text_are_kept_with_the_next_event(tmp_path: Path) -> None:
    """None is lost: the log alone gives all token ids."""
    async with started(tmp_path) as stage:
        stage.runtime.play("quiet", Script(length=6, silent=frozenset({0, 1, 3})))
        ident = await stage.submit("quiet")
        assert (await stage.ended(ident)).tokens_kept == 6
        log = await stage.log(ident)
        assert sum(len(event.tokens) for event in log) == 6
        assert said(log) == undisturbed("quiet", 5)


@scenario
async def test_a_job_that_the_runtime_refuses_fails_with_its_text_so_far(tmp_path: Path) -> None:
    """The partial text stays in the output, marked incomplete, and the reason is in the event."""
    async with started(tmp_path) as stage:
        stage.runtime.play("bad", Script(troubles=[(3, JobFailed("numbers that are no numbers"))]))
        ident = await stage.submit("bad")
        task = await stage.ended(ident)
        assert task.status is Status.FAILED
        assert error_of(task) == {"code": "generation_failed", "message": "numbers that are no numbers"}
        log = await stage.log(ident)
        assert types(log)[-4:] == [*CLOSING, "failed"]
        assert said(log) == undisturbed("bad", 3)
        response = await stage.response(ident)
        assert response["error"]["code"] == "generation_failed"
        assert response["output"][0]["status"] == "incomplete"
        assert len(stage.runtime.jobs) == 1


@scenario
async def test_after_a_crash_of_the_model_the_text_goes_on_as_if_there_was_none(tmp_path: Path) -> None:
    """By the kept tokens, so the text is the undisturbed one; a crash after progress is not counted."""
    async with started(tmp_path) as stage:
        crashes = [(position, RuntimeCrashed("gone")) for position in (2, 4, 6, 8)]
        stage.runtime.play("crash", Script(length=12, troubles=list(crashes)))
        ident = await stage.submit("crash")
        task = await stage.ended(ident)
        assert (task.status, task.crashes) == (Status.COMPLETED, 0)
        log = await stage.log(ident)
        assert said(log) == undisturbed("crash", 11)
        assert types(log).count("output_item.added") == 1
        assert [len(job.done) for job in stage.runtime.jobs] == [0, 2, 4, 6, 8]
        notes = [step.note for step in await stage.store.attempts(task.id)]
        assert notes.count("the model's process ended") == 4


@pytest.mark.proves("C-10")
@scenario
async def test_a_task_that_crashes_the_model_without_progress_ends_after_three_starts(tmp_path: Path) -> None:
    """It fails with `attempts_exhausted` and what it had shown; the task behind it runs."""
    async with started(tmp_path) as stage:
        stage.runtime.play("poison", Script(troubles=[(2, RuntimeCrashed("gone")) for _ in range(9)]))
        ident, behind = await stage.submit("poison"), await stage.submit("behind")
        task = await stage.ended(ident)
        assert (task.status, error_of(task)["code"]) == (Status.FAILED, "attempts_exhausted")
        assert said(await stage.log(ident)) == undisturbed("poison", 2)
        assert (await stage.ended(behind)).status is Status.COMPLETED
        # The first start drew two tokens, so its crash was one with progress.
        assert [job.ident for job in stage.runtime.jobs] == [ident] * 4 + [behind]


@scenario
async def test_a_fault_of_our_own_is_bounded_like_a_crash(tmp_path: Path) -> None:
    """It is told each time, and after three without progress the task fails."""
    async with started(tmp_path) as stage:
        stage.runtime.play("odd", Script(troubles=[(0, ValueError("odd")) for _ in range(9)]))
        ident = await stage.submit("odd")
        task = await stage.ended(ident)
        assert error_of(task)["code"] == "attempts_exhausted"
        assert [str(error) for _, error in stage.reports] == ["odd"] * 3


@scenario
async def test_a_model_is_held_from_its_load_to_the_end_whatever_the_end_is(tmp_path: Path) -> None:
    """It could else be unloaded between two steps, or would never be."""
    async with started(tmp_path, slots=4) as stage:
        stage.runtime.play("crashes", Script(troubles=[(2, RuntimeCrashed("it is gone"))]))
        stage.runtime.play("refused", Script(troubles=[(2, JobFailed("numbers that are not numbers"))]))
        stage.runtime.play("waits", Script(gates={3: asyncio.Event()}))
        others = [await stage.submit(text) for text in ("ends", "crashes", "refused")]
        waiting = await stage.submit("waits")
        for ident in others:
            await stage.ended(ident)
        while stage.runtime.users != {waiting}:
            await turns(1)
        await stage.engine.cancel(stage.principal, waiting, background_only=True)
        while stage.runtime.users:
            await turns(1)


@scenario
async def test_background_work_waits_for_a_model_that_cannot_be_used(tmp_path: Path) -> None:
    """A fault of the model loses no accepted work: what was loading is queued again, and runs once it is gone."""
    async with started(tmp_path) as stage:
        stage.runtime.load_gate = asyncio.Event()
        ident = await stage.submit("first")
        await stage.store.reaches(ident, Status.LOADING)
        stage.runtime.unavailable["tiny"] = "The file has changed."
        stage.runtime.load_gate.set()
        await stage.store.reaches(ident, Status.QUEUED)
        await turns(200)
        assert len([change for change in stage.store.changes if change.status is Status.LOADING]) == 1
        stage.runtime.unavailable.clear()
        assert (await stage.ended(ident)).status is Status.COMPLETED


@scenario
async def test_foreground_work_is_told_that_its_model_cannot_be_used(tmp_path: Path) -> None:
    """The code says so, and the message is the runtime's reason."""
    async with started(tmp_path) as stage:
        gate = asyncio.Event()
        stage.runtime.play("first", Script(gates={0: gate}, troubles=[(0, RuntimeCrashed("gone"))]))
        first = await stage.submit("first", background=False)
        async with stage.engine.follow(stage.principal, first, -1):
            await stage.store.reaches(first, Status.RUNNING)
            stage.runtime.unavailable["tiny"] = "The file has changed."
            gate.set()
            task = await stage.ended(first)
        assert (task.status, error_of(task)["code"]) == (Status.FAILED, "model_unavailable")
        assert error_of(task)["message"] == "The file has changed."


@scenario
async def test_a_task_of_a_model_that_this_start_does_not_serve_waits(tmp_path: Path) -> None:
    """A start with another model loses nothing: the task stays queued, and runs once its model is served again."""
    async with started(tmp_path) as stage:
        gate = asyncio.Event()
        stage.runtime.play("first", Script(gates={0: gate}))
        first, second = await stage.submit("first"), await stage.submit("second")
        await stage.store.reaches(first, Status.RUNNING)
        kept = stage.runtime.cards.pop("tiny")
        stage.runtime.cards["other"] = msgspec.structs.replace(kept, name="other")
        await stage.cancel(first)
        assert (await stage.ended(await stage.submit("behind it", model="other"))).status is Status.COMPLETED
        task = await stage.store.task(second)
        assert task is not None
        assert (task.status, task.claimed_at) == (Status.QUEUED, None)
        stage.runtime.cards["tiny"] = kept
        assert (await stage.ended(second)).status is Status.COMPLETED


@scenario
async def test_a_smaller_window_does_not_change_an_end_in_silence(tmp_path: Path) -> None:
    """A text that no longer has the room it was promised is cut, and said to be approximate."""
    async with opened(tmp_path) as stage:
        await stage.engine.start()
        gate = asyncio.Event()
        stage.runtime.play("long", Script(length=400, gates={50: gate}))
        ident = await stage.submit("long")
        await stage.store.until(ident, lambda task: task.tokens_kept == 50)
        await stage.kill()
        prompt = len(encoded("long"))
        stage.runtime.cards["tiny"] = msgspec.structs.replace(stage.runtime.cards["tiny"], context_length=prompt + 80)
        gate.set()
        await stage.restart()
        task = await stage.ended(ident)
        assert (task.status, task.tokens_kept) == (Status.INCOMPLETE, 80)
        assert (await stage.response(ident))["perdure"]["resume"] == "approximate"
        await stage.stop(0)


@scenario
async def test_a_window_without_room_for_what_was_drawn_fails_with_the_remedy(tmp_path: Path) -> None:
    """The reason names both numbers; what was drawn is kept."""
    async with opened(tmp_path) as stage:
        await stage.engine.start()
        gate = asyncio.Event()
        stage.runtime.play("long", Script(length=400, gates={50: gate}))
        ident = await stage.submit("long")
        await stage.store.until(ident, lambda task: task.tokens_kept == 50)
        await stage.kill()
        stage.runtime.cards["tiny"] = msgspec.structs.replace(stage.runtime.cards["tiny"], context_length=20)
        gate.set()
        await stage.restart()
        task = await stage.ended(ident)
        assert (task.status, error_of(task)["code"]) == (Status.FAILED, "context_length_exceeded")
        assert "window_tokens" in error_of(task)["message"]
        assert len((await stage.response(ident))["output"][0]["content"][0]["text"]) > 0
        await stage.stop(0)


@pytest.mark.parametrize("error", [StorageFull("full"), StorageFailed("failed")])
@scenario
async def test_output_is_held_while_the_disk_refuses_and_kept_when_it_does_not(
    tmp_path: Path, error: Exception
) -> None:
    """Nothing is lost and nothing drawn twice; no restart is needed."""
    async with started(tmp_path) as stage:
        gate = asyncio.Event()
        stage.runtime.play("hold", Script(length=30, gates={10: gate}))
        ident = await stage.submit("hold")
        await stage.store.until(ident, lambda task: task.tokens_kept == 10)
        refused = 0

        def refuse(call: str) -> Exception | None:
            nonlocal refused
            refused += call == "apply"
            return error if call == "apply" and refused <= 3 else None

        stage.store.trouble = refuse
        gate.set()
        assert (await stage.ended(ident)).status is Status.COMPLETED
        assert refused > 3
        assert said(await stage.log(ident)) == undisturbed("hold", 29)
        assert (len(stage.runtime.jobs), stage.runtime.drawn) == (1, 30)


@pytest.mark.parametrize("call", ["task", "events", "prompt", "apply"])
@scenario
async def test_a_store_that_refuses_anywhere_only_costs_time(tmp_path: Path, call: str) -> None:
    """Reads and writes of a run, from the claim to the end: whichever is refused, the text ends as undisturbed."""
    async with started(tmp_path) as stage:
        stage.runtime.play("hard", Script(length=12, troubles=[(5, RuntimeCrashed("gone"))]))
        calls = 0

        def every_third(made: str) -> Exception | None:
            nonlocal calls
            calls += made == call
            return StorageFailed("failed") if made == call and calls % 3 == 1 else None

        ident = await stage.submit("hard")
        stage.store.trouble = every_third
        task = await stage.ended(ident)
        stage.store.trouble = lambda _: None
        assert task.status is Status.COMPLETED
        assert said(await stage.log(ident)) == undisturbed("hard", 11)
        assert not [step for step in await stage.store.attempts(task.id) if "internal" in step.note]


async def left(stage: Stage, ident: str) -> TaskRecord:
    """The row after a stop that did not wait."""
    await stage.stop(seconds=0)
    task = await stage.store.task(ident)
    assert task is not None
    return task


@pytest.mark.proves("C-30")
@scenario
async def test_a_run_that_leaves_releases_its_row_and_changes_nothing_else(tmp_path: Path) -> None:
    """Nobody answers for the task then, which is how the next start knows that it did not crash."""
    async with started(tmp_path) as stage:
        stage.runtime.play("hold", Script(gates={2: asyncio.Event()}))
        ident = await stage.submit("hold")
        before = await stage.store.until(ident, lambda task: task.tokens_kept == 2)
        assert await left(stage, ident) == msgspec.structs.replace(before, boot=None)
        assert stage.runtime.busy == 0


@scenario
async def test_a_run_that_leaves_while_its_model_loads_releases_its_row(tmp_path: Path) -> None:
    """A load that does not end does not hold the stop."""
    async with started(tmp_path) as stage:
        stage.runtime.load_gate = asyncio.Event()
        ident = await stage.submit()
        await stage.store.reaches(ident, Status.LOADING)
        task = await left(stage, ident)
        assert (task.status, task.boot) == (Status.LOADING, None)


@scenario
async def test_a_run_that_leaves_while_the_disk_is_full_ends(tmp_path: Path) -> None:
    """The held output is given up; the log up to then is enough to go on."""
    async with started(tmp_path) as stage:
        gate = asyncio.Event()
        stage.runtime.play("hold", Script(length=9, gates={4: gate}))
        ident = await stage.submit("hold")
        before = await stage.store.until(ident, lambda task: task.tokens_kept == 4)
        stage.store.trouble = lambda call: StorageFull("full") if call == "apply" else None
        gate.set()
        while stage.runtime.drawn < 9:
            await turns(1)
        assert await left(stage, ident) == before


@scenario
async def test_a_cancel_in_the_moment_of_the_stop_does_not_break_the_release(tmp_path: Path) -> None:
    """The row has moved between the look and the write: the run looks again."""
    async with started(tmp_path) as stage:
        stage.runtime.play("hold", Script(gates={2: asyncio.Event()}))
        ident = await stage.submit("hold")
        await stage.store.until(ident, lambda task: task.tokens_kept == 2)

        async def overtake(change: Change) -> None:
            if change.boot is None and change.status is Status.RUNNING:
                stage.store.before_apply = None
                asked = asyncio.create_task(stage.cancel(ident))
                await stage.store.reaches(ident, Status.CANCELLING)
                stage.clock.advance(3)
                asked.cancel()

        stage.store.before_apply = overtake
        task = await left(stage, ident)
        assert (task.status, task.boot) == (Status.CANCELLING, None)
        assert stage.reports == []


@pytest.mark.parametrize("state", [Status.LOADING, Status.RUNNING])
@scenario
async def test_a_change_between_the_look_at_the_row_and_the_work_is_noticed(tmp_path: Path, state: Status) -> None:
    """A cancel that comes while the run reads its row does not wait for the next token, which may take minutes."""
    async with started(tmp_path) as stage:
        stage.runtime.play("hold", Script(gates={0: asyncio.Event()}))
        asked: list[asyncio.Task[None]] = []

        async def cancel_now(task: TaskRecord) -> None:
            if task.status is state and not asked:
                stage.runtime.load_gate = asyncio.Event() if state is Status.LOADING else None
                asked.append(asyncio.create_task(stage.cancel(task.ident)))
                await stage.store.reaches(task.ident, Status.CANCELLING, Status.CANCELLED)
                await turns(20)

        stage.store.after_task = cancel_now
        ident = await stage.submit("hold")
        assert (await stage.ended(ident)).status is Status.CANCELLED
        await asked[0]
        stage.runtime.load_gate = None
        await stage.ended(await stage.submit("next"))
