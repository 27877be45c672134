# ruff: noqa: S101 -- assert is what a test is made of
"""The events of a task."""

from perdure.domain.lifecycle import Status
from perdure.domain.limits import EVENTS_PAGE_MAX_BYTES
from perdure.ports.storage import Change, EventsPage
from perdure.testing.contract.suite import Place, Suite, scenario
from perdure.testing.store_steps import (
    add_client,
    all_events,
    delta,
    end,
    found,
    grow,
    moved,
    new_task,
    running,
)


class Journals(Suite):
    """The events of a task."""

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
        """`after` is exclusive, `limit` is kept, and a page knows whether it is the last."""
        store = await place.open()
        task = await running(store, "a", await add_client(store))
        task = await moved(store, task, *[grow] * 5)
        log = tuple(await all_events(store, task))
        assert await store.events(task.id, -1, 3) == EventsPage(log[:3], more=True)
        assert await store.events(task.id, 2, 3) == EventsPage(log[3:6], more=True)
        last = len(log) - 1
        assert await store.events(task.id, last - 3, 3) == EventsPage(log[-3:], more=False)
        assert await store.events(task.id, last - 3, 4) == EventsPage(log[-3:], more=False)
        assert await store.events(task.id, last, 3) == EventsPage((), more=False)

    @scenario
    async def test_a_page_of_large_events_is_bounded_by_bytes(self, place: Place) -> None:
        """Whatever its limit, it has one event or what fits; and the pages are the whole log."""
        store = await place.open()
        task = await running(store, "a", await add_client(store))
        third = EVENTS_PAGE_MAX_BYTES // 3
        for size in (third, third, third, 2 * EVENTS_PAGE_MAX_BYTES, 10, third):
            task = await moved(store, task, lambda task, size=size: grow(task, "z" * size))
        whole, pages = await all_events(store, task), list[EventsPage]()
        while not pages or pages[-1].more:
            after = pages[-1].events[-1].seq if pages else -1
            pages.append(await store.events(task.id, after, 1_000))
        assert [event for page in pages for event in page.events] == list(whole)
        sizes = [(len(page.events), sum(len(event.json) for event in page.events)) for page in pages]
        assert all(count == 1 or size <= EVENTS_PAGE_MAX_BYTES for count, size in sizes)
        assert [len(page.events) for page in pages[-2:]] == [1, 2]
        assert len(pages) == 4

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
        claimed = (await store.events(task.id, 1, 1)).events[0].snapshot
        task = await moved(store, task, lambda task: grow(task, "z" * 5_000))
        assert await store.snapshot(task.id) == claimed
        task = await moved(store, task, end)
        assert await store.snapshot(task.id) == (await all_events(store, task))[-1].snapshot
