"""What a start finds and what it makes of it."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.unit.engine.mishaps import every
from tests.unit.engine.stage import Stage, opened, request, said, scenario, started, types, undisturbed, user

from perdure.domain.errors import StorageFailed
from perdure.domain.journal import Journal
from perdure.domain.lifecycle import TERMINAL, UNFINISHED, Status
from perdure.domain.parts import Text
from perdure.domain.recovery import OnRestart
from perdure.engine.record import Recorder
from perdure.engine.run import Fingerprint
from perdure.engine.wakeups import Wakeups
from perdure.ports.storage import Change, NewTask, StaleTask, TaskRecord
from perdure.testing.scripted_runtime import END_MARK, MODEL, Script, card, encoded, token
from perdure.testing.store_steps import QUEUE_MAX

LAST = "boot-0"
FAIL, RETRY, RESUME = OnRestart.FAIL, OnRestart.RETRY, OnRestart.RESUME
Q, L, R, C = Status.QUEUED, Status.LOADING, Status.RUNNING, Status.CANCELLING
KEPT = 3
CLOSING = ["output_text.done", "content_part.done", "output_item.done"]


async def leave(
    stage: Stage,
    state: Status,
    policy: OnRestart = RESUME,
    *,
    tokens: int = KEPT,
    prompt: str = "Hello",
    **fields: Any,
) -> TaskRecord:
    """A row as a process leaves it that is gone from one moment to the next."""
    recorder = Recorder(stage.store, stage.clock, Wakeups())
    ident = stage.names.ident(0)
    asked = request(on_restart=policy)
    journal = Journal(ident, stage.clock.now() // 1_000_000, asked, len(prompt))
    new = NewTask(
        ident=ident,
        client_id=stage.principal.client_id,
        model=MODEL,
        on_restart=policy,
        background=True,
        stored=True,
        exact=True,
        created_at=stage.clock.now(),
        request=msgspec.json.encode(asked),
        received=msgspec.json.encode([user(prompt)]),
        prompt=encoded(prompt),
        tokens_max=4096 - len(encoded(prompt)),
        events=tuple(journal.create()),
    )
    await stage.store.submit(new, QUEUE_MAX)
    task = await stage.store.task(ident)
    assert task is not None
    if state is not Q:
        task = await recorder.move(task, L, journal.claim(), boot=LAST, attempt=1, claimed_at=1, note="claimed")
    if state in (R, C):
        then = msgspec.json.encode(Fingerprint("d" * 64, '{"threads":1}')).decode()
        task = await recorder.move(task, R, fingerprint=then)
        if tokens:
            text, drawn = undisturbed(prompt, tokens), [token(encoded(prompt), place) for place in range(tokens)]
            task = await recorder.move(task, R, journal.write([Text(text)], drawn), tokens_kept=tokens)
    if state is C:
        task = await recorder.move(task, C, note="cancel requested")
    if fields:
        task = await recorder.move(task, task.status, **fields)
    return task


@pytest.mark.proves("P8", "R1", "R2", "R3", "R4", "R5", "R6", "R7")
@pytest.mark.parametrize(
    ("state", "policy", "becomes", "writes"),
    [
        (Q, FAIL, Status.FAILED, ["failed"]),
        (Q, RETRY, Q, None),
        (Q, RESUME, Q, None),
        (L, FAIL, Status.FAILED, ["failed"]),
        (L, RETRY, Q, []),
        (L, RESUME, Q, []),
        (R, FAIL, Status.FAILED, [*CLOSING, "failed"]),
        (R, RETRY, Q, [*CLOSING, "perdure:task.retried"]),
        (R, RESUME, R, []),
        (C, FAIL, Status.CANCELLED, [*CLOSING, "cancelled"]),
        (C, RETRY, Status.CANCELLED, [*CLOSING, "cancelled"]),
        (C, RESUME, Status.CANCELLED, [*CLOSING, "cancelled"]),
    ],
)
@scenario
async def test_each_task_is_settled_by_its_own_policy(
    tmp_path: Path, state: Status, policy: OnRestart, becomes: Status, writes: list[str] | None
) -> None:
    """The new state and its events are one change, made before anything else happens to the task."""
    async with opened(tmp_path) as stage:
        task = await leave(stage, state, policy)
        stage.store.changes.clear()
        await stage.engine.start()
        changes = [change for change in stage.store.changes if change.task_id == task.id]
        if writes is None:
            assert changes == []
        else:
            (change,) = changes
            assert (change.status, types(change.events)) == (becomes, writes)
        settled = await stage.store.task(task.ident)
        assert settled is not None
        assert settled.status is becomes
        assert settled.boot == ("boot-1" if becomes is R else None)
        if becomes is Status.FAILED:
            assert settled.error is not None
            assert msgspec.json.decode(settled.error)["code"] == "server_restarted"
            assert (await stage.response(task.ident))["error"]["code"] == "server_restarted"
        if becomes not in TERMINAL:
            assert (await stage.ended(task.ident)).status is Status.COMPLETED
            assert (await stage.response(task.ident))["output"][0]["content"][0]["text"] == undisturbed("Hello", 5)
        await stage.log(task.ident)
        await stage.stop()


@pytest.mark.proves("R3")
@scenario
async def test_a_resumed_text_is_the_undisturbed_one(tmp_path: Path) -> None:
    """It goes on after the kept tokens, in the same item, without an event for the restart."""
    async with opened(tmp_path) as stage:
        task = await leave(stage, R)
        await stage.engine.start()
        await stage.ended(task.ident)
        log = await stage.log(task.ident)
        assert said(log) == undisturbed("Hello", 5)
        assert types(log).count("output_item.added") == 1
        assert [len(job.done) for job in stage.runtime.jobs] == [KEPT]
        assert (await stage.response(task.ident))["perdure"]["resume"] == "exact"
        await stage.stop()


@pytest.mark.proves("C-25")
@scenario
async def test_a_text_whose_last_token_was_kept_ends_without_a_new_one(tmp_path: Path) -> None:
    """The process was gone between the last token and the end: nothing is drawn again."""
    async with opened(tmp_path) as stage:
        stage.runtime.play("Hello", Script(length=6))
        task = await leave(stage, R, tokens=5)
        recorder = Recorder(stage.store, stage.clock, Wakeups())
        journal = await recorder.journal(task)
        events = journal.write([Text(" ")], [END_MARK])
        task = await recorder.move(task, R, events, tokens_kept=6)
        await stage.engine.start()
        assert (await stage.ended(task.ident)).status is Status.COMPLETED
        assert stage.runtime.drawn == 0
        await stage.stop()


@pytest.mark.proves("R3")
@pytest.mark.parametrize("shown", [True, False])
@pytest.mark.parametrize("fault", ["changed", "gone", "unusable"])
@scenario
async def test_a_snapshot_that_cannot_be_used_fails_what_was_shown_and_queues_what_was_not(
    tmp_path: Path, fault: str, shown: bool
) -> None:
    """Never a silent restart; the reason stands in the detail."""
    async with opened(tmp_path) as stage:
        task = await leave(stage, R, tokens=KEPT if shown else 0)
        match fault:
            case "changed":
                stage.runtime.cards[MODEL] = card(MODEL, digest="e" * 64)
            case "gone":
                stage.runtime.cards.clear()
            case _:
                stage.runtime.unavailable[MODEL] = "The file is damaged."
        stage.store.changes.clear()
        await stage.engine.start()
        settled = stage.store.changes[0]
        if not shown:
            assert (settled.status, types(settled.events)) == (Q, [])
            if fault != "changed":  # it waits for a start at which its model can be used
                await stage.cancel(task.ident)
            ended = Status.COMPLETED if fault == "changed" else Status.CANCELLED
            assert (await stage.ended(task.ident)).status is ended
        else:
            assert (settled.status, types(settled.events)) == (Status.FAILED, [*CLOSING, "failed"])
            error = (await stage.response(task.ident))["error"]
            assert error["code"] == "server_restarted"
            assert error["detail"].startswith("snapshot_unusable: ")
        await stage.stop()


@scenario
async def test_a_changed_fingerprint_goes_on_and_says_approximate(tmp_path: Path) -> None:
    """The same file on another machine: the text goes on, and the response does not claim to be exact."""
    async with opened(tmp_path) as stage:
        task = await leave(stage, R)
        stage.runtime.cards[MODEL] = card(MODEL, fingerprint='{"threads":2}')
        await stage.engine.start()
        assert (await stage.ended(task.ident)).status is Status.COMPLETED
        assert (await stage.response(task.ident))["perdure"]["resume"] == "approximate"
        await stage.stop()


@scenario
async def test_a_retried_text_is_a_new_item_and_the_old_one_is_closed(tmp_path: Path) -> None:
    """The attempt counts up; the output holds the new text only; the history tells of both."""
    async with opened(tmp_path) as stage:
        task = await leave(stage, R, RETRY)
        await stage.engine.start()
        ended = await stage.ended(task.ident)
        response = await stage.response(task.ident)
        assert (ended.attempt, response["perdure"]["attempt"]) == (2, 2)
        assert [item["content"][0]["text"] for item in response["output"]] == [undisturbed("Hello", 5)]
        assert types(await stage.log(task.ident)).count("output_item.added") == 2
        history = (await stage.engine.task(stage.principal, task.ident)).history
        assert isinstance(history, tuple)
        assert [step.attempt for step in history] == [0, 1, 2, 2, 2, 2]
        await stage.stop()


Fields = dict[str, Any]


@pytest.mark.parametrize(
    ("state", "tokens", "fields", "crashes"),
    [
        (L, 0, {}, 1),
        (L, 0, {"crashes": 1}, 2),
        (L, 0, {"boot": None, "crashes": 1}, 1),
        (R, KEPT, {}, 0),
        (R, KEPT, {"crashes": 2}, 0),
        (R, KEPT, {"tokens_mark": KEPT, "crashes": 1}, 2),
        (R, KEPT, {"tokens_mark": KEPT, "crashes": 1, "boot": None}, 1),
    ],
)
@pytest.mark.parametrize("policy", [RETRY, RESUME])
@scenario
async def test_crashes_without_progress_are_counted_and_drained_stops_are_not(
    tmp_path: Path, policy: OnRestart, state: Status, tokens: int, fields: Fields, crashes: int
) -> None:
    """A kept token since the last start sets the count back; a row that nobody answered for did not crash."""
    async with opened(tmp_path) as stage:
        task = await leave(stage, state, policy, tokens=tokens, **fields)
        stage.store.changes.clear()
        await stage.engine.start()
        assert stage.store.changes[0].task_id == task.id
        assert stage.store.changes[0].crashes == crashes
        await stage.stop()


async def begun(stage: Stage, ident: str, starts: int) -> TaskRecord:
    """The task once the model has been started so often and its tokens are kept, or once it has ended."""
    while True:
        task = await stage.store.task(ident)
        assert task is not None
        if task.status in TERMINAL or (len(stage.runtime.jobs) >= starts and task.tokens_kept >= 2):
            return task


@pytest.mark.proves("C-10")
@pytest.mark.parametrize("policy", [RETRY, RESUME])
@scenario
async def test_a_task_that_brings_the_process_down_again_and_again_is_given_up(
    tmp_path: Path, policy: OnRestart
) -> None:
    """Always at the same place of its text: after three without getting further it fails, and others run."""
    async with started(tmp_path) as stage:
        stage.runtime.play("poison", Script(gates={2: asyncio.Event()}))
        poison = await stage.submit("poison", on_restart=policy)
        starts = 1
        while (task := await begun(stage, poison, starts)).status not in TERMINAL:
            assert starts < 10, "started for ever"
            starts += 1
            await stage.restart()
        assert task.error is not None
        assert msgspec.json.decode(task.error)["code"] == "attempts_exhausted"
        assert len(stage.runtime.jobs) == 4
        assert (await stage.ended(await stage.submit("healthy"))).status is Status.COMPLETED


@pytest.mark.proves("C-10")
@pytest.mark.parametrize("how", ["killed", "drained"])
@scenario
async def test_a_task_that_only_waited_is_not_blamed_for_the_end_of_the_process(tmp_path: Path, how: str) -> None:
    """Resumed tasks that wait for a slot outlive any number of restarts that their neighbour causes."""
    async with opened(tmp_path) as stage:
        neighbour, waiting = await leave(stage, R, prompt="never"), await leave(stage, R)
        gate = asyncio.Event()
        stage.runtime.play("never", Script(gates={KEPT: gate}))
        await stage.engine.start()
        for start in (1, 2, 3):
            await begun(stage, neighbour.ident, start)
            if how == "drained":
                await stage.stop(seconds=0)
            await stage.restart()
        gate.set()
        ended = await stage.ended(waiting.ident)
        assert (ended.status, ended.crashes) == (Status.COMPLETED, 0)
        await stage.stop()


@pytest.mark.proves("C-06", "C-12", "P8")
@scenario
async def test_all_are_settled_though_every_seventh_call_of_the_store_fails(tmp_path: Path) -> None:
    """Fifty tasks in every state: none is left out, none is settled twice, and ready comes last."""
    async with opened(tmp_path) as stage:
        makings = [(state, policy) for state in (Q, L, R, C) for policy in OnRestart]
        left = [await leave(stage, *makings[number % len(makings)]) for number in range(50)]
        stage.store.changes.clear()
        stage.store.trouble = every(7, lambda: StorageFailed("locked"))
        starting = asyncio.create_task(stage.engine.start())
        await asyncio.sleep(1)  # the loop's time
        assert not stage.engine.health().ready
        assert await starting == 50
        stage.store.trouble = lambda _: None
        assert stage.engine.health().ready
        assert len(stage.reports) > 10
        for task in left:
            ended = await stage.ended(task.ident)
            log = await stage.log(task.ident)
            assert types(log)[-1] == str(ended.status)
        moves = [change.task_id for change in stage.store.changes if change.at and change.status in TERMINAL]
        assert len(moves) == len(set(moves)) == 50
        await stage.stop()


@pytest.mark.parametrize("call", ["boot", "unfinished", "task", "events", "apply"])
@scenario
async def test_a_store_that_refuses_once_does_not_stop_the_start(tmp_path: Path, call: str) -> None:
    """Whichever call it is: it is told, and made again."""
    async with opened(tmp_path) as stage:
        task = await leave(stage, R)
        troubles = [StorageFailed("locked")]
        stage.store.trouble = lambda made: troubles.pop() if made == call and troubles else None
        assert await stage.engine.start() == 1
        assert len(stage.reports) == 1
        assert (await stage.ended(task.ident)).status is Status.COMPLETED
        await stage.stop()


@pytest.mark.parametrize(("state", "policy"), [(R, RESUME), (R, RETRY), (L, RETRY), (R, FAIL), (C, RETRY)])
@scenario
async def test_a_write_that_was_refused_and_kept_after_all_is_not_made_twice(
    tmp_path: Path, state: Status, policy: OnRestart
) -> None:
    """The disk may say no to a commit that it then has: the row is looked at again, not the memory of it."""
    async with opened(tmp_path) as stage:
        task = await leave(stage, state, policy)

        async def kept_after_all(change: Change) -> None:
            stage.store.before_apply = None
            await stage.store.apply(change)
            raise StorageFailed("no answer")

        stage.store.changes.clear()
        stage.store.before_apply = kept_after_all
        await stage.engine.start()
        assert [change.task_id for change in stage.store.changes] == [task.id]
        assert [str(error) for _, error in stage.reports] == ["no answer"]
        await stage.ended(task.ident)
        await stage.log(task.ident)
        await stage.stop()


@scenario
async def test_a_row_that_cannot_be_understood_does_not_keep_the_others_waiting(tmp_path: Path) -> None:
    """It is told and left as it is; what comes after it is settled, and the service starts."""
    async with opened(tmp_path) as stage:
        bad = await leave(stage, L)
        good = await leave(stage, R)
        nonsense: Callable[[str], Exception | None] = every(1, lambda: AssertionError("a log with a gap"))
        spoilt = [bad.ident]

        def once(call: str) -> Exception | None:
            return nonsense(call) if call == "events" and spoilt and spoilt.pop() else None

        stage.store.trouble = once
        await stage.engine.start()
        assert [what for what, _ in stage.reports] == [f"recovery of {bad.ident}"]
        assert (await stage.ended(good.ident)).status is Status.COMPLETED
        assert (await stage.store.task(bad.ident)) == bad
        assert bad.status in UNFINISHED
        await stage.stop()


@scenario
async def test_more_tasks_than_a_page_are_all_settled(tmp_path: Path) -> None:
    """The scan goes on to the last page, also past those that stay unfinished."""
    async with opened(tmp_path) as stage:
        left = [
            await leave(stage, state, policy)
            for _ in range(85)
            for state, policy in ((L, RETRY), (L, FAIL), (Q, FAIL))
        ]
        assert await stage.engine.start() == 255
        found = [await stage.store.task(task.ident) for task in left]
        assert {task.boot for task in found if task is not None} <= {None, "boot-1"}
        assert sum(task is not None and task.status is Status.FAILED for task in found) == 170
        await stage.stop(seconds=0)


@scenario
async def test_a_step_of_the_process_before_is_stale(tmp_path: Path) -> None:
    """A run that is somehow still there after a restart cannot write over what recovery decided."""
    async with opened(tmp_path) as stage:
        task = await leave(stage, R, RETRY)
        await stage.engine.start()
        recorder = Recorder(stage.store, stage.clock, Wakeups())
        with pytest.raises(StaleTask):
            await recorder.move(task, R, tokens_kept=9)
        await stage.ended(task.ident)
        await stage.stop()
