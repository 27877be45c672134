# ruff: noqa: S101 -- assert is what a test is made of
"""What a submit keeps, and what it refuses."""

import asyncio

import pytest

from perdure.domain.errors import QueueFull
from perdure.domain.lifecycle import Status
from perdure.domain.recovery import OnRestart
from perdure.ports.storage import TaskRecord
from perdure.testing.contract.suite import Place, Suite, idents, outcomes, scenario
from perdure.testing.store_steps import (
    QUEUE_MAX,
    TOO_MANY,
    add_client,
    all_events,
    claim,
    end,
    finished,
    found,
    grow,
    moved,
    new_task,
    start,
    submitted,
)


class Submits(Suite):
    """What a submit keeps, and what it refuses."""

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
        assert (await store.events(77, -1, 10)).events == ()
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
        await store.purge([task.id])
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
        await store.purge([last.id])
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
