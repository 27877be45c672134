"""What a viewer sees: the rows, live and later alike, from any cursor."""

import asyncio
from pathlib import Path

import pytest
from tests.unit.engine.stage import Stage, scenario, started, turns, types

from perdure.domain.errors import NotFound
from perdure.domain.events import Event
from perdure.domain.lifecycle import Status
from perdure.domain.limits import EVENTS_PAGE_MAX_BYTES
from perdure.domain.principal import Principal
from perdure.engine.feed import Feed
from perdure.engine.wakeups import Wakeups
from perdure.ports.storage import EventsPage
from perdure.testing.scripted_runtime import Script

STRANGER = Principal(99, "stranger", frozenset())


class DeafWakeups(Wakeups):
    """Drops every hint."""

    def notify(self, ident: str, *, ended: bool = False) -> None:
        """Say nothing."""


@scenario
async def test_a_live_viewer_and_a_later_one_see_the_same_bytes(tmp_path: Path) -> None:
    """Event for event, whenever they came."""
    async with started(tmp_path) as stage:
        gate = asyncio.Event()
        stage.runtime.play("long", Script(length=300, gates={5: gate}))
        ident = await stage.submit("long")
        live = [asyncio.create_task(stage.follow(ident)) for _ in range(3)]
        await stage.store.until(ident, lambda task: task.tokens_kept == 5)
        gate.set()
        seen = await asyncio.gather(*live)
        assert seen == [await stage.log(ident)] * 3
        assert await stage.follow(ident) == seen[0]


@scenario
async def test_a_long_log_is_replayed_whole_from_any_cursor(tmp_path: Path) -> None:
    """Pages join without a gap or a repeat, at each of their borders too."""
    async with started(tmp_path) as stage:
        gates = {position: asyncio.Event() for position in range(520)}
        stage.runtime.play("long", Script(length=520, gates=gates))
        ident = await stage.submit("long")
        for position, gate in gates.items():
            await stage.store.until(ident, lambda task, due=position: task.tokens_kept >= due)
            gate.set()
        await stage.ended(ident)
        log = await stage.log(ident)
        assert len(log) > 512
        for after in (-1, 0, 254, 255, 256, 511, 512, len(log) - 2):
            assert await stage.follow(ident, after) == log[after + 1 :]


@scenario
async def test_a_viewer_holds_no_more_of_a_large_log_than_a_page(tmp_path: Path) -> None:
    """Each of its four lifecycle events repeats the whole request: they are not read together."""
    async with started(tmp_path, window=EVENTS_PAGE_MAX_BYTES) as stage:
        ident = await stage.submit(instructions="x" * (EVENTS_PAGE_MAX_BYTES * 2 // 3))
        await stage.ended(ident)
        log = await stage.log(ident)
        pages = list[EventsPage]()
        ask = stage.store.events

        async def noted(task_id: int, after: int, limit: int) -> EventsPage:
            pages.append(await ask(task_id, after, limit))
            return pages[-1]

        stage.store.events = noted
        async with stage.engine.follow(stage.principal, ident, -1) as events:
            seen = [await anext(events)]
            assert len(pages) == 1
            seen += [event async for event in events]
        assert seen == log
        assert max(sum(len(event.json) for event in page.events) for page in pages) <= EVENTS_PAGE_MAX_BYTES
        assert len(pages) == 4


@pytest.mark.parametrize("beyond", [0, 1, 10_000])
@scenario
async def test_a_cursor_at_or_beyond_the_end_ends_with_the_response(tmp_path: Path, beyond: int) -> None:
    """Of a finished response at once; of a running one, with its end; never later and never by a busy loop."""
    async with started(tmp_path) as stage:
        gate = asyncio.Event()
        stage.runtime.play("hold", Script(gates={2: gate}))
        done, held = await stage.submit("done"), await stage.submit("hold")
        await stage.ended(done)
        after = len(await stage.log(done)) - 1 + beyond
        assert await stage.follow(done, after) == []
        await stage.store.until(held, lambda task: task.tokens_kept == 2)
        viewer = asyncio.create_task(stage.follow(held, 10_000))
        await turns(50)
        assert not viewer.done()
        gate.set()
        assert await viewer == []


@scenario
async def test_silence_is_broken_every_fifteen_seconds(tmp_path: Path) -> None:
    """None says that the service is alive; an event makes the count begin anew."""
    async with started(tmp_path) as stage:
        gate = asyncio.Event()
        stage.runtime.play("hold", Script(length=9, gates={0: gate}))
        ident = await stage.submit("hold")
        task = await stage.store.reaches(ident, Status.RUNNING)
        seen: list[Event | None] = []
        async with stage.engine.follow(stage.principal, ident, task.next_seq - 1) as events:
            for _ in range(2):
                nudge = asyncio.create_task(after_long_silence(stage, seen))
                seen.append(await anext(events))
                await nudge
            gate.set()
            seen += [event async for event in events]
        assert seen[:2] == [None, None]
        assert None not in seen[2:]
        assert types([event for event in seen if event is not None])[-1] == "completed"


@scenario
async def test_an_event_makes_the_silence_begin_anew(tmp_path: Path) -> None:
    """Only silence is broken: what was just said need not be followed by a sign of life."""
    async with started(tmp_path) as stage:
        gates = {position: asyncio.Event() for position in (1, 2)}
        stage.runtime.play("hold", Script(gates=gates))
        ident = await stage.submit("hold")
        task = await stage.store.until(ident, lambda task: task.tokens_kept == 1)
        async with stage.engine.follow(stage.principal, ident, task.next_seq - 1) as events:
            for gate, seconds in ((gates[1], 14.9), (gates[2], 0.2)):
                coming = asyncio.create_task(anext(events, None))
                await turns(20)
                stage.clock.advance(seconds)
                await asyncio.sleep(3)  # the loop's time: the feed has looked several times
                assert not coming.done()
                gate.set()
                assert await coming is not None


async def after_long_silence(stage: Stage, seen: list[Event | None]) -> None:
    """Move the clock once the viewer waits, to just before the time and beyond it."""
    before = len(seen)
    await turns(20)
    stage.clock.advance(14.9)
    await asyncio.sleep(3)  # the loop's time: the feed has looked several times
    assert len(seen) == before
    stage.clock.advance(0.2)


@scenario
async def test_the_service_lets_a_viewer_of_background_work_go_when_it_drains(tmp_path: Path) -> None:
    """Without a terminal event: he comes back with his cursor. What is there already he still gets."""
    async with started(tmp_path) as stage:
        stage.runtime.play("hold", Script(gates={2: asyncio.Event()}))
        ident = await stage.submit("hold")
        await stage.store.until(ident, lambda task: task.tokens_kept == 2)
        viewer = asyncio.create_task(stage.follow(ident))
        await turns(20)
        stage.engine.drain()
        task = await stage.store.task(ident)
        assert task is not None
        assert await viewer == list((await stage.store.events(task.id, -1, 100)).events)


@scenario
async def test_who_waits_for_foreground_work_may_wait_through_the_drain(tmp_path: Path) -> None:
    """The work goes on for him until the time to stop has run out."""
    async with started(tmp_path) as stage:
        gates = {position: asyncio.Event() for position in (1, 2)}
        stage.runtime.play("hold", Script(gates=gates))
        stage.runtime.play("never", Script(gates={1: asyncio.Event()}))
        ident = await stage.submit("hold", background=False)
        viewer = asyncio.create_task(stage.follow(ident))
        await stage.store.until(ident, lambda task: task.tokens_kept == 1)
        waiting = await stage.submit("never", background=False)
        waiter = asyncio.create_task(stage.follow(waiting))
        await turns(20)
        stage.engine.drain()
        for gate in gates.values():
            gate.set()
        assert types(await viewer)[-1] == "completed"
        await turns(20)
        assert not waiter.done()
        await stage.stop(seconds=0)
        assert types(await waiter) == ["created"]


@scenario
async def test_lost_wake_ups_cost_no_event(tmp_path: Path) -> None:
    """A feed that hears no hint at all still sees everything, a little later, and its stop too."""
    async with started(tmp_path) as stage:
        gate = asyncio.Event()
        stage.runtime.play("hold", Script(gates={2: gate}))
        ident = await stage.submit("hold")
        task = await stage.store.reaches(ident, Status.RUNNING)
        feed, stop = Feed(stage.store, DeafWakeups(), stage.clock), asyncio.Event()
        ends = asyncio.create_task(_all(feed, task.ident, stage, asyncio.Event()))
        lets_go = asyncio.create_task(_all(feed, task.ident, stage, stop))
        await stage.store.until(ident, lambda task: task.tokens_kept == 2)
        await turns(20)
        stop.set()
        assert types(await lets_go)[-1] == "output_text.delta"
        gate.set()
        assert await ends == await stage.log(ident)


@scenario
async def test_the_end_is_seen_also_when_it_comes_between_two_looks(tmp_path: Path) -> None:
    """A viewer who has found no news and asks whether there can be any is told of what has come in between."""
    async with started(tmp_path) as stage:
        gate = asyncio.Event()
        stage.runtime.play("hold", Script(gates={2: gate}))
        ident = await stage.submit("hold")
        held = await stage.store.until(ident, lambda task: task.tokens_kept == 2)

        async def comes_to_its_end() -> None:
            stage.store.before_ended = None
            gate.set()
            await stage.ended(ident)

        stage.store.before_ended = comes_to_its_end
        seen = await stage.follow(ident, held.next_seq - 1)
        assert seen == (await stage.log(ident))[held.next_seq :]
        assert types(seen)[-1] == "completed"


async def _all(feed: Feed, ident: str, stage: Stage, stop: asyncio.Event) -> list[Event]:
    task = await stage.store.task(ident)
    assert task is not None
    return [event async for event in feed.follow(task, -1, stop) if event is not None]


@scenario
async def test_a_stranger_sees_nothing(tmp_path: Path) -> None:
    """A response of another client is not found, like one that never was."""
    async with started(tmp_path) as stage:
        ident = await stage.submit()
        for principal, name in ((STRANGER, ident), (stage.principal, "unknown")):
            with pytest.raises(NotFound):
                async with stage.engine.follow(principal, name, -1):
                    pass


@scenario
async def test_a_viewer_who_leaves_in_mid_stream_is_let_go_at_once(tmp_path: Path) -> None:
    """Not when memory happens to be cleaned up: his place among the listeners is free when he is out."""
    async with started(tmp_path) as stage:
        ident = await stage.submit()
        await stage.ended(ident)
        async with stage.engine.follow(stage.principal, ident, -1) as events:
            assert await anext(events) is not None
        assert [event async for event in events] == []
