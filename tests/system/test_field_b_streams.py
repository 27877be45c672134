"""Streams over real sockets, as the field has seen them go wrong (B-06, B-15, B-18, B-19, B-21, B-23, B-25, B-26)."""

import json
import signal
import socket
import struct
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.system.caller import Caller
from tests.system.field import rows
from tests.system.server import Server, check_log, data_of, deltas_of, freeze, text_of, thaw, until

RESETS = 300
LAST_EVENTS = (b"output_text.done", b"content_part.done", b"output_item.done", b"completed")
REPLACED = "\ufffd"
ODD = "a😀漢e\u0301👩\u200d🔬"
"""An emoji, a Chinese character, a letter with a combining accent, and three code points that are one picture."""


def reset(sock: socket.socket) -> None:
    """Close the connection as a crash does: what is under way is thrown away."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    sock.close()


def opened(server: Server, path: str, receive_bytes: int = 0) -> socket.socket:
    """A socket on which a GET has been sent; `receive_bytes` bounds how much it takes unread."""
    host, port = server.url.removeprefix("http://").split(":")
    sock = socket.socket()
    if receive_bytes:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
    sock.settimeout(60)
    sock.connect((host, int(port)))
    sock.sendall(
        f"GET {path} HTTP/1.1\r\nHost: {host}:{port}\r\nAuthorization: Bearer {server.token}\r\n\r\n".encode()
    )
    return sock


def process_of(server: Server) -> psutil.Process:
    """The service's own process."""
    assert server.process is not None
    return psutil.Process(server.process.pid)


@pytest.mark.proves("B-06")
def test_a_stream_that_nobody_followed_is_whole_after_a_restart(tiny_server: Server) -> None:
    """Finished without a viewer; then the service is another process: all events at once, and the answer ends."""
    found = tiny_server.create(max_output_tokens=50)["id"]
    tiny_server.reaches(found, "incomplete")
    assert tiny_server.terminate() == 0
    tiny_server.start()
    with tiny_server.http.stream("GET", f"/v1/responses/{found}?stream=true", timeout=5) as answer:
        events = check_log(answer.read().decode().rstrip("\n").split("\n\n"))
    assert events[-1]["response"] == tiny_server.get(f"/v1/responses/{found}")


@pytest.mark.proves("B-18")
def test_resets_before_the_body_leave_nothing_behind(tiny_server: Server) -> None:
    """Three hundred viewers whose connections are reset before they have read a byte, of work that stands still, so
    that nothing is written to them: no descriptor stays open, and the next viewer sees everything."""
    freeze(child := tiny_server.engine_child())
    found = tiny_server.create(max_output_tokens=300)["id"]
    tiny_server.reaches(found, "running")
    process = process_of(tiny_server)
    tiny_server.get("/v1/service")
    before = process.num_fds()
    for _ in range(RESETS):
        reset(opened(tiny_server, f"/v1/responses/{found}?stream=true"))
    until(lambda: True if process.num_fds() <= before else None, "the connections to be gone")
    thaw(child)
    check_log(tiny_server.frames(found))


@pytest.mark.proves("B-19")
def test_idle_viewers_do_not_hold_up_a_stop(tmp_path: Path, tiny_model: Path) -> None:
    """Three viewers who wait for a queued response, another that runs, one signal: who asks for new work is refused,
    the viewers' answers end without an invented event, the running one is left to its policy, the exit is 0."""
    with Server(tmp_path / "data", tiny_model, slots=1, drain_seconds=1).start() as server:
        running, queued = (server.create(max_output_tokens=1900, seed=n)["id"] for n in range(2))
        server.reaches(running, "running")
        freeze(child := server.engine_child())
        late = Caller(server, tail_bytes=10)
        with ExitStack() as viewers:
            idle = [viewers.enter_context(server.stream(queued, after=1)) for _ in range(3)]
            assert server.process is not None
            server.process.send_signal(signal.SIGTERM)
            assert [list(frames) for frames in idle] == [[], [], []]
        late.socket.sendall(late.unsent)
        assert b" 503 " in late.reads_until(b"\r\n")
        late.hangs_up()
        thaw(child)
        assert server.wait() == 0
        left = rows(server, "SELECT 'resp_' || ident, status, boot, crashes FROM tasks ORDER BY id")
        assert left == [(running, "running", None, 0), (queued, "queued", None, 0)]


@pytest.mark.proves("B-25")
@pytest.mark.parametrize("path", ["/v1/responses", "/v1/chat/completions"])
def test_no_proxy_needs_to_be_told_that_it_is_a_stream(tiny_server: Server, path: str) -> None:
    """On the wire: the type with its charset, no cache, no transformation, no buffering, no length."""
    chat = {"messages": [{"role": "user", "content": "x"}], "max_completion_tokens": 1}
    asked = chat if "chat" in path else {"input": "x", "max_output_tokens": 1}
    body = {"model": tiny_server.model_name, "stream": True, **asked}
    with tiny_server.http.stream("POST", path, json=body) as answer:
        headers = answer.headers
        assert headers["content-type"] == "text/event-stream; charset=utf-8"
        assert headers["cache-control"] == "no-cache, no-transform"
        assert headers["x-accel-buffering"] == "no"
        assert headers["transfer-encoding"] == "chunked"
        assert "content-length" not in headers


def only(text: str) -> dict[str, Any]:
    """Settings that allow one text, in quotes: the model's tokens are single bytes."""
    return {"format": {"type": "json_schema", "name": "only", "schema": {"enum": [text]}, "strict": True}}


def forced(server: Server, **fields: Any) -> str:
    """A response whose text can only be `ODD`."""
    body = {"model": server.model_name, "input": "Say it.", "background": True, "text": only(ODD), **fields}
    answer = server.http.post("/v1/responses", json=body)
    assert answer.status_code == 202, answer.text
    return answer.json()["id"]


def cuts() -> Iterator[tuple[int, str]]:
    """A limit of tokens, and the text that so many bytes are."""
    data = json.dumps(ODD, ensure_ascii=False).encode()
    for size in range(1, len(data)):
        yield size, data[:size].decode(errors="replace")


@pytest.mark.proves("B-23")
def test_characters_of_several_bytes_come_whole(tiny_server: Server) -> None:
    """Drawn byte by byte: every delta is text without a replacement mark, and together they are the text of the
    event that closes it, of the item and of the stored response."""
    found = forced(tiny_server)
    response = tiny_server.ended(found)
    events = check_log(tiny_server.frames(found))
    done = next(event["text"] for event in events if event["type"] == "response.output_text.done")
    assert response["status"] == "completed"
    assert json.loads(text_of(response)) == ODD
    assert text_of(response) == done == deltas_of(events)
    assert REPLACED not in done


@pytest.mark.proves("B-23")
def test_only_a_character_that_was_cut_off_is_replaced(tiny_server: Server) -> None:
    """The limit of tokens at every byte: the tail of the text is one mark, where the cut was inside a character."""
    for size, text in cuts():
        found = forced(tiny_server, max_output_tokens=size)
        response = tiny_server.ended(found)
        events = check_log(tiny_server.frames(found))
        assert (response["status"], response["usage"]["output_tokens"]) == ("incomplete", size)
        assert text_of(response) == text == deltas_of(events)
        assert text.rstrip(REPLACED).count(REPLACED) == 0
        assert len(text) - len(text.rstrip(REPLACED)) <= 1


@pytest.mark.proves("B-26")
@pytest.mark.parametrize("background", [False, True])
def test_who_leaves_with_the_end_in_his_hands_takes_nothing_away(
    tiny_server: Server, background: bool, pytestconfig: pytest.Config
) -> None:
    """The connection is reset at the very bytes of the terminal event, or at those just before it, which are written
    in one transaction with it: completed, counted, and no line in the log."""
    told = tiny_server.errors.read_text()
    for n in range(int(pytestconfig.getoption("--closes") or 0) // 2):
        caller = Caller(tiny_server, stream=True, background=background, text=only("x"))
        got = caller.reads_until(b"event: response." + LAST_EVENTS[n % len(LAST_EVENTS)])
        reset(caller.socket)
        frame = next(each for each in got.decode().split("\r\n") if each.startswith("event: response.created"))
        response = tiny_server.get(f"/v1/responses/{data_of(frame)['response']['id']}")
        assert (response["status"], response["usage"]["output_tokens"]) == ("completed", len('"x"') + 1)
    assert tiny_server.errors.read_text() == told
