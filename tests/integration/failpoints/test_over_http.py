"""The real command is killed at named lines while it answers: each row of the table "What a kill leaves" in
docs/explanation/durability.md, as its callers see it."""

import json
import shutil
import sys
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.soundness import idents, unsound
from tests.system.server import Server, check_log, text_of, thaw, until

LAUNCHER = Path(__file__).with_name("doomed_server.py")
BODY: dict[str, Any] = {"max_output_tokens": 300, "seed": 11}


@dataclass(frozen=True)
class Line:
    """Where the process is killed."""

    module: str
    text: str
    nth: int = 1
    when: dict[str, str] = field(default_factory=dict[str, str])


class Doomed(Server):
    """A service that dies at a line, in its first life or in one that is asked for."""

    def start_doomed(self, line: Line) -> None:
        """Start it; it may die before it listens."""
        plan = json.dumps({"module": line.module, "text": line.text, "nth": line.nth, "when": line.when})
        self.spawn(sys.executable, "-P", str(LAUNCHER), plan)
        if first := self.first_line():
            self.url = first.split()[3]

    def dies(self) -> None:
        """Wait for its death; what it has left must be sound."""
        assert self.wait() == -9
        copy = Path(shutil.copytree(self.data, self.data.with_name("left"), dirs_exist_ok=True))
        (copy / "perdure.db-shm").unlink(missing_ok=True)
        assert unsound(copy / "perdure.db") == []
        self.left = idents(copy / "perdure.db")

    def seen(self, response_id: str) -> list[str]:
        """The frames that a reader gets before the process dies."""
        with suppress(httpx.TransportError), self.stream(response_id) as frames:
            return list(frames)
        return []

    def told_nothing(self, method: str, path: str, **fields: Any) -> None:
        """Ask, and get no answer."""
        assert self.told(method, path, **fields) is None

    def told(self, method: str, path: str, **fields: Any) -> Any:
        """Ask; the answer, if there was one before the end."""
        with suppress(httpx.TransportError):
            return self.http.request(method, path, **fields).json()
        return None

    def as_undisturbed(self, response_id: str, seen: list[str]) -> None:
        """The response goes on to the end that it would have come to anyway, and what was seen stays."""
        response = self.ended(response_id)
        frames = self.frames(response_id)
        check_log(frames)
        assert frames[: len(seen)] == seen
        assert response["status"] == "incomplete"
        assert response["usage"]["output_tokens"] == BODY["max_output_tokens"]
        assert text_of(response) == text_of(self.ended(self.create(**BODY)["id"]))

    def listed(self) -> list[dict[str, Any]]:
        """All tasks that the service shows, the oldest first."""
        return self.get("/v1/tasks?order=asc")["data"]

    def history(self, response_id: str) -> list[str]:
        """The states that a task has gone through, as far as they were noted."""
        return [step["status"] for step in self.task(response_id)["history"]]


@pytest.fixture
def server(tmp_path: Path, tiny_model: Path) -> Generator[Doomed]:
    """Not started yet."""
    with Doomed(tmp_path / "data", tiny_model) as server:
        yield server


def request(server: Server) -> dict[str, Any]:
    """The body of a create in the background."""
    return {"model": server.model_name, "input": "Tell me a story.", "background": True, **BODY}


COMMIT = "await self._store.apply(change)"
TOLD = "self._wakeups.notify(record.ident, ended=status in TERMINAL)"
APPEND = "events.append(connection, change.task_id, change.from_seq, change.events)"
SUBMIT = "await self._store.submit(new, self._queue_max)"
CANCEL = "return await self._recorder.move(record, step(record.status, Cause.CANCEL)"


@pytest.mark.proves("P3")
def test_killed_before_the_create_is_committed(server: Doomed) -> None:
    """There is nothing; the caller had no answer."""
    server.start_doomed(Line("engine/submit.py", SUBMIT))
    server.told_nothing("POST", "/v1/responses", json=request(server))
    server.dies()
    server.start()
    assert server.listed() == []


@pytest.mark.proves("P3", "C-25")
def test_killed_between_the_commit_of_a_create_and_its_answer(server: Doomed) -> None:
    """The response is there, once, and queued; the caller does not know its id, and the list has it."""
    server.start_doomed(Line("engine/submit.py", "return response", 1))
    server.told_nothing("POST", "/v1/responses", json=request(server))
    server.dies()
    server.start()
    (task,) = server.listed()
    server.as_undisturbed(task["response_id"], [])
    assert server.history(task["response_id"]) == ["queued", "loading", "running", "incomplete"]


@pytest.mark.proves("C-25")
def test_killed_after_the_claim(server: Doomed) -> None:
    """The response is loading; the next start queues it, and it runs."""
    server.start_doomed(
        Line("engine/run.py", "await unless(run.hint, self._runtime.load(record.model, record.ident))")
    )
    found = server.create(**BODY)["id"]
    server.dies()
    server.start()
    server.as_undisturbed(found, [])
    assert server.history(found) == ["queued", "loading", "queued", "loading", "running", "incomplete"]


@pytest.mark.proves("P4", "C-25")
@pytest.mark.parametrize(
    "line",
    [
        pytest.param(Line("engine/record.py", TOLD, 2, {"status": "running"}), id="after the first token"),
        pytest.param(Line("engine/record.py", COMMIT, 3, {"status": "running"}), id="before a commit"),
        pytest.param(Line("engine/record.py", TOLD, 3, {"status": "running"}), id="before readers are told"),
        pytest.param(Line("storage/sqlite/tasks.py", APPEND, 4), id="within a commit"),
        pytest.param(Line("engine/record.py", COMMIT, 1, {"status": "incomplete"}), id="before the end"),
    ],
)
def test_killed_while_tokens_are_drawn(server: Doomed, line: Line) -> None:
    """Everything up to the last commit is there; what was drawn after it is drawn again, and is the same."""
    server.start_doomed(line)
    found = server.create(**BODY)["id"]
    seen = server.seen(found)
    server.dies()
    server.start()
    server.as_undisturbed(found, seen)
    assert "going on after" in str(server.task(found)["history"])


@pytest.mark.proves("P4", "C-25")
def test_killed_between_the_commit_of_the_end_and_its_readers(server: Doomed) -> None:
    """The end is there at once; readers come back with their cursor and get it, and nothing is drawn any more."""
    server.start_doomed(Line("engine/record.py", TOLD, 1, {"status": "incomplete"}))
    found = server.create(**BODY)["id"]
    seen = server.seen(found)
    server.dies()
    server.start()
    assert server.get(f"/v1/responses/{found}")["status"] == "incomplete"
    # Who looks at the rows just when the end is committed has it before he is told.
    at_the_end = any("event: response.incomplete" in frame for frame in seen)
    check_log(seen if at_the_end else [*seen, *server.frames(found, after=len(seen) - 1 if seen else None)])
    assert sum(model["tokens_drawn"] for model in server.get("/v1/service")["models"]) == 0
    server.as_undisturbed(found, seen)


def cancelled_and_killed(server: Doomed, line: Line) -> tuple[str, list[str], Any]:
    """A response that somebody wanted to cancel, what had been seen of it, and what he was told."""
    server.start_doomed(line)
    found = server.create(max_output_tokens=1500)["id"]
    child = server.holds(found)  # else it may be at its end before it is cancelled
    seen = seen_of(server, found)
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(server.told, "POST", f"/v1/responses/{found}/cancel")
        with suppress(httpx.TransportError):
            until(lambda: server.task(found)["status"] in ("cancelling", "cancelled") or None, "the cancel")
        thaw(child)
        told = asked.result()
    server.dies()
    server.start()
    return found, seen, told


@pytest.mark.proves("P5")
def test_killed_before_a_cancel_is_committed(server: Doomed) -> None:
    """The response is as it was and goes on; the one who cancelled had no answer."""
    found, seen, told = cancelled_and_killed(server, Line("engine/cancel.py", CANCEL))
    assert told is None
    assert server.ended(found)["status"] == "incomplete"
    assert server.frames(found)[: len(seen)] == seen


@pytest.mark.proves("P5", "C-25")
@pytest.mark.parametrize(
    "line",
    [
        pytest.param(Line("engine/record.py", TOLD, 1, {"status": "cancelling"}), id="being cancelled"),
        pytest.param(Line("engine/record.py", COMMIT, 1, {"status": "cancelled"}), id="before the end"),
        pytest.param(Line("engine/record.py", TOLD, 1, {"status": "cancelled"}), id="after the end"),
    ],
)
def test_killed_between_the_commit_of_a_cancel_and_its_answer(server: Doomed, line: Line) -> None:
    """It is cancelled at the first look after the next start, with the text that was seen."""
    found, seen, told = cancelled_and_killed(server, line)
    response = server.get(f"/v1/responses/{found}")
    assert response["status"] == "cancelled"
    # Who looks at the rows just when the end is committed may have his answer before the process is killed.
    assert told is None or (line.text == TOLD and told == response)
    frames = server.frames(found)
    check_log(frames)
    assert frames[: len(seen)] == seen


def deleted_and_killed(server: Doomed, line: Line, *, finished: bool) -> str:
    """A response that somebody wanted to delete, drawing or at its end."""
    server.start_doomed(line)
    found = server.create(max_output_tokens=20 if finished else 1500)["id"]
    if finished:
        server.ended(found)
        server.told_nothing("DELETE", f"/v1/responses/{found}")
    else:
        child = server.holds(found)
        server.told_nothing("DELETE", f"/v1/responses/{found}")
        thaw(child)
    server.dies()
    server.start()
    return found


@pytest.mark.proves("C-23", "C-25")
@pytest.mark.parametrize(
    ("line", "finished"),
    [
        pytest.param(Line("engine/remove.py", "await self._cancel(record.ident)"), False, id="running"),
        pytest.param(Line("api/responses.py", '"deleted": True'), True, id="finished"),
    ],
)
def test_killed_between_the_commit_of_a_delete_and_its_answer(server: Doomed, line: Line, finished: bool) -> None:
    """It is out of sight for good, and a moment later no row is left."""
    found = deleted_and_killed(server, line, finished=finished)
    assert len(server.left) == (not finished)
    assert server.http.get(f"/v1/responses/{found}").status_code == 404
    assert server.listed() == []
    until(lambda: None if idents(server.data / "perdure.db") else True, "its rows to go")


@pytest.mark.parametrize(
    ("line", "finished"),
    [
        pytest.param(Line("engine/remove.py", "due = self._recorder.now()"), False, id="running"),
        pytest.param(Line("engine/remove.py", "await self._store.purge([record.id])"), True, id="finished"),
    ],
)
def test_killed_before_a_delete_is_committed(server: Doomed, line: Line, finished: bool) -> None:
    """The response is as it was; the one who deleted had no answer."""
    found = deleted_and_killed(server, line, finished=finished)
    assert server.ended(found)["status"] == "incomplete"


@pytest.mark.proves("P8", "C-25")
@pytest.mark.parametrize("settled", range(4))
def test_killed_while_the_start_settles_what_was_left(server: Doomed, settled: int) -> None:
    """What was settled stays so, the rest is settled by the next start; no text is begun anew twice."""
    server.settings["slots"] = 1
    server.start()
    policies = ["retry", "fail", "resume"]
    found = [server.create(max_output_tokens=600, seed=11, on_restart=each)["id"] for each in policies]
    thaw(server.holds(found[0]))
    seen = seen_of(server, found[0])
    server.kill()
    whole = settled == len(policies)
    text, nth = ("count, last = count + len(page)", 1) if whole else ("await self._settle_one(record)", 1 + settled)
    server.start_doomed(Line("engine/recover.py", text, nth))
    server.dies()
    server.start()
    ends = [server.ended(each) for each in found]
    assert [each["status"] for each in ends] == ["incomplete", "failed", "incomplete"]
    assert ends[1]["error"]["code"] == "server_restarted"
    frames = server.frames(found[0])
    assert frames[: len(seen)] == seen
    assert sum("event: perdure:task.retried" in frame for frame in frames) == 1
    assert text_of(ends[0]) == text_of(ends[2])


def seen_of(server: Doomed, response_id: str) -> list[str]:
    """What a reader has seen who leaves after some text."""
    with server.stream(response_id) as frames:
        return [next(frames) for _ in range(5)]
