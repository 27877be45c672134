"""One shape for everything that goes wrong, one status for each kind."""

import asyncio
import inspect
from typing import Any, cast

import httpx
import pytest
from litestar.exceptions import HTTPException

from perdure.api import errors
from perdure.domain import errors as kinds
from perdure.domain.errors import PerdureError

from .harness import Wire, application, call, client, create, error_of, serving, until
from .scripted import OWNER_TOKEN, Refusal, ScriptedService

STATUS = {
    "PerdureError": 500,
    "InvalidRequest": 400,
    "BodyTooLarge": 413,
    "UnsupportedMedia": 415,
    "Unauthenticated": 401,
    "Forbidden": 403,
    "NotFound": 404,
    "MethodNotAllowed": 405,
    "NotServed": 501,
    "QueueFull": 429,
    "Unavailable": 503,
    "ModelUnavailable": 503,
    "StorageFull": 503,
    "StorageFailed": 503,
    "StorageDamaged": 503,
    "RefusedToStart": 500,
}
APP = application()
KINDS = [kind for _, kind in inspect.getmembers(kinds, inspect.isclass) if issubclass(kind, PerdureError)]


def test_every_kind_is_listed_here() -> None:
    """A new kind makes this fail until its status has been decided."""
    assert {kind.__name__ for kind in KINDS} == STATUS.keys()


@pytest.mark.parametrize("kind", KINDS)
def test_a_kind_that_the_service_raises_becomes_its_status(kind: type[PerdureError]) -> None:
    """With its own message, code and param."""
    service = ScriptedService()
    service.refusal = kind("Something happened.", param="input")
    answer = create(application(service))
    assert answer.status_code == STATUS[kind.__name__]
    error = error_of(answer)
    assert (error["message"], error["param"], error["code"]) == ("Something happened.", "input", kind.code)


def test_a_kind_that_no_table_knows_is_a_server_error() -> None:
    """It takes the line of its ancestor."""
    service = ScriptedService()
    service.refusal = Refusal("New.")
    answer = create(application(service))
    assert (answer.status_code, error_of(answer)["code"]) == (500, "novel")


@pytest.mark.parametrize("where", ["submit", "authenticate", "health"])
def test_an_unforeseen_exception_leaks_nothing(where: str, caplog: pytest.LogCaptureFixture) -> None:
    """The client gets 500 and an id; the log gets the id and the exception."""
    service = ScriptedService()

    def broken(*_: object, **__: object) -> Any:
        raise RuntimeError("the secret is 42")

    setattr(service, where, broken)
    app = application(service)
    answer = call(app, "GET", "/readyz") if where == "health" else create(app)
    assert answer.status_code == 500
    error = error_of(answer)
    assert (error["type"], error["code"], error["param"]) == ("server_error", "server_error", None)
    assert "42" not in answer.text
    assert answer.headers["x-request-id"] in caplog.text
    assert "the secret is 42" in caplog.text


def test_a_refusal_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    """What the client did wrong is for the client to know."""
    create(application(), temperature=9)
    assert caplog.text == ""


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/v1",
        "/v1/",
        "/v2/responses",
        "/v1/responses/resp_x/items",
        "/v1/responses/resp_x/cancel/x",
        "/v1/models/a/b",
        "/schema",
        "/schema/openapi.json",
        "/v1/files",
        "/v1/batches",
        "/docs/x",
        "/openapi.yaml",
        "/openapi.json/x",
        "/x%00",
        "/\u00fc",
    ],
)
def test_an_unknown_route_is_404_in_the_one_shape(path: str) -> None:
    """Whatever the framework would have said."""
    answer = call(APP, "GET", path)
    assert answer.status_code == 404
    error = error_of(answer)
    assert (error["type"], error["code"]) == ("not_found_error", "unknown_route")
    assert "base URL ends in /v1" in error["message"]


@pytest.mark.parametrize(
    ("method", "path", "allow"),
    [
        ("DELETE", "/v1/responses", "GET, POST"),
        ("PUT", "/v1/responses", "GET, POST"),
        ("DELETE", "/v1/chat/completions", "POST"),
        ("POST", "/docs", "GET"),
        ("OPTIONS", "/docs/start.js", "GET"),
        ("OPTIONS", "/openapi.json", "GET"),
        ("PATCH", "/v1/responses/resp_x", "DELETE, GET"),
        ("GET", "/v1/responses/resp_x/cancel", "POST"),
        ("POST", "/v1/models", "GET"),
        ("DELETE", "/v1/tasks/task_x", "GET"),
        ("OPTIONS", "/v1/responses", "GET, POST"),
        ("OPTIONS", "/v1/responses/resp_x", "DELETE, GET"),
        ("HEAD", "/v1/models", "GET"),
        ("POST", "/healthz", "GET"),
        ("OPTIONS", "/healthz", "GET"),
        ("POST", "/openapi.json", "GET"),
        ("TRACE", "/v1/tasks", "GET"),
        ("BREW", "/v1/tasks", "GET"),
    ],
)
def test_another_method_is_405_with_those_that_are_allowed(method: str, path: str, allow: str) -> None:
    """In the one shape, and with `Allow`."""
    answer = call(APP, method, path)
    assert answer.status_code == 405
    assert answer.headers["allow"] == allow
    if method != "HEAD":
        assert error_of(answer)["code"] == "method_not_allowed"


def test_every_answer_has_its_own_request_id() -> None:
    """Good and bad ones, a caller's own id notwithstanding."""
    app = application()
    paths = ["/healthz", "/nowhere", "/v1/models", "/v1/models"]
    found = [call(app, "GET", path, headers={"X-Request-Id": "mine"}).headers["x-request-id"] for path in paths]
    assert len(set(found)) == len(paths)
    assert all(name.startswith("req_") for name in found)


@pytest.mark.parametrize(
    ("status", "code"), [(400, "invalid_request"), (422, "invalid_request"), (500, "server_error")]
)
def test_the_framework_has_no_words_of_its_own(status: int, code: str) -> None:
    """Its exceptions keep their class of status and lose their detail."""
    scope = cast("Any", {"method": "GET", "path": "/"})
    error = errors.translate(HTTPException(detail="internals", status_code=status), scope)
    assert error.error_code == code
    assert b"internals" not in errors.body(error)


def test_a_web_socket_is_turned_away() -> None:
    """There is none at this stage; the handshake is refused, not left hanging."""

    async def run() -> list[dict[str, Any]]:
        wire = Wire(application(), "GET", "/v1/responses")
        wire.scope["type"] = "websocket"
        await wire.run()
        return wire.rest()

    assert [message["type"] for message in asyncio.run(run())] == ["websocket.close"]


def test_over_a_socket_errors_arrive_whole_and_the_connection_lives_on() -> None:
    """HEAD, unknown routes and wrong methods, one after another on one connection."""

    async def run() -> list[int]:
        headers = {"Authorization": f"Bearer {OWNER_TOKEN}"}
        async with serving(application()) as base, httpx.AsyncClient(base_url=base, headers=headers) as http:
            calls = [("HEAD", "/v1/models"), ("GET", "/nowhere"), ("PUT", "/v1/tasks"), ("GET", "/v1/models")]
            return [(await http.request(method, path)).status_code for method, path in calls]

    assert asyncio.run(run()) == [405, 404, 405, 200]


def test_cancelling_a_request_is_not_an_error(caplog: pytest.LogCaptureFixture) -> None:
    """A server that stops cancels its requests; that is passed on and not answered."""
    service = ScriptedService()
    service.hold = True

    async def run() -> None:
        async with client(application(service)) as http:
            asked = asyncio.create_task(http.post("/v1/responses", json={"model": "scripted-model", "input": "x"}))
            await until(lambda: bool(service.kept))
            asked.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asked

    asyncio.run(run())
    assert caplog.text == ""
    assert all(kept.attendants == 0 for kept in service.kept.values())
