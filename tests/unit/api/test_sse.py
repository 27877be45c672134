"""Event streams: framing, ends, keep-alives, slow readers and readers who leave."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from perdure.api import sse
from perdure.domain.events import Event

from .harness import (
    FIRST,
    HELLO,
    Wire,
    application,
    call,
    client,
    create,
    error_of,
    left_by_its_caller,
    serving,
    until,
)
from .scripted import MODEL, OWNER_TOKEN, TEXTS, Kept, ScriptedService

BODY = b'{"model":"%s","input":"x","stream":true}' % MODEL.encode()
DONE = "data: [DONE]"


def frames(text: str) -> list[str]:
    """The frames of a stream, each without its blank line."""
    assert text.endswith("\n\n")
    return text.removesuffix("\n\n").split("\n\n")


def events(text: str) -> list[dict[str, Any]]:
    """The events of a complete stream."""
    *found, last = frames(text)
    assert last == DONE
    parsed: list[dict[str, Any]] = []
    for frame in found:
        name, data = frame.split("\n")
        event = json.loads(data.removeprefix("data: "))
        assert name == f"event: {event['type']}"
        parsed.append(event)
    return parsed


@pytest.mark.parametrize("background", [False, True])
def test_a_streamed_create_sends_every_event_in_order(background: bool) -> None:
    """Numbers start at 0 without a gap, the terminal event is the last, then comes [DONE]."""
    answer = create(application(), stream=True, background=background)
    assert answer.status_code == 200
    found = events(answer.text)
    assert [event["sequence_number"] for event in found] == list(range(len(found)))
    assert found[0]["type"] == "response.created"
    assert found[-1]["type"] == "response.completed"
    assert "".join(e["delta"] for e in found if e["type"] == "response.output_text.delta") == "".join(TEXTS)


def test_the_headers_keep_proxies_from_buffering() -> None:
    """The type with its charset, no transformation, no buffering, no length, and the place of the response."""
    headers = create(application(), stream=True).headers
    assert headers["content-type"] == "text/event-stream; charset=utf-8"
    assert headers["cache-control"] == "no-cache, no-transform"
    assert headers["x-accel-buffering"] == "no"
    assert headers["location"] == f"/v1/responses/resp_{FIRST}"
    assert headers["x-request-id"].startswith("req_")
    assert "content-length" not in headers


def test_stored_bytes_are_sent_unchanged_one_event_a_message() -> None:
    """Each message of the application holds exactly one whole event."""
    service = ScriptedService()

    async def run() -> list[dict[str, Any]]:
        wire = Wire(application(service), "POST", "/v1/responses", BODY)
        await wire.run()
        return wire.rest()

    start, *bodies = asyncio.run(run())
    assert start["type"] == "http.response.start"
    expected = [b"event: %s\ndata: %s\n\n" % (e.type.encode(), e.json) for e in service.kept[FIRST].events]
    assert [message["body"] for message in bodies] == [*expected, b"data: [DONE]\n\n"]
    assert [message["more_body"] for message in bodies] == [*[True] * len(expected), False]


@pytest.mark.parametrize("spare", [1, 0, -1, -500])
def test_a_large_event_is_several_messages(monkeypatch: pytest.MonkeyPatch, spare: int) -> None:
    """The same bytes, but for the name of the event none larger than a write may be: the socket of a reader who
    stalls holds one of them, not the event."""
    first = create(application(), stream=True).text.partition("\n\n")[0]
    response = len(first.partition('"response":')[2]) - len("}")
    monkeypatch.setattr(sse, "WRITE_MAX_BYTES", response + spare)
    service = ScriptedService()

    async def run() -> list[bytes]:
        wire = Wire(application(service), "POST", "/v1/responses", BODY)
        await wire.run()
        return [message["body"] for message in wire.rest()[1:]]

    bodies = asyncio.run(run())
    frames = [b"event: %s\ndata: %s\n\n" % (e.type.encode(), e.json) for e in service.kept[FIRST].events]
    assert b"".join(bodies) == b"".join(frames) + b"data: [DONE]\n\n"
    assert len(service.kept[FIRST].events[0].snapshot or b"") == response
    assert (bodies[0] == frames[0]) is (spare >= 0)
    assert spare >= 0 or max(map(len, bodies[:4])) <= response + spare


def test_headers_and_first_event_leave_before_the_model_has_spoken() -> None:
    """A reader of a held response has the first events at once, and the rest when it goes on."""
    service = ScriptedService()
    service.hold = True

    async def run() -> None:
        wire = Wire(application(service), "POST", "/v1/responses", BODY)
        running = asyncio.create_task(wire.run())
        async with asyncio.timeout(30):
            assert (await wire.take())["type"] == "http.response.start"
            assert (await wire.take())["body"].startswith(b"event: response.created\n")
            service.finish(FIRST)
            await running
        assert wire.rest()[-1]["body"] == b"data: [DONE]\n\n"

    asyncio.run(run())


@pytest.mark.parametrize("after", [0, 3, 7])
def test_a_cursor_continues_after_its_event(after: int) -> None:
    """Replay from N+1 gives the same bytes as the tail of the first stream."""
    app = application()
    whole = frames(create(app, stream=True).text)
    answer = call(app, "GET", f"/v1/responses/resp_{FIRST}?stream=true&starting_after={after}")
    assert frames(answer.text) == whole[after + 1 :]


def test_a_replay_without_cursor_is_the_whole_stream() -> None:
    """Also of a response that was created without one."""
    app = application()
    create(app)
    answer = call(app, "GET", f"/v1/responses/resp_{FIRST}?stream=true")
    assert events(answer.text)[0]["sequence_number"] == 0


@pytest.mark.parametrize("beyond", [0, 1, 1000])
def test_a_cursor_at_the_end_of_a_finished_response_ends_cleanly(beyond: int) -> None:
    """There is nothing left to send but [DONE]."""
    service = ScriptedService()
    app = application(service)
    create(app)
    after = len(service.kept[FIRST].events) - 1 + beyond
    answer = call(app, "GET", f"/v1/responses/resp_{FIRST}?stream=true&starting_after={after}")
    assert (answer.status_code, frames(answer.text)) == (200, [DONE])


def test_silence_is_filled_with_comments() -> None:
    """Comments carry no number and do not end the stream."""
    service = ScriptedService()
    service.hold = True
    service.keepalive_seconds = 0.001

    async def run() -> None:
        wire = Wire(application(service), "POST", "/v1/responses", BODY)
        running = asyncio.create_task(wire.run())
        async with asyncio.timeout(30):
            while (await wire.take()).get("body") != b": keep-alive\n\n":
                pass
            service.finish(FIRST)
            await running
        assert wire.rest()[-1]["body"] == b"data: [DONE]\n\n"

    asyncio.run(run())


@pytest.mark.parametrize("cursor", [b"stream=true", b"stream=true&starting_after=500"])
def test_a_drain_ends_a_stream_without_done(cursor: bytes) -> None:
    """The reader can tell that there is more to come, and no end is invented; also where he had read all so far."""
    service = ScriptedService()
    service.hold = True
    app = application(service)
    create(app, background=True)

    async def run() -> list[dict[str, Any]]:
        wire = Wire(app, "GET", f"/v1/responses/resp_{FIRST}", query=cursor)
        running = asyncio.create_task(wire.run())
        await until(lambda: service.kept[FIRST].attendants == 1)
        service.drain()
        await asyncio.wait_for(running, 30)
        return wire.rest()

    sent = asyncio.run(run())
    assert sent[-1] == {"type": "http.response.body", "body": b"", "more_body": False}
    assert not any(b"[DONE]" in message.get("body", b"") for message in sent)


@pytest.mark.parametrize("body", [BODY, BODY.replace(b"true", b"false")])
def test_an_answer_that_is_finished_leaves_nothing_running(body: bytes) -> None:
    """Whoever watched for the client's end is gone when the answer is."""

    async def run() -> None:
        wire = Wire(application(), "POST", "/v1/responses", body)
        await wire.run()
        assert wire.rest()
        await until(lambda: len(asyncio.all_tasks()) == 1)

    asyncio.run(run())


def test_a_reader_who_leaves_while_nothing_happens_is_let_go() -> None:
    """The end is noticed without a write, and the attendance ends."""
    kept = left_by_its_caller("/v1/responses", BODY)
    assert (kept.attendants, kept.left) == (0, 1)


def test_a_reader_who_leaves_before_the_first_byte_leaves_no_trace() -> None:
    """Attendance that began always ends, however early the client resets."""
    service = ScriptedService()
    service.hold = True
    app = application(service)
    create(app, background=True)

    async def run() -> None:
        for _ in range(300):
            wire = Wire(app, "GET", f"/v1/responses/resp_{FIRST}", query=b"stream=true")
            wire.leave()
            await asyncio.wait_for(wire.run(), 30)

    asyncio.run(run())
    assert (service.kept[FIRST].attendants, service.kept[FIRST].left) == (0, 300)


def test_a_reader_who_stops_reading_holds_back_only_himself() -> None:
    """The application waits for the socket, and is let go when the reader leaves in mid-write."""
    service = ScriptedService()

    async def run() -> None:
        app = application(service)
        slow = Wire(app, "POST", "/v1/responses", BODY)
        slow.room = asyncio.Semaphore(2)
        running = asyncio.create_task(slow.run())
        await until(lambda: slow.sent.qsize() == 2)
        quick = Wire(app, "GET", f"/v1/responses/resp_{FIRST}", query=b"stream=true")
        await asyncio.wait_for(quick.run(), 30)
        assert quick.rest()[-1]["body"] == b"data: [DONE]\n\n"
        assert slow.sent.qsize() == 2
        slow.leave()
        await asyncio.wait_for(running, 30)

    asyncio.run(run())
    assert service.kept[FIRST].attendants == 0


def test_a_stream_that_breaks_is_cut_and_not_ended(caplog: pytest.LogCaptureFixture) -> None:
    """An exception after the start can only break the answer off; it is logged, and attendance ends."""

    class Breaking(ScriptedService):
        async def _events(self, kept: Kept, after: int) -> AsyncIterator[Event | None]:
            yield kept.events[0]
            raise RuntimeError("disk gone")

    service = Breaking()

    async def run() -> list[dict[str, Any]]:
        wire = Wire(application(service), "POST", "/v1/responses", BODY)
        await wire.run()
        return wire.rest()

    sent = asyncio.run(run())
    assert [message.get("more_body") for message in sent] == [None, True]
    assert "answer broken off" in caplog.text
    assert service.kept[FIRST].attendants == 0


def test_the_stream_of_an_unknown_response_is_a_plain_404() -> None:
    """It is refused before a stream begins."""
    answer = call(application(), "GET", "/v1/responses/resp_nobody?stream=true")
    assert answer.status_code == 404
    assert error_of(answer)["code"] == "not_found"


def test_over_a_socket_a_leaving_reader_is_noticed_and_another_is_served() -> None:
    """The same through the real server: closing the connection ends the attendance within the test's patience."""
    service = ScriptedService()
    service.hold = True

    async def run() -> None:
        async with serving(application(service)) as base, httpx.AsyncClient(base_url=base) as http:
            http.headers["Authorization"] = f"Bearer {OWNER_TOKEN}"
            async with http.stream("POST", "/v1/responses", json={**HELLO, "stream": True}) as answer:
                lines = answer.aiter_lines()
                assert await anext(lines) == "event: response.created"
                assert answer.headers["transfer-encoding"] == "chunked"
            async with asyncio.timeout(30):
                await until(lambda: service.kept[FIRST].attendants == 0, lambda: http.get("/healthz"))
            service.finish(FIRST)
            again = await http.get(f"/v1/responses/resp_{FIRST}?stream=true")
            assert events(again.text)[-1]["type"] == "response.completed"

    asyncio.run(run())


def test_two_readers_get_the_same_bytes() -> None:
    """One live, one later."""
    app = application()

    async def run() -> tuple[str, str]:
        async with client(app) as http:
            live = await http.post("/v1/responses", json={**HELLO, "stream": True})
            later = await http.get(f"/v1/responses/resp_{FIRST}?stream=true")
            return live.text, later.text

    live, later = asyncio.run(run())
    assert live == later
