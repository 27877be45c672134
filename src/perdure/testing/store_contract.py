# ruff: noqa: S101 -- assert is what a test is made of
"""What every store must do, as tests.

A database's tests derive a class from `StoreContract`, say how a store is opened in a folder, and run all of it:

    class TestSqliteStore(StoreContract):
        async def open_store(self, folder: Path) -> Store:
            return await SqliteStore.open(folder / "perdure.db")

The tests know a store by its port alone.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from functools import wraps
from pathlib import Path
from typing import Any, Concatenate, ParamSpec

import pytest

from perdure.domain import events as ev
from perdure.domain.errors import NotFound, QueueFull, Unavailable
from perdure.domain.lifecycle import TERMINAL, Status
from perdure.domain.model import ModelCard
from perdure.domain.principal import ALL_SCOPES, Principal, Scope
from perdure.domain.recovery import OnRestart
from perdure.ports.storage import Attempt, Change, StaleTask, Store, TaskRecord
from perdure.testing.store_steps import (
    BOOT,
    END_TYPES,
    MODEL,
    QUEUE_MAX,
    TOKEN,
    TOO_MANY,
    add_client,
    all_events,
    claim,
    delta,
    end,
    finished,
    found,
    grow,
    lifecycle,
    moved,
    new_task,
    running,
    start,
    submitted,
)

P = ParamSpec("P")


async def outcomes(calls: Sequence[Awaitable[object]]) -> list[object]:
    """What became of calls made at the same time: None or an exception each."""
    return list(await asyncio.gather(*calls, return_exceptions=True))


def idents(tasks: Sequence[TaskRecord]) -> list[str]:
    """Their names."""
    return [task.ident for task in tasks]


# How the tests are run.


class Place:
    """Where a store lives for one test; what is still open at the end is closed."""

    def __init__(self, opener: Callable[[], Awaitable[Store]]) -> None:
        self._opener = opener
        self._store: Store | None = None

    async def open(self) -> Store:
        """Open the store, closing the one before."""
        await self.leave()
        self._store = await self._opener()
        return self._store

    async def leave(self) -> None:
        """Close what is open."""
        if self._store is not None:
            await self._store.close()


def scenario(
    test: Callable[Concatenate["StoreContract", Place, P], Coroutine[Any, Any, None]],
) -> Callable[Concatenate["StoreContract", Place, P], None]:
    """Run an async test on an event loop of its own."""

    @wraps(test)
    def run(self: "StoreContract", place: Place, *args: P.args, **parameters: P.kwargs) -> None:
        async def play() -> None:
            try:
                await test(self, place, *args, **parameters)
            finally:
                await place.leave()

        asyncio.run(play())

    return run


class StoreContract(ABC):
    """The tests. Each gets a folder of its own."""

    @abstractmethod
    async def open_store(self, folder: Path) -> Store:
        """Open the store that lives in `folder`, making it the first time."""

    @pytest.fixture
    def place(self, tmp_path: Path) -> Place:
        """An empty place."""
        return Place(lambda: self.open_store(tmp_path))

    # Submit.

    @pytest.mark.proves("P1", "P3")
    @scenario
    async def test_a_submitted_task_is_read_back_whole(self, place: Place) -> None:
        """Nothing that was handed over is lost or changed."""
        store = await place.open()
        client = await add_client(store)
        new = new_task("a", client, prompt=(0, 5, 2**32 - 1))
        await store.submit(new, QUEUE_MAX)
        task = await found(store, "a")
        expected = TaskRecord(
            id=task.id,
            ident="a",
            client_id=client,
            kind="response",
            model="tiny",
            status=Status.QUEUED,
            on_restart=OnRestart.RESUME,
            background=True,
            stored=True,
            exact=True,
            attempt=0,
            crashes=0,
            next_seq=2,
            tokens_kept=0,
            tokens_mark=0,
            prompt_tokens=3,
            tokens_max=100,
            created_at=1_000,
            claimed_at=None,
            finished_at=None,
            boot=None,
            fingerprint=None,
            error=None,
            purge_at=None,
            hidden=False,
            request=new.request,
        )
        assert task == expected
        assert await all_events(store, task) == list(new.events)
        assert await store.prompt(task.id) == new.prompt
        assert await store.snapshot(task.id) == new.events[1].snapshot

    @scenario
    async def test_what_is_not_there_is_none_or_empty(self, place: Place) -> None:
        """Asking for an unknown task is no error."""
        store = await place.open()
        assert await store.task("nobody") is None
        assert await store.events(77, -1, 10) == []
        assert await store.snapshot(77) is None
        assert await store.prompt(77) == ()
        assert await store.attempts(77) == []
        assert await store.queue_position(77) is None

    @scenario
    async def test_a_full_queue_refuses_and_creates_nothing(self, place: Place) -> None:
        """The bound counts queued tasks only, and is decided where the task is written."""
        store = await place.open()
        client = await add_client(store)
        results = await outcomes([store.submit(new_task(f"t{n}", client), 3) for n in range(5)])
        assert [type(result) for result in results] == [type(None)] * 3 + [QueueFull] * 2
        assert await store.task("t3") is None
        await store.apply(claim(await found(store, "t0")))
        await store.submit(new_task("t5", client), 3)

    @scenario
    async def test_an_ident_names_one_task(self, place: Place) -> None:
        """A second submit under the same name is a fault of the program and leaves the first alone."""
        store = await place.open()
        client = await add_client(store)
        first = await submitted(store, "a", client)
        with pytest.raises(AssertionError):
            await store.submit(new_task("a", client, background=False), QUEUE_MAX)
        assert await found(store, "a") == first

    @scenario
    async def test_a_task_has_ended_in_a_terminal_state_or_when_it_is_gone(self, place: Place) -> None:
        """And in no other; a name that never was has no events to wait for either."""
        store = await place.open()
        task = await submitted(store, "a", await add_client(store))
        for step in (claim, start, grow):
            assert not await store.ended("a")
            task = await moved(store, task, step)
        assert not await store.ended("a")
        task = await moved(store, task, end)
        assert await store.ended("a")
        await store.purge(task.id)
        assert await store.ended("a")
        assert await store.ended("b")

    @scenario
    async def test_a_task_belongs_to_a_client_that_exists(self, place: Place) -> None:
        """Nothing is kept for nobody."""
        store = await place.open()
        with pytest.raises(AssertionError):
            await store.submit(new_task("a", 99), QUEUE_MAX)
        assert await store.task("a") is None

    @scenario
    async def test_ids_grow_and_never_come_back(self, place: Place) -> None:
        """The number of a removed task is not given to a new one: a late step must not find the wrong task."""
        store = await place.open()
        client = await add_client(store)
        first, last = await submitted(store, "a", client), await finished(store, "b", client)
        assert first.id < last.id
        await store.purge(last.id)
        assert (await submitted(store, "c", client)).id > last.id

    @scenario
    async def test_two_hundred_submits_at_once_are_all_kept(self, place: Place) -> None:
        """Callers do not stand in each other's way."""
        store = await place.open()
        client = await add_client(store)
        names = [f"t{n:03}" for n in range(200)]
        await asyncio.gather(*(store.submit(new_task(name, client), QUEUE_MAX) for name in names))
        assert sorted(idents(await store.unfinished(0, TOO_MANY))) == names

    @scenario
    async def test_one_failing_write_harms_nobody_else(self, place: Place) -> None:
        """Writes that are made together fail apart."""
        store = await place.open()
        client = await add_client(store)
        names = ["a", "b", "a", "c", "b", "d"]
        results = await outcomes([store.submit(new_task(name, client), QUEUE_MAX) for name in names])
        assert [isinstance(result, AssertionError) for result in results] == [False, False, True, False, True, False]
        assert idents(await store.unfinished(0, TOO_MANY)) == ["a", "b", "c", "d"]

    @scenario
    async def test_a_cancelled_caller_leaves_his_write_and_all_others(self, place: Place) -> None:
        """Cancelling only ends the waiting."""
        store = await place.open()
        client = await add_client(store)
        callers = [asyncio.create_task(store.submit(new_task(f"t{n}", client), QUEUE_MAX)) for n in range(20)]
        await asyncio.sleep(0)
        for caller in callers[::2]:
            caller.cancel()
        results = await outcomes(callers)
        assert [isinstance(result, asyncio.CancelledError) for result in results] == [True, False] * 10
        assert len(await store.unfinished(0, TOO_MANY)) == 20

    # Events.

    @scenario
    async def test_events_come_back_byte_for_byte(self, place: Place) -> None:
        """Small, large, with tokens, with any text, with a snapshot: the same as it was written."""
        store = await place.open()
        task = await running(store, "a", await add_client(store))
        texts = ["", '\x00\n"\\', "Größe 漢字 🜁", "x" * 799, "y" * 100_000, "Ω" * 900]
        written = [delta(task.next_seq + n, text, (n, 2**32 - 1)) for n, text in enumerate(texts)]
        await store.apply(
            Change(
                task.id, frozenset({Status.RUNNING}), task.next_seq, Status.RUNNING, 1, tuple(written), tokens_kept=12
            )
        )
        task = await found(store, "a")
        log = await all_events(store, task)
        assert list(log[-len(written) :]) == written
        assert log[0].json == new_task("a", 1).events[0].json

    @scenario
    async def test_a_page_of_events_begins_after_its_cursor(self, place: Place) -> None:
        """`after` is exclusive, `limit` is kept, and there is nothing beyond the end."""
        store = await place.open()
        task = await running(store, "a", await add_client(store))
        task = await moved(store, task, *[grow] * 5)
        log = list(await all_events(store, task))
        assert await store.events(task.id, -1, 3) == log[:3]
        assert await store.events(task.id, 2, 3) == log[3:6]
        assert await store.events(task.id, task.next_seq - 1, 3) == []

    @scenario
    async def test_events_of_two_tasks_do_not_mix(self, place: Place) -> None:
        """A log is one task's."""
        store = await place.open()
        client = await add_client(store)
        first, second = await running(store, "a", client), await running(store, "b", client)
        first = await moved(store, first, lambda task: grow(task, "mine"))
        second = await moved(store, second, lambda task: grow(task, "yours"))
        assert b"yours" not in b"".join(event.json for event in await all_events(store, first))
        assert b"mine" not in b"".join(event.json for event in await all_events(store, second))

    @scenario
    async def test_the_snapshot_is_that_of_the_last_lifecycle_event(self, place: Place) -> None:
        """Events in between, large ones too, do not touch it."""
        store = await place.open()
        task = await running(store, "a", await add_client(store))
        claimed = (await store.events(task.id, 1, 1))[0].snapshot
        task = await moved(store, task, lambda task: grow(task, "z" * 5_000))
        assert await store.snapshot(task.id) == claimed
        task = await moved(store, task, end)
        assert await store.snapshot(task.id) == (await all_events(store, task))[-1].snapshot

    # Apply.

    @pytest.mark.proves("P4")
    @scenario
    async def test_a_step_moves_what_it_names_and_nothing_else(self, place: Place) -> None:
        """Fields left UNSET stay; None sets back."""
        store = await place.open()
        task = await running(store, "a", await add_client(store))
        assert (task.status, task.boot, task.attempt, task.claimed_at) == (Status.RUNNING, BOOT, 1, 2_000)
        seq, cancelling = task.next_seq, frozenset({Status.CANCELLING})
        given: dict[str, Any] = {
            "boot": "b",
            "attempt": 2,
            "crashes": 3,
            "tokens_kept": 4,
            "tokens_mark": 5,
            "claimed_at": 6,
            "fingerprint": "f",
            "exact": False,
            "error": "e",
            "purge_at": 8,
            "hidden": True,
        }
        await store.apply(Change(task.id, frozenset({Status.RUNNING}), seq, Status.CANCELLING, 9, **given))
        after = await found(store, "a")
        assert {name: getattr(after, name) for name in given} == given
        assert after.status is Status.CANCELLING
        await store.apply(Change(task.id, cancelling, seq, Status.CANCELLING, 10))
        assert await found(store, "a") == after
        await store.apply(
            Change(task.id, cancelling, seq, Status.CANCELLING, 11, boot=None, fingerprint=None, purge_at=None)
        )
        last = await found(store, "a")
        assert (last.boot, last.fingerprint, last.purge_at, last.error, last.crashes) == (None, None, None, "e", 3)

    @pytest.mark.proves("P4")
    @scenario
    async def test_new_text_counts_its_tokens(self, place: Place) -> None:
        """The most frequent step: one event, and the number of tokens that are kept."""
        store = await place.open()
        task = await running(store, "a", await add_client(store))
        for kept in (2, 4, 6):
            await store.apply(grow(task, "two words", (7, 8)))
            task = await found(store, "a")
            assert (task.tokens_kept, task.status, task.boot, task.attempt) == (kept, Status.RUNNING, BOOT, 1)
        tokens = [token for event in await all_events(store, task) for token in event.tokens]
        assert tokens == [7, 8] * 3

    @pytest.mark.parametrize("stale", ["status", "number", "gone"])
    @scenario
    async def test_a_step_from_an_old_state_is_stale_and_writes_nothing(self, place: Place, stale: str) -> None:
        """Status and next number must both be what the caller has seen."""
        store = await place.open()
        task = await running(store, "a", await add_client(store))
        changes = {
            "status": Change(task.id, frozenset({Status.QUEUED}), task.next_seq, Status.FAILED, 1, finished_at=1),
            "number": Change(task.id, frozenset({Status.RUNNING}), task.next_seq - 1, Status.RUNNING, 1),
            "gone": Change(task.id + 1, frozenset({Status.RUNNING}), task.next_seq, Status.RUNNING, 1),
        }
        log = await all_events(store, task)
        with pytest.raises(StaleTask):
            await store.apply(changes[stale])
        assert await found(store, "a") == task
        assert await all_events(store, task) == log

    @pytest.mark.proves("P4", "P5")
    @scenario
    async def test_of_two_hundred_steps_from_one_state_one_is_made(self, place: Place) -> None:
        """The others meet `StaleTask`, and the log holds the winner's event only."""
        store = await place.open()
        task = await running(store, "a", await add_client(store))
        results = await outcomes([store.apply(grow(task, f"from {n}")) for n in range(200)])
        winners = [n for n, result in enumerate(results) if result is None]
        assert len(winners) == 1
        assert sum(isinstance(result, StaleTask) for result in results) == 199
        task = await found(store, "a")
        assert (await all_events(store, task))[-1].data.endswith(b'"delta":"from %d"}' % winners[0])

    @pytest.mark.proves("P5")
    @scenario
    async def test_text_that_comes_after_a_cancel_request_is_stale(self, place: Place) -> None:
        """The request writes no event, so only the status tells."""
        store = await place.open()
        task = await running(store, "a", await add_client(store))
        await store.apply(Change(task.id, frozenset({Status.RUNNING}), task.next_seq, Status.CANCELLING, 1))
        with pytest.raises(StaleTask):
            await store.apply(grow(task))
        assert len(await all_events(store, await found(store, "a"))) == task.next_seq

    @pytest.mark.proves("P5")
    @scenario
    async def test_a_task_is_cancelled_or_completed_and_never_both(self, place: Place) -> None:
        """Of a cancel and a finish at the same moment one is made."""
        store = await place.open()
        client = await add_client(store)
        for n in range(20):
            task = await running(store, f"t{n}", client)
            rivals = [end(task, Status.CANCELLED), end(task, Status.COMPLETED)]
            results = await outcomes([store.apply(change) for change in (rivals if n % 2 else rivals[::-1])])
            assert sorted(type(result).__name__ for result in results) == ["NoneType", "StaleTask"]
            task = await found(store, task.ident)
            ends = [event.type for event in await all_events(store, task) if event.type in ev.TERMINAL_TYPES]
            assert ends == [f"response.{task.status}"]

    @pytest.mark.proves("P4")
    @scenario
    async def test_a_step_whose_event_cannot_be_written_does_not_move_the_status(self, place: Place) -> None:
        """Status and events change together or not at all."""
        store = await place.open()
        task = await running(store, "a", await add_client(store))
        gap = Change(
            task.id,
            frozenset({Status.RUNNING}),
            task.next_seq,
            Status.CANCELLING,
            1,
            (delta(task.next_seq + 1, "late"),),
        )
        ends = (lifecycle(task.next_seq, ev.COMPLETED), lifecycle(task.next_seq + 1, ev.FAILED))
        twice = Change(
            task.id, frozenset({Status.RUNNING}), task.next_seq, Status.COMPLETED, 1, ends, finished_at=1, note="no"
        )
        history = await store.attempts(task.id)
        for change in (gap, twice):
            with pytest.raises(AssertionError):
                await store.apply(change)
            assert await found(store, "a") == task
            assert len(await all_events(store, task)) == task.next_seq
            assert await store.attempts(task.id) == history

    @pytest.mark.proves("P5")
    @pytest.mark.parametrize("status", sorted(TERMINAL))
    @scenario
    async def test_a_terminal_state_is_never_left(self, place: Place, status: Status) -> None:
        """Neither to another state nor by more events; only its retention and its visibility can change."""
        store = await place.open()
        task = await running(store, "a", await add_client(store))
        task = await moved(store, task, lambda task: end(task, status))
        seq = task.next_seq
        for change in (
            Change(task.id, frozenset({status}), seq, Status.QUEUED, 1),
            Change(task.id, frozenset({status}), seq, status, 1, (delta(seq, "more"),)),
            *(
                Change(task.id, frozenset({status}), seq, other, 1, (lifecycle(seq, END_TYPES[other]),))
                for other in TERMINAL - {status}
            ),
        ):
            with pytest.raises(AssertionError):
                await store.apply(change)
        with pytest.raises(StaleTask):
            await store.apply(end(task, Status.FAILED))
        assert await found(store, "a") == task
        await store.apply(Change(task.id, frozenset({status}), seq, status, 1, purge_at=77, hidden=True))
        assert await found(store, "a") != task

    @scenario
    async def test_an_end_has_its_time_and_nothing_else_has_one(self, place: Place) -> None:
        """A step that says otherwise is a fault of the program."""
        store = await place.open()
        task = await running(store, "a", await add_client(store))
        for change in (
            Change(task.id, frozenset({Status.RUNNING}), task.next_seq, Status.FAILED, 1),
            Change(task.id, frozenset({Status.RUNNING}), task.next_seq, Status.CANCELLING, 1, finished_at=1),
        ):
            with pytest.raises(AssertionError):
                await store.apply(change)
        assert await found(store, "a") == task

    @scenario
    async def test_the_history_tells_what_happened_and_why(self, place: Place) -> None:
        """A note is kept with the attempt and the status that its step led to."""
        store = await place.open()
        task = await running(store, "a", await add_client(store))
        failed = end(task, Status.FAILED)
        await store.apply(
            Change(
                task.id,
                failed.from_status,
                task.next_seq,
                failed.status,
                9,
                failed.events,
                finished_at=9,
                note="lost",
            )
        )
        submitted, *later = await store.attempts(task.id)
        assert (submitted.at, submitted.attempt, submitted.status) == (1_000, 0, Status.QUEUED)
        assert later == [Attempt(2_000, 1, Status.LOADING, "claimed"), Attempt(9, 1, Status.FAILED, "lost")]

    # The queue.

    @scenario
    async def test_a_slot_takes_its_own_tasks_first_then_the_queue(self, place: Place) -> None:
        """Own and not live, the oldest first; then foreground before background, each in the order of submit."""
        store = await place.open()
        client = await add_client(store)
        own = [await running(store, f"own{n}", client) for n in range(2)]
        loading = await moved(store, await submitted(store, "loading", client), claim)
        for name in ("back1", "fore1", "back2", "fore2"):
            await submitted(store, name, client, background=name.startswith("back"))
        live = [loading.id]
        order: list[str] = []
        while (task := await store.next_runnable(BOOT, live, [MODEL])) is not None:
            order.append(task.ident)
            live.append(task.id)
            if task.status is Status.QUEUED:
                await store.apply(claim(task))
        assert order == [own[0].ident, own[1].ident, "fore1", "fore2", "back1", "back2"]

    @scenario
    async def test_a_slot_leaves_the_tasks_of_another_process(self, place: Place) -> None:
        """Only what this boot answers for; a cancelling task is among it."""
        store = await place.open()
        client = await add_client(store)
        task = await running(store, "a", client)
        assert await store.next_runnable("boot-2", [], [MODEL]) is None
        await store.apply(Change(task.id, frozenset({Status.RUNNING}), task.next_seq, Status.CANCELLING, 1))
        mine = await store.next_runnable(BOOT, [], [MODEL])
        assert mine is not None
        assert mine == await found(store, "a")

    @scenario
    async def test_queued_tasks_of_other_models_wait(self, place: Place) -> None:
        """A start that serves another model neither takes them nor lets them block what stands behind them."""
        store = await place.open()
        client = await add_client(store)
        waiting = await submitted(store, "a", client)
        assert await store.next_runnable(BOOT, [], ["other"]) is None
        assert await store.next_runnable(BOOT, [], ["other", MODEL]) == waiting

    @scenario
    async def test_the_queue_position_counts_those_before(self, place: Place) -> None:
        """In the order in which slots take them; None once a task is not queued."""
        store = await place.open()
        client = await add_client(store)
        tasks = {
            name: await submitted(store, name, client, background=name[0] == "b") for name in ("b1", "f1", "b2", "f2")
        }
        positions = {name: await store.queue_position(task.id) for name, task in tasks.items()}
        assert positions == {"f1": 0, "f2": 1, "b1": 2, "b2": 3}
        await store.apply(claim(tasks["f1"]))
        assert await store.queue_position(tasks["f1"].id) is None
        assert await store.queue_position(tasks["b2"].id) == 2

    @pytest.mark.proves("P8")
    @scenario
    async def test_the_scan_meets_every_unfinished_task_once(self, place: Place) -> None:
        """In pages by id, each of the four states, none that has ended."""
        store = await place.open()
        client = await add_client(store)
        queued = await submitted(store, "queued", client)
        await finished(store, "done", client)
        loading = await moved(store, await submitted(store, "loading", client), claim)
        task = await running(store, "running", client)
        other = await running(store, "cancelling", client)
        await store.apply(Change(other.id, frozenset({Status.RUNNING}), other.next_seq, Status.CANCELLING, 1))
        first = await store.unfinished(0, 3)
        second = await store.unfinished(first[-1].id, 3)
        assert [*first, *second] == [queued, loading, task, await found(store, "cancelling")]
        assert first[0].request == b'{"model":"tiny"}'

    # Lists.

    @scenario
    async def test_a_list_is_the_clients_own_and_visible(self, place: Place) -> None:
        """Newest first or oldest first; hidden tasks and those of others are left out, and so is the request."""
        store = await place.open()
        client, other = await add_client(store), await add_client(store, "other", b"\x02" * 32)
        for n in range(3):
            await submitted(store, f"t{n}", client)
            await submitted(store, f"other{n}", other)
        await store.apply(end(await found(store, "t1"), hidden=True))
        newest = await store.tasks(client, status=None, limit=10, after=None, ascending=False)
        oldest = await store.tasks(client, status=None, limit=10, after=None, ascending=True)
        assert (idents(newest), idents(oldest)) == (["t2", "t0"], ["t0", "t2"])
        assert {task.request for task in newest} == {b""}

    @pytest.mark.parametrize("ascending", [False, True])
    @pytest.mark.parametrize("status", [None, Status.FAILED, Status.QUEUED])
    @scenario
    async def test_pages_show_each_task_once(self, place: Place, ascending: bool, status: Status | None) -> None:
        """Whatever the order and the filter; a task hidden between two pages does not lose the place."""
        store = await place.open()
        client = await add_client(store)
        for n in range(12):
            task = await submitted(store, f"t{n:02}", client)
            if n % 2:
                await store.apply(end(task, Status.FAILED))
        expected = [f"t{n:02}" for n in range(12) if status is None or (status is Status.FAILED) == bool(n % 2)]
        seen: list[str] = []
        after = None
        while page := await store.tasks(client, status=status, limit=4, after=after, ascending=ascending):
            seen += idents(page)
            after = page[-1].ident
            if page[-1].finished_at is not None:
                last = await found(store, after)
                hide = Change(last.id, frozenset({last.status}), last.next_seq, last.status, 1, hidden=True)
                await store.apply(hide)
        assert seen == (expected if ascending else expected[::-1])

    @scenario
    async def test_a_page_after_an_unknown_task_is_not_found(self, place: Place) -> None:
        """Another client's task is as unknown as none."""
        store = await place.open()
        client, other = await add_client(store), await add_client(store, "other", b"\x02" * 32)
        await submitted(store, "theirs", other)
        for after in ("nobody", "theirs"):
            with pytest.raises(NotFound) as caught:
                await store.tasks(client, status=None, limit=10, after=after, ascending=False)
            assert caught.value.param == "after"

    # Retention.

    @pytest.mark.proves("P6", "P7")
    @scenario
    async def test_only_finished_tasks_whose_time_has_come_may_go(self, place: Place) -> None:
        """The earliest first; an unfinished one is not among them, whatever its `purge_at`."""
        store = await place.open()
        client = await add_client(store)
        assert await store.next_purge_at() is None
        await finished(store, "late", client, purge_at=300)
        await finished(store, "soon", client, purge_at=100)
        await finished(store, "never", client)
        task = await running(store, "running", client)
        await store.apply(Change(task.id, frozenset({Status.RUNNING}), task.next_seq, Status.RUNNING, 1, purge_at=1))
        assert await store.next_purge_at() == 100
        assert idents(await store.purgeable(99, 10)) == []
        assert idents(await store.purgeable(100, 10)) == ["soon"]
        assert idents(await store.purgeable(1_000, 10)) == ["soon", "late"]
        assert idents(await store.purgeable(1_000, 1)) == ["soon"]

    @pytest.mark.proves("P6")
    @scenario
    async def test_a_purge_takes_everything_of_one_task(self, place: Place) -> None:
        """And nothing of another; a second purge finds nothing to do."""
        store = await place.open()
        client = await add_client(store)
        gone, other = await finished(store, "gone", client), await finished(store, "other", client)
        kept = await all_events(store, other)
        await store.purge(gone.id)
        await store.purge(gone.id)
        assert await store.task("gone") is None
        assert await store.events(gone.id, -1, 10) == []
        assert await store.snapshot(gone.id) is None
        assert await store.prompt(gone.id) == ()
        assert await store.attempts(gone.id) == []
        assert await found(store, "other") == other
        assert await all_events(store, other) == kept
        await submitted(store, "gone", client)

    @pytest.mark.proves("P7")
    @scenario
    async def test_a_purge_leaves_an_unfinished_task_as_it_is(self, place: Place) -> None:
        """Clean-up deletes neither it nor its events."""
        store = await place.open()
        client = await add_client(store)
        for task in (await submitted(store, "queued", client), await running(store, "running", client)):
            log = await all_events(store, task)
            await store.purge(task.id)
            assert await found(store, task.ident) == task
            assert await all_events(store, task) == log

    # Clients, models, the service itself.

    @scenario
    async def test_a_token_names_its_client(self, place: Place) -> None:
        """With the scopes it was given; an unknown token names nobody."""
        store = await place.open()
        scopes = frozenset({Scope.RESPONSES_READ, Scope.MODELS_READ})
        client = await store.add_client("reader", TOKEN, "prefix", scopes, 1)
        assert await store.principal(TOKEN, 10) == Principal(client, "reader", scopes)
        assert await store.principal(b"\x09" * 32, 10) is None

    @scenario
    async def test_a_new_token_ends_the_old_one(self, place: Place) -> None:
        """The client stays who he is."""
        store = await place.open()
        client = await add_client(store)
        await submitted(store, "a", client)
        again = await store.add_client("owner", b"\x02" * 32, "other", frozenset({Scope.SERVICE_READ}), 2)
        assert again == client
        assert await store.principal(TOKEN, 10) is None
        assert await store.principal(b"\x02" * 32, 10) == Principal(client, "owner", frozenset({Scope.SERVICE_READ}))

    @scenario
    async def test_two_clients_never_share_a_token(self, place: Place) -> None:
        """They could not be told apart."""
        store = await place.open()
        await add_client(store)
        with pytest.raises(AssertionError):
            await add_client(store, "other")

    @scenario
    async def test_the_service_keeps_its_name(self, place: Place) -> None:
        """Through boots and restarts."""
        store = await place.open()
        service_id = await store.boot("boot-1", 1)
        assert service_id
        assert await store.boot("boot-2", 2) == service_id
        store = await place.open()
        assert await store.boot("boot-3", 3) == service_id

    @scenario
    async def test_a_model_can_be_kept_again_and_changed(self, place: Place) -> None:
        """The same facts, new facts, another model."""
        store = await place.open()
        card = ModelCard("tiny", "0" * 64, 125_000, 4096, True, "{}", 1)
        await store.keep_model(card, "/models/tiny.gguf")
        await store.keep_model(card, "/models/tiny.gguf")
        await store.keep_model(ModelCard("tiny", "1" * 64, 1, 2, False, "{}", 2), "/elsewhere")
        await store.keep_model(ModelCard("other", "0" * 64, 125_000, 4096, True, "{}", 1), "/models/tiny.gguf")

    # Closing.

    @pytest.mark.proves("P3")
    @scenario
    async def test_everything_is_there_after_opening_again(self, place: Place) -> None:
        """A store that was closed and opened is the same store."""
        store = await place.open()
        client = await add_client(store)
        done, task = await finished(store, "done", client, purge_at=9), await running(store, "running", client)
        logs = await all_events(store, done), await all_events(store, task)
        history = await store.attempts(done.id)
        store = await place.open()
        assert (await found(store, "done"), await found(store, "running")) == (done, task)
        assert (await all_events(store, done), await all_events(store, task)) == logs
        assert await store.attempts(done.id) == history
        assert await store.principal(TOKEN, 10) == Principal(client, "owner", ALL_SCOPES)

    @scenario
    async def test_closing_finishes_what_was_handed_over(self, place: Place) -> None:
        """Nobody who was let in is turned away."""
        store = await place.open()
        client = await add_client(store)
        callers = [asyncio.create_task(store.submit(new_task(f"t{n:03}", client), QUEUE_MAX)) for n in range(100)]
        await asyncio.sleep(0)
        await store.close()
        assert await outcomes(callers) == [None] * 100
        store = await place.open()
        assert len(await store.unfinished(0, TOO_MANY)) == 100

    @scenario
    async def test_a_closed_store_says_so(self, place: Place) -> None:
        """Closing again does nothing; reading and writing are refused."""
        store = await place.open()
        client = await add_client(store)
        await asyncio.gather(store.close(), store.close())
        await store.close()
        for call in (store.submit(new_task("a", client), QUEUE_MAX), store.task("a"), store.boot("b", 1)):
            with pytest.raises(Unavailable):
                await call
