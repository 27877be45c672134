"""What a restart does: every cell of R1 to R4 on a real process, killed with SIGKILL and started again."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.system.server import TERMINAL, Server, check_log, deltas_of, freeze, text_of, until

LENGTH = 300
FIELDS: dict[str, Any] = {"max_output_tokens": LENGTH, "seed": 11}


def start(tmp_path: Path, tiny_model: Path) -> Server:
    """A service with one slot, so that a second response has to wait."""
    return Server(tmp_path / "data", tiny_model, slots=1).start()


def leave_queued(server: Server, policy: str) -> str:
    """A response that waits behind another one."""
    freeze(server.engine_child())
    server.create("Go first.", on_restart="resume", **FIELDS)
    found = server.create(on_restart=policy, **FIELDS)["id"]
    server.reaches(found, "queued")
    return found


def leave_loading(server: Server, policy: str) -> str:
    """A response whose model is still on its way: the process that loads it is frozen before it has begun."""
    psutil.Process(server.engine_child().pid).kill()
    freeze(until(lambda: fresh_engine(server), "a new engine"))
    found = server.create(on_restart=policy, **FIELDS)["id"]
    server.reaches(found, "loading")
    return found


def fresh_engine(server: Server) -> psutil.Process | None:
    """The engine's process as soon as there is one that lives."""
    child = server.engine_child()
    return child if child.status() != psutil.STATUS_ZOMBIE else None


def leave_running(server: Server, policy: str) -> str:
    """A response in the middle of its text."""
    found = server.create(on_restart=policy, max_output_tokens=1500, seed=11)["id"]
    server.holds(found)
    return found


def leave_cancelling(server: Server, policy: str) -> str:
    """A response that is asked to end while the model does not listen."""
    found = leave_running(server, policy)
    assert server.http.post(f"/v1/responses/{found}/cancel").json()["status"] == "in_progress"
    server.reaches(found, "cancelling")
    return found


LEAVE: dict[str, Callable[[Server, str], str]] = {
    "queued": leave_queued,
    "loading": leave_loading,
    "running": leave_running,
    "cancelling": leave_cancelling,
}


def restarted(server: Server, state: str, policy: str) -> tuple[str, dict[str, Any], list[dict[str, Any]]]:
    """The response left in `state`, after the kill and the restart: its id, how it ended, its events."""
    found = LEAVE[state](server, policy)
    server.kill()
    server.start()
    if (
        policy == "fail" or state == "cancelling"
    ):  # settled before anybody can ask, so the first look already shows it
        assert server.task(found)["status"] in TERMINAL
    response = server.ended(found)
    return found, response, check_log(server.frames(found))


@pytest.mark.proves("P8", "R1", "R2", "R3", "R5", "R7")
@pytest.mark.parametrize("state", ["queued", "loading", "running"])
def test_fail_ends_with_the_reason(tmp_path: Path, tiny_model: Path, state: str) -> None:
    """With `fail`, what was left unfinished is failed as server_restarted, with its event and what was shown."""
    with start(tmp_path, tiny_model) as server:
        found, response, events = restarted(server, state, "fail")
        assert response["status"] == "failed"
        assert response["error"]["code"] == "server_restarted"
        assert events[-1]["type"] == "response.failed"
        assert events[-1]["response"] == response
        assert text_of(response) == deltas_of(events)
        assert bool(text_of(response)) == (state == "running")
        assert server.task(found)["error"]["code"] == "server_restarted"


@pytest.mark.proves("P8", "R1", "R2", "R3", "R7")
@pytest.mark.parametrize("state", ["queued", "loading"])
@pytest.mark.parametrize("policy", ["retry", "resume"])
def test_what_had_not_begun_is_queued(tmp_path: Path, tiny_model: Path, state: str, policy: str) -> None:
    """With `retry` and `resume`, what had shown nothing is queued again, without an event, and then runs."""
    with start(tmp_path, tiny_model) as server:
        found, response, events = restarted(server, state, policy)
        assert response["status"] == "incomplete"
        assert response["usage"]["output_tokens"] == LENGTH
        types = [event["type"] for event in events]
        assert "perdure:task.retried" not in types
        statuses = [step["status"] for step in server.task(found)["history"]]
        assert (
            statuses[-4:] == ["queued", "loading", "running", "incomplete"] if state == "loading" else statuses[-3:]
        )
        assert server.task(found)["attempt"] == 1
        again = server.ended(server.create(**FIELDS)["id"])
        assert text_of(response) == text_of(again)


@pytest.mark.proves("P8", "R3", "R7")
def test_retry_starts_the_text_anew(tmp_path: Path, tiny_model: Path) -> None:
    """With `retry`, shown text is closed, the new attempt announced, and only the new text is the answer."""
    with start(tmp_path, tiny_model) as server:
        found, response, events = restarted(server, "running", "retry")
        retried = next(event for event in events if event["type"] == "perdure:task.retried")
        assert retried["attempt"] == 2
        assert retried["reason"] == "server_restarted"
        before = events[retried["sequence_number"] - 1]
        assert before["type"] == "response.output_item.done"
        assert before["item"]["status"] == "incomplete"
        assert response["perdure"]["attempt"] == 2
        assert text_of(response) == deltas_of(events)
        assert text_of(response) == text_of(server.ended(server.create(max_output_tokens=1500, seed=11)["id"]))
        assert "queued" in [step["status"] for step in server.task(found)["history"]][1:]


@pytest.mark.proves("P8", "R3", "R7")
def test_resume_goes_on(tmp_path: Path, tiny_model: Path) -> None:
    """With `resume`, the text goes on where it was, in the same item, and is the undisturbed one."""
    with start(tmp_path, tiny_model) as server:
        found, response, events = restarted(server, "running", "resume")
        assert response["status"] == "incomplete"
        assert len([event for event in events if event["type"] == "response.output_item.added"]) == 1
        assert text_of(response) == deltas_of(events)
        assert text_of(response) == text_of(server.ended(server.create(max_output_tokens=1500, seed=11)["id"]))
        assert response["perdure"] == response["perdure"] | {"resume": "exact", "attempt": 1}
        assert any("going on after" in step["note"] for step in server.task(found)["history"])


@pytest.mark.proves("P8", "R4", "R6", "R7")
@pytest.mark.parametrize("policy", ["fail", "retry", "resume"])
def test_a_cancel_that_was_asked_for_is_carried_out(tmp_path: Path, tiny_model: Path, policy: str) -> None:
    """Whatever the policy, a response that was being cancelled is cancelled."""
    with start(tmp_path, tiny_model) as server:
        _, response, events = restarted(server, "cancelling", policy)
        assert response["status"] == "cancelled"
        assert events[-1]["type"] == "response.cancelled"
        assert text_of(response) == deltas_of(events)
        assert text_of(response)
