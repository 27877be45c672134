"""The events of a response over connections that break, told by a script: what a real service does too seldom."""

import json
import socket
import threading
from collections.abc import Generator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from tests.docs.repository import ROOT

from perdure.cli import contact, stream
from perdure.cli.contact import Folder, Service
from perdure.cli.failures import Away, CommandFailed, NoService, Refused, Unknown
from perdure.cli.follow import Watch
from perdure.cli.stream import Events, payloads
from perdure.domain import limits

PATH = "/v1/responses/resp_x"
DONE = b"data: [DONE]\n\n"
AWAY = "The service is away; waiting until it is back (Ctrl-C leaves). Accepted work is kept."
KEEPALIVE = b": keep-alive\n\n"


def incomplete(most: int | None, read: int, written: int) -> bytes:
    """The terminal frame of an answer that has got too long."""
    response = {
        "status": "incomplete",
        "background": True,
        "error": None,
        "incomplete_details": {"reason": "max_output_tokens"},
        "max_output_tokens": most,
        "usage": {"input_tokens": read, "output_tokens": written},
    }
    return event(0, "response.incomplete", response=response)


def event(number: int, kind: str = "response.output_text.delta", **fields: Any) -> bytes:
    """A frame."""
    data = json.dumps({"type": kind, "sequence_number": number, **fields})
    return f"event: {kind}\ndata: {data}\n\n".encode()


def end(number: int, status: str = "completed") -> bytes:
    """A terminal frame."""
    response = {"status": status, "background": True, "error": None, "incomplete_details": None}
    return event(number, f"response.{status}", response=response)


class Script:
    """The answers of a service, one after the other for each path; the last one is repeated."""

    def __init__(self) -> None:
        self.answers: dict[str, list[tuple[int, bytes]]] = {}
        self.asked: list[str] = []

    def says(self, path: str, *answers: bytes | tuple[int, bytes]) -> None:
        """What is answered there; a body that stands alone has the status 200."""
        self.answers[path] = [(200, each) if isinstance(each, bytes) else each for each in answers]

    def next(self, target: str) -> tuple[int, bytes]:
        """The answer to a request."""
        self.asked.append(target)
        left = self.answers[target.partition("?")[0]]
        return left.pop(0) if len(left) > 1 else left[0]


class Scripted(Folder):
    """The folder of a service that follows a script."""

    def __init__(self, port: int) -> None:
        super().__init__(None)
        self.here = True
        self._port = port

    def service(self) -> Service:
        """The service, while it is here."""
        if not self.here:
            raise NoService("nobody is here")
        return Service("127.0.0.1", self._port, "token", 1)


@contextmanager
def listening(script: Script) -> Generator[int]:
    """A server that answers as the script says, and then ends the connection."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, body = script.next(self.path)
            self.send_response(status)
            self.end_headers()
            with suppress(OSError):
                self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 -- the name that the base class gives it
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server.server_address[1]
        server.shutdown()
        thread.join()


@pytest.fixture
def script() -> Script:
    """What the service says."""
    return Script()


@pytest.fixture
def folder(script: Script, monkeypatch: pytest.MonkeyPatch) -> Generator[Scripted]:
    """The folder of the scripted service; pauses are short."""
    monkeypatch.setattr(stream, "PAUSE_MAX_SECONDS", 0.01)
    with listening(script) as port:
        yield Scripted(port)


def followed(folder: Scripted, after: int = -1, wait_seconds: float = 5) -> tuple[list[int | None], list[str]]:
    """The numbers of the events that come, None for a sign of life, and what was said meanwhile."""
    notes: list[str] = []
    events = Events(folder, "resp_x", after, wait_seconds, notes.append)
    return [each and each.number for each in events], notes


def test_frames_are_read_whole_or_not_at_all() -> None:
    """A comment is a sign of life; what was cut in the middle is left out."""
    lines = b"event: a\ndata: {1}\n\n: still here\n\ndata: {2}\r\n\r\ndata: {3}\n".splitlines(keepends=True)
    assert list(payloads(lines)) == [b"{1}", None, b"{2}"]


def test_a_broken_connection_goes_on_behind_the_last_event(script: Script, folder: Scripted) -> None:
    """Whatever part of a frame was there; the cursor is that of the last whole one."""
    cut = event(0) + event(1) + event(2)[:-1]
    script.says(PATH, cut, event(2), b"", event(3)[:20], KEEPALIVE + end(3) + DONE)
    numbers, notes = followed(folder)
    assert numbers == [0, 1, 2, None, 3]
    cursors = [each.partition("stream=true")[2] for each in script.asked]
    assert cursors == ["", *(f"&starting_after={last}" for last in (1, 2, 2, 2))]
    assert notes == [AWAY, "The service is back."]


def test_one_break_that_is_mended_at_once_is_not_worth_a_word(script: Script, folder: Scripted) -> None:
    """The reader sees nothing of it."""
    script.says(PATH, event(0), end(1) + DONE)
    assert followed(folder) == ([0, 1], [])


def test_a_cursor_beyond_the_end_has_nothing_to_show(script: Script, folder: Scripted) -> None:
    """The service says `[DONE]`, and that is the end."""
    script.says(PATH, DONE)
    assert followed(folder, after=9) == ([], [])
    assert script.asked == [f"{PATH}?stream=true&starting_after=9"]


@pytest.mark.parametrize("frames", [event(1), event(0) + event(2), event(0) + event(0)])
def test_a_gap_or_a_repeat_is_not_passed_on(script: Script, folder: Scripted, frames: bytes) -> None:
    """It would be a lie to number them for the reader."""
    script.says(PATH, frames)
    with pytest.raises(CommandFailed, match=r"The service sent event \d after event -?\d"):
        followed(folder)


def test_a_refusal_at_first_is_told_and_later_waited_out(script: Script, folder: Scripted) -> None:
    """A service that stops or whose disk is full says 503; what it does not know will not come back."""
    busy = json.dumps({"error": {"message": "It stops.", "code": "service_unavailable"}}).encode()
    script.says(PATH, (503, busy))
    with pytest.raises(Refused, match="It stops"):
        followed(folder)
    script.says(PATH, event(0), (503, busy), end(1) + DONE)
    assert followed(folder)[0] == [0, 1]
    gone = json.dumps({"error": {"message": "It is gone.", "code": "not_found"}}).encode()
    script.says(PATH, event(0), (404, gone))
    with pytest.raises(Refused, match="It is gone"):
        followed(folder)


def test_a_service_that_is_not_there_at_first_is_not_waited_for(script: Script, folder: Scripted) -> None:
    """Nobody knows whether one will ever be."""
    folder.here = False
    with pytest.raises(NoService, match="nobody is here"):
        followed(folder)


def test_waiting_has_the_bound_that_is_asked_for(script: Script, folder: Scripted) -> None:
    """From the loss on; a sign of life in between begins it anew."""
    script.says(PATH, event(0), b"")
    with pytest.raises(Unknown, match=r"did not come back within 0\.05 s"):
        followed(folder, wait_seconds=0.05)
    with pytest.raises(Unknown):
        followed(folder, after=0, wait_seconds=0)


def test_what_answers_and_is_no_service_is_named_so(script: Script, folder: Scripted) -> None:
    """No traceback, whatever it sends."""
    for answer in (b"data: hello\n\n", b'data: {"type": 1}\n\n', (404, b"<html>"), (400, b'{"error": "x"}')):
        script.says(PATH, answer)
        with pytest.raises(CommandFailed, match="no Perdure service"):
            followed(folder)


def test_a_long_silence_is_explained_once(
    script: Script, folder: Scripted, capsys: pytest.CaptureFixture[str]
) -> None:
    """With the place in the queue and the reason that the service gives."""
    script.says(PATH, KEEPALIVE + KEEPALIVE + end(0) + DONE)
    script.says("/v1/tasks/task_x", json.dumps({"status": "queued", "queue_position": 3}).encode())
    script.says("/readyz", (503, json.dumps({"reason": "The model file is gone."}).encode()))
    assert Watch(folder, "resp_x", after=-1, as_json=False, wait_seconds=None).run() == 0
    assert capsys.readouterr().err == "perdure: resp_x is queued, 4th in the queue: The model file is gone.\n"


def test_a_silence_while_it_is_written_needs_no_word(
    script: Script, folder: Scripted, capsys: pytest.CaptureFixture[str]
) -> None:
    """A slow model is not a queue."""
    script.says(PATH, event(0, delta="Hi.") + KEEPALIVE + end(1) + DONE)
    script.says("/readyz", b'{"status": "ok"}')
    assert Watch(folder, "resp_x", after=-1, as_json=False, wait_seconds=None).run() == 0
    assert capsys.readouterr() == ("Hi.\n", "")


def test_a_text_that_is_held_is_explained(
    script: Script, folder: Scripted, capsys: pytest.CaptureFixture[str]
) -> None:
    """As by a full disk: once each time, and again for another reason, but not when it goes on."""
    pieces = [event(number, delta=f"{number}") for number in range(2)]
    script.says(PATH, pieces[0] + 3 * KEEPALIVE + pieces[1] + 2 * KEEPALIVE + end(2) + DONE)
    script.says("/v1/tasks/task_x", b'{"status": "running", "queue_position": null}')
    full, broken = ((503, json.dumps({"reason": reason}).encode()) for reason in ("It is full.", "It is broken."))
    script.says("/readyz", full, full, broken, broken, b'{"status": "ok"}')
    assert Watch(folder, "resp_x", after=-1, as_json=False, wait_seconds=None).run() == 0
    told = [f"perdure: resp_x is running: It is {how}.\n" for how in ("full", "broken", "broken")]
    assert capsys.readouterr() == ("01\n", "".join(told))


CUT: dict[tuple[int | None, int, int], str] = {
    (7, 5, 7): "max_output_tokens, after 7 tokens",
    (1, 5, 1): "max_output_tokens, after 1 token",
    (None, 4068, 28): "the model's window is full, with 4,068 tokens of input and 28 of answer. ",
    (100, 1, 99): "the model's window is full, with 1 token of input and 99 of answer. ",
}


@pytest.mark.parametrize("counts", CUT)
def test_a_full_window_is_not_taken_for_the_bound_that_was_asked_for(
    script: Script, folder: Scripted, capsys: pytest.CaptureFixture[str], counts: tuple[int | None, int, int]
) -> None:
    """It is full where the answer is shorter than that; then the remedy is another one."""
    script.says(PATH, incomplete(*counts) + DONE)
    assert Watch(folder, "resp_x", after=-1, as_json=False, wait_seconds=None).run() == 4
    said = capsys.readouterr().err
    assert said.startswith(f"perdure: resp_x ended incomplete: {CUT[counts]}")
    assert ("PERDURE_WINDOW_TOKENS" in said) == ("window" in CUT[counts])


def test_a_service_that_hangs_is_told_with_the_time_that_it_had() -> None:
    """The system still accepts the connection, and nothing comes."""
    with socket.create_server(("127.0.0.1", 0)) as hung, pytest.raises(Away) as away:
        Service("127.0.0.1", hung.getsockname()[1], "token", 1, answer_seconds=0.05).get("/readyz")
    assert str(away.value) == "The service has not answered for 0.05 s."


def test_the_document_tells_the_times_that_a_service_has() -> None:
    """A changed number is not forgotten there."""
    told = (ROOT / "docs/reference/command-line.md").read_text()
    assert f"A service has {contact.ANSWER_SECONDS:g} s to answer." in told
    assert f"may be silent for {contact.SILENCE_SECONDS:g} s" in told
    assert f"If nothing comes for {limits.KEEPALIVE_SECONDS:g} s" in told
