# ruff: noqa: S101 -- assert is what a test is made of
"""What may go, and what it leaves behind."""

import pytest

from perdure.domain.lifecycle import Status
from perdure.ports.storage import Change
from perdure.testing.contract.suite import Place, Suite, idents, scenario
from perdure.testing.store_steps import (
    add_client,
    all_events,
    end,
    finished,
    found,
    running,
    submitted,
)


class Retention(Suite):
    """What may go, and what it leaves behind."""

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
        await store.purge([gone.id])
        await store.purge([gone.id])
        assert await store.task("gone") is None
        assert (await store.events(gone.id, -1, 10)).events == ()
        assert await store.snapshot(gone.id) is None
        assert await store.prompt(gone.id) == ()
        assert await store.attempts(gone.id) == []
        assert await found(store, "other") == other
        assert await all_events(store, other) == kept
        await submitted(store, "gone", client)

    @pytest.mark.proves("P7")
    @scenario
    async def test_a_purge_leaves_an_unfinished_task_as_it_is(self, place: Place) -> None:
        """Clean-up deletes neither it nor its events, and leaves no name for it."""
        store = await place.open()
        client = await add_client(store)
        for task in (await submitted(store, "queued", client), await running(store, "running", client)):
            log = await all_events(store, task)
            await store.purge([task.id])
            await store.purge([task.id], 10_000)
            assert await found(store, task.ident) == task
            assert await all_events(store, task) == log
            assert await store.expired(task.ident) is None

    @pytest.mark.proves("P6", "P7")
    @scenario
    async def test_a_purge_of_many_takes_those_that_have_ended(self, place: Place) -> None:
        """Whatever stands beside them in the list: unfinished ones, unknown ones, one twice."""
        store = await place.open()
        client = await add_client(store)
        done = [await finished(store, f"done{n}", client) for n in range(3)]
        queued, open_ = await submitted(store, "queued", client), await running(store, "running", client)
        logs = [await all_events(store, task) for task in (queued, open_, done[2])]
        await store.purge([])
        await store.purge([done[0].id, queued.id, 999, open_.id, done[1].id, done[0].id])
        assert [await store.task(task.ident) for task in done[:2]] == [None, None]
        assert [await found(store, task.ident) for task in (queued, open_, done[2])] == [queued, open_, done[2]]
        assert [await all_events(store, task) for task in (queued, open_, done[2])] == logs

    @pytest.mark.proves("P6")
    @scenario
    async def test_the_oldest_that_only_their_age_removes_are_found(self, place: Place) -> None:
        """By the time of their end, the bound included; not those with a time of their own, nothing unfinished."""
        store = await place.open()
        client = await add_client(store)
        for name, at in (("third", 300), ("first", 100), ("second", 200)):
            await store.apply(end(await running(store, name, client), at=at))
        await finished(store, "own", client, purge_at=1)
        await running(store, "running", client)
        await submitted(store, "queued", client)
        assert idents(await store.outlived(99, 10)) == []
        assert idents(await store.outlived(200, 10)) == ["first", "second"]
        assert idents(await store.outlived(10**15, 10)) == ["first", "second", "third"]
        oldest = await store.outlived(10**15, 1)
        assert (idents(oldest), oldest[0].request, oldest[0].next_seq) == (["first"], b"", 4)
        await store.purge([oldest[0].id], 1_000)
        assert idents(await store.outlived(10**15, 2)) == ["second", "third"]

    @pytest.mark.proves("P6")
    @scenario
    async def test_a_task_that_is_given_a_time_of_its_own_goes_by_that(self, place: Place) -> None:
        """As one that is deleted after its end, or is kept after all."""
        store = await place.open()
        task = await finished(store, "a", await add_client(store))
        as_it_is = frozenset({task.status})
        await store.apply(Change(task.id, as_it_is, task.next_seq, task.status, 1, purge_at=50))
        assert (idents(await store.outlived(10**15, 9)), idents(await store.purgeable(50, 9))) == ([], ["a"])
        await store.apply(Change(task.id, as_it_is, task.next_seq, task.status, 1, purge_at=None))
        assert (idents(await store.outlived(10**15, 9)), idents(await store.purgeable(50, 9))) == (["a"], [])

    @pytest.mark.proves("P6")
    @scenario
    async def test_a_name_that_is_left_behind_names_its_client(self, place: Place) -> None:
        """Until it is forgotten. A purge without a time leaves none, and no other name has one."""
        store = await place.open()
        client, other = await add_client(store), await add_client(store, "other", b"\x02" * 32)
        mine, theirs = await finished(store, "mine", client), await finished(store, "theirs", other)
        silent = await finished(store, "silent", client)
        assert await store.expired("mine") is None
        await store.purge([mine.id, theirs.id], 500)
        await store.purge([silent.id])
        await store.purge([mine.id, silent.id], 900)
        assert [await store.expired(name) for name in ("mine", "theirs")] == [client, other]
        assert [await store.expired(name) for name in ("silent", "nobody", "")] == [None] * 3
        store = await place.open()
        assert await store.expired("mine") == client

    @pytest.mark.proves("P6")
    @scenario
    async def test_names_are_forgotten_when_their_time_is_over(self, place: Place) -> None:
        """The earliest first, at most `limit` at once, the time itself included; it says how many."""
        store = await place.open()
        client = await add_client(store)
        for name, until in (("a", 100), ("b", 300), ("c", 200), ("d", 900)):
            await store.purge([(await finished(store, name, client)).id], until)
        assert await store.forget(99, 10) == 0
        assert await store.forget(300, 2) == 2
        assert [await store.expired(name) for name in "abcd"] == [None, client, None, client]
        assert await store.forget(300, 10) == 1
        assert await store.forget(300, 10) == 0
        assert [await store.expired(name) for name in "abcd"] == [None, None, None, client]

    @pytest.mark.proves("P6")
    @scenario
    async def test_a_name_that_is_used_again_is_remembered_as_last_left(self, place: Place) -> None:
        """With its last client and its last time."""
        store = await place.open()
        client, other = await add_client(store), await add_client(store, "other", b"\x02" * 32)
        await store.purge([(await finished(store, "a", client)).id], 100)
        await store.purge([(await finished(store, "a", other)).id], 300)
        assert await store.forget(100, 10) == 0
        assert await store.expired("a") == other
