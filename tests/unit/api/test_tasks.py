"""The native view: lists, single tasks, event pages, cancel."""

import asyncio
import json
from typing import Any

import httpx
import pytest

from perdure.domain.limits import EVENTS_PAGE_MAX, TASKS_PAGE_MAX

from .harness import HELLO, application, call, client, create, error_of, until
from .scripted import MODEL, NOW, OTHER_TOKEN, ScriptedService


def name(number: int) -> str:
    return f"task_{number:026d}"


def page(app: Any, query: str = "") -> dict[str, Any]:
    answer = call(app, "GET", f"/v1/tasks{query}")
    assert answer.status_code == 200
    return answer.json()


def test_a_task_shows_its_true_state() -> None:
    """Where the response says in_progress, the task says running."""
    service = ScriptedService()
    service.hold = True
    app = application(service)
    create(app, background=True)
    answer = call(app, "GET", f"/v1/tasks/{name(0)}")
    assert answer.status_code == 200
    assert answer.json() == {
        "id": name(0),
        "object": "task",
        "kind": "response",
        "response_id": name(0).replace("task_", "resp_"),
        "status": "running",
        "on_restart": "resume",
        "attempt": 1,
        "queue_position": None,
        "created_at": NOW,
        "background": True,
        "model": MODEL,
        "error": None,
        "history": [{"at": NOW, "attempt": 1, "status": "queued", "note": "submitted"}],
    }


def test_lists_page_through_everything_once() -> None:
    """Newest first, each once; the envelope names its ends."""
    app = application()
    for _ in range(5):
        create(app)
    first = page(app, "?limit=2")
    assert [task["id"] for task in first["data"]] == [name(4), name(3)]
    assert (first["object"], first["first_id"], first["last_id"], first["has_more"]) == (
        "list",
        name(4),
        name(3),
        True,
    )
    second = page(app, f"?limit=2&after={first['last_id']}")
    last = page(app, f"?limit=2&after={second['last_id']}")
    assert [task["id"] for task in second["data"] + last["data"]] == [name(2), name(1), name(0)]
    assert last["has_more"] is False
    assert page(app, "?order=asc&limit=1")["data"][0]["id"] == name(0)


def test_an_empty_list_has_no_ends() -> None:
    """The envelope is the same."""
    empty = {"object": "list", "data": [], "first_id": None, "last_id": None, "has_more": False}
    assert page(application()) == empty


def test_a_list_can_be_narrowed_to_a_state_and_is_one_s_own() -> None:
    """Others' tasks are not in it."""
    service = ScriptedService()
    app = application(service)
    create(app)
    service.hold = True
    create(app, background=True)
    assert [task["id"] for task in page(app, "?status=running")["data"]] == [name(1)]
    assert call(app, "GET", "/v1/tasks", who=OTHER_TOKEN).json()["data"] == []


@pytest.mark.parametrize(
    ("path", "param", "code"),
    [
        ("/v1/tasks?status=in_progress", "status", "invalid_value"),
        ("/v1/tasks?status=", "status", "invalid_value"),
        ("/v1/tasks?limit=0", "limit", "invalid_value"),
        (f"/v1/tasks?limit={TASKS_PAGE_MAX + 1}", "limit", "invalid_value"),
        ("/v1/tasks?limit=x", "limit", "invalid_value"),
        ("/v1/tasks?order=up", "order", "invalid_value"),
        ("/v1/tasks?before=task_x", "before", "unknown_parameter"),
        (f"/v1/tasks/{name(0)}/events?after=-2", "after", "invalid_value"),
        (f"/v1/tasks/{name(0)}/events?after=x", "after", "invalid_value"),
        (f"/v1/tasks/{name(0)}/events?limit=0", "limit", "invalid_value"),
        (f"/v1/tasks/{name(0)}/events?limit={EVENTS_PAGE_MAX + 1}", "limit", "invalid_value"),
        (f"/v1/tasks/{name(0)}?x=1", "x", "unknown_parameter"),
    ],
)
def test_a_bad_query_is_refused_by_name(path: str, param: str, code: str) -> None:
    """Bounds, options and names."""
    app = application()
    create(app)
    answer = call(app, "GET", path)
    assert answer.status_code == 400
    error = error_of(answer)
    assert (error["param"], error["code"]) == (param, code)


@pytest.mark.parametrize("limit", [1, TASKS_PAGE_MAX])
def test_the_bounds_of_a_page_are_accepted(limit: int) -> None:
    """Inclusive."""
    assert page(application(), f"?limit={limit}")["data"] == []


@pytest.mark.parametrize("after", ["task_unknown", "resp_x", "x"])
def test_a_cursor_that_is_no_task_is_not_found(after: str) -> None:
    """An unknown one and an impossible one alike."""
    answer = call(application(), "GET", f"/v1/tasks?after={after}")
    assert answer.status_code == 404
    assert error_of(answer)["param"] == "after"


@pytest.mark.parametrize("task", ["task_unknown", "resp_x", "x"])
@pytest.mark.parametrize(("method", "suffix"), [("GET", ""), ("GET", "/events"), ("POST", "/cancel")])
def test_what_is_no_task_is_not_found(method: str, suffix: str, task: str) -> None:
    """On every verb."""
    answer = call(application(), method, f"/v1/tasks/{task}{suffix}")
    assert answer.status_code == 404
    assert error_of(answer)["code"] == "not_found"


def test_event_pages_hold_the_bytes_of_the_stream() -> None:
    """The same JSON under the same numbers, spliced in as stored."""
    service = ScriptedService()
    app = application(service)
    create(app)
    (kept,) = service.kept.values()
    answer = call(app, "GET", f"/v1/tasks/{name(0)}/events")
    assert b"[" + b",".join(event.json for event in kept.events) + b"]" in answer.content
    body = answer.json()
    assert (body["object"], body["last_seq"], body["has_more"]) == ("list", len(kept.events) - 1, False)


def test_event_pages_follow_a_cursor() -> None:
    """`after` is exclusive; the last number of the log is told on every page."""
    service = ScriptedService()
    app = application(service)
    create(app)
    (kept,) = service.kept.values()
    found: list[int] = []
    after, more = -1, True
    while more:
        body = call(app, "GET", f"/v1/tasks/{name(0)}/events?after={after}&limit=3").json()
        assert body["last_seq"] == len(kept.events) - 1
        found += [event["sequence_number"] for event in body["data"]]
        after, more = found[-1], body["has_more"]
    assert found == list(range(len(kept.events)))
    beyond = call(app, "GET", f"/v1/tasks/{name(0)}/events?after=999").json()
    assert (beyond["data"], beyond["has_more"]) == ([], False)


def test_the_native_cancel_takes_foreground_work_too() -> None:
    """It answers with the task as it is then."""
    service = ScriptedService()
    service.hold = True
    app = application(service)

    async def run() -> tuple[httpx.Response, httpx.Response]:
        async with client(app) as http:
            waiting = asyncio.create_task(http.post("/v1/responses", json=dict(HELLO)))
            await until(lambda: bool(service.kept) and service.kept[f"{0:026d}"].attendants == 1)
            cancelled = await http.post(f"/v1/tasks/{name(0)}/cancel")
            return cancelled, await waiting

    cancelled, created = asyncio.run(run())
    assert (cancelled.status_code, cancelled.json()["status"]) == (200, "cancelled")
    assert (created.status_code, created.json()["status"]) == (200, "cancelled")


def test_a_failed_task_says_why() -> None:
    """With the code and the finer reason."""
    service = ScriptedService()
    service.hold = True
    app = application(service)
    create(app, background=True)
    (ident,) = service.kept
    service.fail(ident)
    task = json.loads(call(app, "GET", f"/v1/tasks/{name(0)}").content)
    assert task["status"] == "failed"
    assert task["error"] == {"code": "server_error", "message": "The script says so."}
