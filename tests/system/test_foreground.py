"""Foreground work is done for somebody: it stops when the last one has left. Background work never depends on one."""

from typing import Any

import pytest

from tests.system.caller import Caller
from tests.system.server import TERMINAL, Server, check_log, freeze, thaw, until

GRACE_SECONDS = 30.0  # the promise is one second; a shared machine may take longer to get round to it


def newest(server: Server, but: set[str]) -> dict[str, Any]:
    """The task that has come to those in `but`."""

    def there() -> dict[str, Any] | None:
        return next((task for task in server.get("/v1/tasks?limit=20")["data"] if task["id"] not in but), None)

    return until(there, "a new task")


def known(server: Server) -> set[str]:
    """The tasks so far."""
    return {task["id"] for task in server.get("/v1/tasks?limit=100")["data"]}


def ends(server: Server, task: dict[str, Any]) -> str:
    """How a task ends, within the grace."""

    def ended() -> str | None:
        status = server.get(f"/v1/tasks/{task['id']}")["status"]
        return status if status in TERMINAL else None

    return until(ended, "the task to end", GRACE_SECONDS)


def slots_used(server: Server) -> int:
    """How many texts are being drawn."""
    return sum(model["slots_used"] for model in server.get("/v1/service")["models"])


@pytest.mark.proves("B-15")
@pytest.mark.parametrize("stream", [True, False])
def test_it_stops_when_its_caller_leaves(tiny_server: Server, stream: bool) -> None:
    """In the middle of drawing: the task is cancelled with what it had, and the slot is free."""
    before = known(tiny_server)
    freeze(tiny_server.engine_child())
    caller = Caller(tiny_server, stream=stream)
    task = newest(tiny_server, before)
    tiny_server.reaches(task["response_id"], "running")
    thaw(tiny_server.engine_child())
    caller.hangs_up()
    assert ends(tiny_server, task) == "cancelled"
    check_log(tiny_server.frames(task["response_id"]))
    until(lambda: True if slots_used(tiny_server) == 0 else None, "the slot", GRACE_SECONDS)


@pytest.mark.proves("B-15")
def test_it_stops_while_it_waits_in_the_queue(tiny_server: Server) -> None:
    """Nobody waits for it any more, so it never starts."""
    freeze(tiny_server.engine_child())
    blockers = [tiny_server.create(max_output_tokens=3)["id"] for _ in range(4)]
    before = known(tiny_server)
    caller = Caller(tiny_server, stream=True)
    caller.reads_until(b"response.created")
    task = newest(tiny_server, before)
    assert task["status"] == "queued"
    caller.hangs_up()
    assert ends(tiny_server, task) == "cancelled"
    history = tiny_server.get(f"/v1/tasks/{task['id']}")["history"]
    assert [step["status"] for step in history] == ["queued", "cancelled"]
    thaw(tiny_server.engine_child())
    for each in blockers:
        assert tiny_server.ended(each)["status"] == "incomplete"


def test_it_goes_on_while_another_reader_attends(tiny_server: Server) -> None:
    """Only when the last one has left is it for nobody."""
    before = known(tiny_server)
    freeze(tiny_server.engine_child())
    caller = Caller(tiny_server, stream=True)
    task = newest(tiny_server, before)
    with tiny_server.stream(task["response_id"]) as frames:
        next(frames)
        caller.hangs_up()
        thaw(tiny_server.engine_child())
        rest = list(frames)
    assert rest[-1] == "data: [DONE]"
    assert ends(tiny_server, task) == "incomplete"


@pytest.mark.proves("B-05", "B-16")
def test_background_work_needs_no_viewer(tiny_server: Server) -> None:
    """The viewer who started it leaves; the whole answer is there for the next one."""
    before = known(tiny_server)
    caller = Caller(tiny_server, stream=True, background=True)
    caller.reads_until(b"response.output_text.delta")
    caller.hangs_up()
    task = newest(tiny_server, before)
    assert tiny_server.ended(task["response_id"])["status"] == "incomplete"
    check_log(tiny_server.frames(task["response_id"]))


def test_a_foreground_response_cannot_be_cancelled_by_the_compatible_route(tiny_server: Server) -> None:
    """As with the original service; the native route can."""
    before = known(tiny_server)
    freeze(tiny_server.engine_child())
    caller = Caller(tiny_server)
    task = newest(tiny_server, before)
    refused = tiny_server.http.post(f"/v1/responses/{task['response_id']}/cancel")
    assert refused.status_code == 400
    thaw(tiny_server.engine_child())
    assert tiny_server.http.post(f"/v1/tasks/{task['id']}/cancel").status_code == 200
    assert ends(tiny_server, task) == "cancelled"
    assert b'"status":"cancelled"' in caller.reads_until(b"}")
    caller.hangs_up()
