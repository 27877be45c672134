"""Cancel and delete over HTTP, as the field has seen them go wrong. The model is a real process that draws at its own
pace; where a state has to be held, that process is frozen."""

import itertools
import json
import random
from collections.abc import Callable, Generator
from contextlib import suppress
from typing import Any

import psutil
import pytest

from tests.system.caller import Caller
from tests.system.field import engine_is_free, everything, frozen_load, rows, tokens_drawn
from tests.system.server import TERMINAL, Server, check_log, data_of, deltas_of, freeze, text_of, thaw, until

SLOTS = 4
LONG: dict[str, Any] = {"max_output_tokens": 1900, "seed": 3}
MOMENTS = 200


def cancel(server: Server, response_id: str) -> dict[str, Any]:
    """Ask for the end; the answer's object."""
    answer = server.http.post(f"/v1/responses/{response_id}/cancel")
    assert answer.status_code == 200, answer.text
    return answer.json()


def held(server: Server, **fields: Any) -> str:
    """A response in the middle of its text, and the engine's process frozen."""
    found = server.create(**{**LONG, **fields})["id"]
    server.holds(found)
    return found


def queued(server: Server, **fields: Any) -> tuple[str, list[str]]:
    """A response that waits, the engine's process being frozen, and those that it waits for."""
    freeze(server.engine_child())
    before = [server.create(max_output_tokens=5)["id"] for _ in range(SLOTS)]
    for each in before:
        server.reaches(each, "running")
    return server.create(**{**LONG, **fields})["id"], before


@pytest.mark.proves("C-01")
@pytest.mark.parametrize("state", ["incomplete", "cancelled"])
def test_a_repeated_cancel_answers_200_and_changes_no_byte(tiny_server: Server, state: str) -> None:
    """Of one that had ended by itself, and of one that was cancelled while it ran; by both routes."""
    found = tiny_server.create(max_output_tokens=5 if state == "incomplete" else 1900)["id"]
    if state == "incomplete":
        tiny_server.ended(found)
    else:
        cancel(tiny_server, found)
        tiny_server.ended(found)
    before = everything(tiny_server, found)
    assert json.loads(before[0])["status"] == state
    for _ in range(2):
        answer = tiny_server.http.post(f"/v1/responses/{found}/cancel")
        assert (answer.status_code, answer.content) == (200, before[0])
        native = tiny_server.http.post(f"/v1/tasks/{found.replace('resp_', 'task_')}/cancel")
        assert native.status_code == 200
        assert json.loads(native.content)["status"] == state
    assert everything(tiny_server, found) == before


@pytest.mark.proves("C-03", "C-04")
def test_a_cancel_at_any_moment_is_not_refused_and_what_was_asked_for_stays(tiny_server: Server) -> None:
    """At two hundred moments of two hundred lives, queued ones among them: `background` is true wherever it is shown,
    and what the cancel was told is what every later look finds."""
    rng = random.Random(3)
    told = dict[str, str]()
    for _ in range(MOMENTS // 10):
        ids = [tiny_server.create(max_output_tokens=rng.randint(1, 60))["id"] for _ in range(10)]
        for found in rng.sample(ids, len(ids)):
            if rng.random() < 0.7:
                with tiny_server.stream(found) as frames:
                    for _ in zip(range(rng.randrange(8)), frames, strict=False):
                        pass
            answer = cancel(tiny_server, found)
            assert answer["background"] is True
            told[found] = answer["status"]
    assert set(told.values()) >= {"cancelled", "incomplete"}
    for task in tiny_server.get("/v1/tasks?limit=100")["data"]:
        assert task["background"] is True
    for found, status in told.items():
        events = check_log(tiny_server.frames(found))
        assert {event["response"]["background"] for event in events if "response" in event} == {True}
        assert events[-1]["response"] == tiny_server.get(f"/v1/responses/{found}")
        assert events[-1]["response"]["status"] == status


@pytest.mark.proves("C-17")
def test_polling_sees_every_state_and_partial_text_is_marked(tiny_server: Server) -> None:
    """Queued, at work, ended: each read shows the row of that moment, and the text only grows."""
    found, _ = queued(tiny_server, max_output_tokens=600)
    path = f"/v1/responses/{found}"
    seen = [tiny_server.get(path)]
    assert (seen[0]["status"], seen[0]["output"], seen[0]["usage"]) == ("queued", [], None)
    thaw(tiny_server.engine_child())

    def look() -> dict[str, Any] | None:
        seen.append(tiny_server.get(path))
        return seen[-1] if seen[-1]["status"] in TERMINAL else None

    last = until(look, "the end")
    at_work = [each for each in seen if each["status"] == "in_progress"]
    partial = [each for each in at_work if text_of(each)]
    assert partial
    assert len({text_of(each) for each in partial}) > 1
    assert {item["status"] for each in partial for item in each["output"]} == {"in_progress"}
    assert all(each["usage"] is None and each["completed_at"] is None for each in at_work)
    order = ["queued", "in_progress", "incomplete"]
    statuses = [each["status"] for each in seen]
    assert statuses == sorted(statuses, key=order.index)
    assert set(statuses) == set(order)
    for earlier, later in itertools.pairwise(seen):
        assert text_of(later).startswith(text_of(earlier))
    assert [item["status"] for item in last["output"]] == ["incomplete"]
    assert last["usage"]["output_tokens"] == last["max_output_tokens"]


@pytest.mark.proves("C-22")
@pytest.mark.parametrize("viewers", [True, False])
def test_another_client_cancels_by_id_and_the_engine_is_free(tiny_server: Server, viewers: bool) -> None:
    """The one who started it has left; another has come back by cursor, or nobody has."""
    first = Caller(tiny_server, stream=True, background=True)
    frame = first.reads_until(b"response.output_text.delta").split(b"\n\n")[0].decode()
    found = data_of(frame[frame.index("data: ") :])["response"]["id"]
    first.hangs_up()
    official = tiny_server.client()
    with tiny_server.stream(found, after=1) as frames:
        seen = [next(frames)] if viewers else []
        assert official.responses.cancel(found).status in ("in_progress", "cancelled")
        seen += list(frames) if viewers else []
    engine_is_free(tiny_server)
    assert tiny_server.ended(found)["status"] == "cancelled"
    if viewers:
        assert seen == tiny_server.frames(found, after=1)
        assert data_of(seen[-2])["type"] == "response.cancelled"


ROWS = """
SELECT (SELECT count(*) FROM tasks WHERE id = :id) + (SELECT count(*) FROM responses WHERE id = :id)
    + (SELECT count(*) FROM task_events WHERE task_id = :id) + (SELECT count(*) FROM event_bodies WHERE task_id = :id)
    + (SELECT count(*) FROM task_attempts WHERE task_id = :id)
"""


@pytest.mark.proves("C-23")
@pytest.mark.parametrize("state", ["queued", "running"])
def test_a_delete_ends_the_work_and_late_tokens_bring_nothing_back(tiny_server: Server, state: str) -> None:
    """The engine does not hear of it at first and draws on for a while: nobody finds the response from the first
    moment on, and then no row of it is left."""
    found = queued(tiny_server)[0] if state == "queued" else held(tiny_server)
    ((number,),) = rows(tiny_server, "SELECT id FROM tasks WHERE ident = :ident", ident=found.removeprefix("resp_"))
    assert rows(tiny_server, ROWS, id=number)[0][0] > 5
    drawn = tokens_drawn(tiny_server)
    assert tiny_server.http.delete(f"/v1/responses/{found}").json()["deleted"] is True
    task = f"/v1/tasks/{found.replace('resp_', 'task_')}"
    paths = (f"/v1/responses/{found}", f"/v1/responses/{found}?stream=true", task, f"{task}/events")

    def unknown() -> bool:
        statuses = [tiny_server.http.get(path).status_code for path in paths]
        assert tiny_server.http.delete(f"/v1/responses/{found}").status_code == 404
        assert tiny_server.http.post(f"/v1/responses/{found}/cancel").status_code == 404
        return statuses == [404] * len(paths)

    assert unknown()
    thaw(tiny_server.engine_child())
    engine_is_free(tiny_server)
    until(lambda: True if unknown() and rows(tiny_server, ROWS, id=number) == [(0,)] else None, "the rows to go")
    if state == "queued":
        assert tokens_drawn(tiny_server) - drawn <= 5 * SLOTS
    assert tiny_server.ended(tiny_server.create(max_output_tokens=3)["id"])["status"] == "incomplete"
    assert unknown()


@pytest.mark.proves("C-24")
def test_what_waits_in_the_queue_is_cancelled_at_once_and_costs_no_token(tiny_server: Server) -> None:
    """The answer is final although the engine stands still, and it never starts."""
    found, before = queued(tiny_server)
    drawn = tokens_drawn(tiny_server)
    assert cancel(tiny_server, found)["status"] == "cancelled"
    thaw(tiny_server.engine_child())
    for each in before:
        assert tiny_server.ended(each)["status"] == "incomplete"
    assert tokens_drawn(tiny_server) - drawn <= 5 * SLOTS
    assert [step["status"] for step in tiny_server.task(found)["history"]] == ["queued", "cancelled"]


@pytest.mark.proves("C-24")
def test_what_waits_for_its_model_is_cancelled_at_once_and_never_starts(tiny_server: Server) -> None:
    """The load stands still and goes on for the one who still needs it."""
    frozen_load(tiny_server)
    found, other = (tiny_server.create(max_output_tokens=tokens)["id"] for tokens in (1900, 5))
    tiny_server.reaches(found, "loading")
    assert cancel(tiny_server, found)["status"] == "cancelled"
    thaw(tiny_server.engine_child())
    assert tiny_server.ended(other)["status"] == "incomplete"
    assert [step["status"] for step in tiny_server.task(found)["history"]] == ["queued", "loading", "cancelled"]
    assert text_of(tiny_server.ended(found)) == ""


def goes_on(server: Server) -> None:
    """It hears of the cancel late, having drawn on."""
    thaw(server.engine_child())


def breaks(server: Server) -> None:
    """Its process dies of it."""
    server.engine_child().kill()


@pytest.mark.proves("C-28")
@pytest.mark.parametrize("then", [goes_on, breaks])
@pytest.mark.parametrize("tokens", [1900, 12])
def test_cancelled_stays_whatever_the_engine_does(
    tiny_server: Server, then: Callable[[Server], None], tokens: int
) -> None:
    """An engine that takes longer than the caller waits and then goes on, or dies; with much text to come or with
    nothing to come but the end."""
    found = held(tiny_server, max_output_tokens=1900) if tokens > 1000 else almost_done(tiny_server, tokens)
    assert cancel(tiny_server, found)["status"] == "in_progress"
    assert tiny_server.task(found)["status"] == "cancelling"
    then(tiny_server)
    tiny_server.reaches(found, "cancelled")
    engine_is_free(tiny_server)
    events = check_log(tiny_server.frames(found))
    response = tiny_server.get(f"/v1/responses/{found}")
    assert events[-1]["response"] == response
    assert (response["status"], response["error"]) == ("cancelled", None)
    assert text_of(response) == deltas_of(events)


def almost_done(server: Server, tokens: int) -> str:
    """A response that runs, with few tokens to come, and the engine's process frozen."""
    freeze(server.engine_child())
    found = server.create(max_output_tokens=tokens)["id"]
    server.reaches(found, "running")
    return found


@pytest.fixture(autouse=True)
def thawed(tiny_server: Server) -> Generator[None]:
    """Each test begins with an engine that can draw and leaves neither a frozen process nor unfinished work."""
    tiny_server.ended(tiny_server.create(max_output_tokens=1)["id"])
    yield
    with suppress(psutil.NoSuchProcess):
        thaw(tiny_server.engine_child())
    for task in tiny_server.get("/v1/tasks?limit=100")["data"]:
        if task["status"] not in TERMINAL:
            tiny_server.http.post(f"/v1/tasks/{task['id']}/cancel")
    engine_is_free(tiny_server)
