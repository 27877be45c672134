"""Those who read a stream, as the field has seen them go: silent for long, gone, slow (B-01, B-05, B-13, B-15, B-21).

The application over the engine and a real store, message by message; the clock is the test's.
"""

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.unit.engine.stage import Stage, scenario

from perdure.domain.events import Event
from perdure.domain.lifecycle import Status
from perdure.domain.limits import FEED_PAGE_EVENTS, KEEPALIVE_SECONDS
from perdure.domain.parts import CallArguments, CallBegin, CallEnd, Part, Text
from perdure.ports.storage import EventsPage
from perdure.testing.scripted_runtime import MODEL, Script

from .harness import Wire, client, until
from .test_conditional_kept import app_of, serving
from .test_sse import frames

ASK = "ask"
DAY = 86_400
KEEPALIVE = b": keep-alive\n\n"
RESPONSES, CHAT = "/v1/responses", "/v1/chat/completions"
ASKS: dict[str, dict[str, Any]] = {
    RESPONSES: {"model": MODEL, "input": ASK},
    CHAT: {"model": MODEL, "messages": [{"role": "user", "content": ASK}]},
}


class Visit:
    """A request that is under way."""

    def __init__(self, stage: Stage, method: str, path: str, body: bytes = b"", query: str = "") -> None:
        self.wire = Wire(app_of(stage), method, path, body, query.encode())
        self.running = asyncio.create_task(self.wire.run(), name="visit")
        self.got: list[bytes] = []

    async def reads_until(self, mark: bytes) -> bytes:
        """Take messages up to the one with the mark in it, which is returned."""
        async with asyncio.timeout(100):
            while mark not in (body := (await self.wire.take()).get("body", b"")):
                self.got.append(body)
        self.got.append(body)
        return body

    async def leaves(self) -> None:
        """Close the connection, and see that nobody serves it any more."""
        self.wire.leave()
        await asyncio.wait_for(self.running, 100)

    async def ends(self) -> None:
        """Read to the end."""
        await self.running
        self.got += [message.get("body", b"") for message in self.wire.rest()]


def create(stage: Stage, path: str = RESPONSES, **fields: Any) -> Visit:
    """A create that is under way."""
    return Visit(stage, "POST", path, json.dumps({**ASKS[path], **fields}).encode())


def view(stage: Stage, ident: str, after: int | None = None) -> Visit:
    """A stream that is read."""
    cursor = "" if after is None else f"&starting_after={after}"
    return Visit(stage, "GET", f"/v1/responses/resp_{ident}", query=f"stream=true{cursor}")


def sent(log: Sequence[Event]) -> list[bytes]:
    """The bytes that events are sent as."""
    return [b"event: %s\ndata: %s\n\n" % (event.type.encode(), event.json) for event in log]


@pytest.mark.proves("B-01")
@scenario
async def test_both_forms_of_a_replay_work_until_the_retention_is_over(tmp_path: Path) -> None:
    """Without a cursor everything from 0, with one exactly what comes after it; also a second before the end."""
    async with serving(tmp_path, retention_seconds=30 * DAY) as stage, client(app_of(stage)) as http:
        ident = await stage.submit(ASK)
        await stage.ended(ident)
        path = f"/v1/responses/resp_{ident}?stream=true"
        whole = frames((await http.get(path)).text)
        stage.clock.advance(30 * DAY - 1)
        for after in range(-1, len(whole) - 1):
            cursor = "" if after < 0 else f"&starting_after={after}"
            assert frames((await http.get(path + cursor)).text) == whole[after + 1 :]


@pytest.mark.proves("B-05")
@scenario
async def test_the_rows_decide_whether_there_is_something_to_follow(tmp_path: Path) -> None:
    """The first viewer breaks off, nobody looks for an hour; the work goes on, the next one sees all of it."""
    async with serving(tmp_path) as stage, client(app_of(stage)) as http:
        gate = stage.runtime.play(ASK, Script(gates={3: asyncio.Event()})).gates[3]
        ident = await stage.submit(ASK)
        first = view(stage, ident)
        await first.reads_until(b"output_text.delta")
        await first.leaves()
        stage.clock.advance(3600)
        await asyncio.sleep(3)  # the loop's time: longer than anybody is waited for
        read = (await http.get(f"/v1/responses/resp_{ident}")).json()
        assert (read["status"], len(stage.runtime.jobs)) == ("in_progress", 1)
        second = view(stage, ident)
        await second.reads_until(first.got[-1])
        gate.set()
        await second.ends()
        log = await stage.log(ident)
        assert b"".join(second.got) == b"".join([*sent(log), b"data: [DONE]\n\n"])
        assert log[-1].type == "response.completed"


@pytest.mark.proves("B-13")
@pytest.mark.parametrize(("path", "background"), [(RESPONSES, False), (RESPONSES, True), (CHAT, False)])
@scenario
async def test_no_silence_is_longer_than_fifteen_seconds(tmp_path: Path, path: str, background: bool) -> None:
    """Two minutes before the first token and a pause in the middle. The beginning comes at once; the comments that
    break the silence take no number and are not kept."""
    fields: dict[str, Any] = {"background": True} if background else {}
    async with serving(tmp_path) as stage:
        gates = {position: asyncio.Event() for position in (0, 3)}
        stage.runtime.play(ASK, Script(gates=gates))
        visit = create(stage, path, stream=True, **fields)
        assert (await visit.wire.take())["type"] == "http.response.start"
        await visit.reads_until(b"response.in_progress" if path == RESPONSES else b'"role":"assistant"')
        before = len(visit.got)
        await stage.store.reaches("r0001", Status.RUNNING)
        for _ in range(int(120 // KEEPALIVE_SECONDS)):
            await says_nothing_yet(stage, visit)
        gates[0].set()
        await stage.store.until("r0001", lambda task: task.tokens_kept == 3)
        await asyncio.sleep(3)  # the loop's time: what was drawn has been sent
        visit.got += [message["body"] for message in visit.wire.rest()]
        await says_nothing_yet(stage, visit)
        gates[3].set()
        await visit.ends()
        assert visit.got[before : before + 8] == [KEEPALIVE] * 8
        assert visit.got.count(KEEPALIVE) == 9
        if path == RESPONSES:
            log = await stage.log("r0001")
            assert [body for body in visit.got if body and body != KEEPALIVE] == [*sent(log), b"data: [DONE]\n\n"]


async def says_nothing_yet(stage: Stage, visit: Visit) -> None:
    """So long nothing is drawn, and the reader hears one comment."""
    stage.clock.advance(KEEPALIVE_SECONDS)
    async with asyncio.timeout(100):
        visit.got.append((await visit.wire.take())["body"])
    assert visit.got[-1] == KEEPALIVE


MOMENTS: dict[str, tuple[int, Status]] = {
    "in the queue": (0, Status.QUEUED),
    "while the prompt is read": (0, Status.RUNNING),
    "after three tokens": (3, Status.RUNNING),
}


async def held(
    stage: Stage, gate: asyncio.Event, moment: str, path: str = RESPONSES, **fields: Any
) -> tuple[str, Visit]:
    """A request whose caller waits, held by the gate at the moment; where it waits in the queue, another one has the
    slot, and does not give way: it would not be the same afterwards."""
    tokens, status = MOMENTS[moment]
    stage.runtime.play(ASK, Script(gates={tokens: gate}))
    name = "r0001"
    if status is Status.QUEUED:
        stage.runtime.play("ahead", Script(gates={0: gate}))
        exact = stage.runtime.cards[MODEL]
        stage.runtime.cards[MODEL] = msgspec.structs.replace(exact, exact=False)
        await stage.store.reaches(await stage.submit("ahead"), Status.RUNNING)
        stage.runtime.cards[MODEL] = exact
        name = "r0002"
    visit = create(stage, path, **fields)
    await stage.store.until(name, lambda task: (task.status, task.tokens_kept) == (status, tokens))
    await asyncio.sleep(3)  # the loop's time: longer than anybody is waited for who is not there
    await stage.store.until(name, lambda task: (task.status, task.tokens_kept) == (status, tokens))
    return name, visit


@pytest.mark.proves("B-15")
@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("path", [RESPONSES, CHAT])
@pytest.mark.parametrize("stream", [True, False])
@scenario
async def test_foreground_work_stops_when_its_caller_hangs_up(
    tmp_path: Path, moment: str, path: str, stream: bool
) -> None:
    """Wherever it is: cancelled with what it had, its history says why, and the slot is free for the next one."""
    async with serving(tmp_path) as stage, client(app_of(stage)) as http:
        gate = asyncio.Event()
        name, visit = await held(stage, gate, moment, path, stream=stream)
        await visit.leaves()
        async with asyncio.timeout(20):
            ended = await stage.ended(name)
        assert (ended.status, ended.tokens_kept) == (Status.CANCELLED, MOMENTS[moment][0])
        history = (await http.get(f"/v1/tasks/task_{name}")).json()["history"]
        assert "its caller has left" in [step["note"] for step in history]
        drawn = stage.runtime.drawn
        if moment == "in the queue":
            gate.set()
        await stage.ended(await stage.submit("next", max_output_tokens=1))
        assert stage.runtime.drawn - drawn == (7 if moment == "in the queue" else 1)


@pytest.mark.proves("B-15")
@pytest.mark.parametrize("moment", MOMENTS)
@scenario
async def test_background_work_does_not_care_who_hangs_up(tmp_path: Path, moment: str) -> None:
    """Its creator leaves at the same moments; it runs to its end."""
    async with serving(tmp_path) as stage:
        gate = asyncio.Event()
        name, visit = await held(stage, gate, moment, stream=True, background=True)
        await visit.leaves()
        await asyncio.sleep(3)  # as above
        gate.set()
        assert (await stage.ended(name)).status is Status.COMPLETED


@pytest.mark.proves("B-26")
@pytest.mark.parametrize("background", [False, True])
@scenario
async def test_who_leaves_at_the_end_takes_nothing_away(
    tmp_path: Path, background: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """While one of the last messages is on its way to him, the terminal event among them: completed, counted, and no
    line in the log."""
    async with serving(tmp_path) as stage:
        for missed in range(1, 6):
            visit = create(stage, stream=True, background=background)
            visit.wire.room = asyncio.Semaphore(0)
            ended = await stage.ended(f"r{missed:04}")
            taken = ended.next_seq + 2 - missed  # the headers come first and [DONE] last
            for _ in range(taken):
                visit.wire.room.release()
            await asyncio.sleep(1)  # the loop's time: he is where he is
            assert (visit.wire.sent.qsize(), visit.running.done()) == (taken, False)
            await visit.leaves()
            response = await stage.response(ended.ident)
            assert (response["status"], response["usage"]["output_tokens"]) == ("completed", 6)
        assert (caplog.text, stage.reports) == ("", [])


GROUP: tuple[Part, ...] = (Text("x"), CallBegin("f"), CallArguments("{}"), CallEnd())
EVENTS_A_GROUP, GROUPS_A_TOKEN, TOKENS = 10, 40, 500
BOUND_SECONDS = 120
MESSAGES_TAKEN = 2


@pytest.mark.proves("B-21", "B-29")
def test_who_reads_nothing_holds_a_page_and_nobody_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While 200,000 events are written and another reader gets them all, one page is read for him, and no more;
    later he goes on by his cursor. One who comes after the end gets them from the first on."""

    async def run() -> None:
        async with asyncio.timeout(BOUND_SECONDS), serving(tmp_path) as stage:
            shows = dict.fromkeys(range(TOKENS), GROUP * GROUPS_A_TOKEN)
            script = stage.runtime.play(ASK, Script(TOKENS + 1, shows=shows, gates={0: asyncio.Event()}))
            read_for_him = noted(stage, monkeypatch)
            ident = await stage.submit(ASK)
            slow = view(stage, ident)
            slow.wire.room = asyncio.Semaphore(MESSAGES_TAKEN)
            await until(lambda: slow.wire.sent.qsize() == MESSAGES_TAKEN)
            reader = asyncio.create_task(count(stage, ident))
            script.gates[0].set()
            assert await reader > TOKENS * GROUPS_A_TOKEN * EVENTS_A_GROUP == 200_000
            assert (slow.wire.sent.qsize(), slow.running.done()) == (MESSAGES_TAKEN, False)
            assert 0 < len(read_for_him) <= FEED_PAGE_EVENTS
            await slow.leaves()
            await resumes(stage, ident)
            assert await count(stage, ident, 20_000) == 20_000

    asyncio.run(run())


def noted(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> list[Event]:
    """The events that are read from the store for visits, as they are read."""
    found: list[Event] = []
    events = stage.store.events

    async def noting(task_id: int, after: int, limit: int) -> EventsPage:
        page = await events(task_id, after, limit)
        task = asyncio.current_task()
        if task is not None and task.get_name() == "visit":
            found.extend(page.events)
        return page

    monkeypatch.setattr(stage.store, "events", noting)
    return found


async def resumes(stage: Stage, ident: str) -> None:
    """By a cursor, exactly what comes after it."""
    task = await stage.store.task(ident)
    assert task is not None
    again = view(stage, ident, after=0)
    again.wire.room = asyncio.Semaphore(3)
    got = [(await again.wire.take()).get("body") for _ in range(3)]
    assert got[1:] == sent((await stage.store.events(task.id, 0, 2)).events)
    await again.leaves()


async def count(stage: Stage, ident: str, most: int | None = None) -> int:
    """How many events a reader gets, from number 0 without a gap; he leaves after so many."""
    total = 0
    async with stage.engine.follow(stage.principal, ident, -1) as events:
        async for event in events:
            if event is not None:
                assert event.seq == total
                total += 1
            if total == most:
                break
    return total
