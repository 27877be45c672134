# ruff: noqa: S101 -- assert is what a test is made of
"""What moves a task."""

from typing import Any

import pytest

from perdure.domain import events as ev
from perdure.domain.lifecycle import TERMINAL, Status
from perdure.ports.storage import Attempt, Change, StaleTask
from perdure.testing.contract.suite import Place, Suite, outcomes, scenario
from perdure.testing.store_steps import (
    BOOT,
    END_TYPES,
    add_client,
    all_events,
    delta,
    end,
    found,
    grow,
    lifecycle,
    moved,
    running,
)


class Steps(Suite):
    """What moves a task."""

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
