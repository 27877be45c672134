"""Routes of OpenAI's API that have their place here and are not served yet: 501, and what to use instead."""

import httpx
import pytest

from .harness import application, call, error_of
from .scripted import OTHER_TOKEN, ScriptedService

APP = application()
HANDSHAKE = {"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": "x"}


def refused(answer: httpx.Response) -> str:
    """The message of a 501, after its other parts were checked."""
    assert answer.status_code == 501, answer.text
    error = error_of(answer)
    assert (error["type"], error["code"], error["param"]) == ("invalid_request_error", "not_implemented", None)
    assert answer.headers["x-should-retry"] == "false"
    assert "retry-after" not in answer.headers
    return error["message"]


@pytest.mark.parametrize(
    ("method", "path", "instead"),
    [
        ("POST", "/v1/responses/compact", "truncation"),
        ("POST", "/v1/responses/compact/", "truncation"),
        ("POST", "/v1/conversations", "previous_response_id"),
        ("GET", "/v1/conversations/conv_1", "previous_response_id"),
        ("DELETE", "/v1/conversations/conv_1/items/item_1", "previous_response_id"),
        ("POST", "/v1/embeddings", "nothing here stands in"),
        ("POST", "/v1//embeddings", "nothing here stands in"),
        ("POST", "/v1/completions", "/v1/responses"),
        ("GET", "/v1/chat/completions", "/v1/responses"),
        ("GET", "/v1/chat/completions/chat_1", "/v1/responses"),
        ("POST", "/v1/chat/completions/chat_1", "/v1/responses"),
        ("GET", "/v1/chat/completions/chat_1/messages", "/v1/responses"),
    ],
)
def test_a_route_of_a_later_version_says_so(method: str, path: str, instead: str) -> None:
    """With what to use until then; a stranger is asked for his token first."""
    assert instead in refused(call(APP, method, path))
    assert call(APP, method, path, who=None).status_code == 401


@pytest.mark.parametrize(
    "path",
    [
        "/v1/files",
        "/v1/batches",
        "/v1/embeddings/x",
        "/v1/conversationsx",
        "/v1/completions/x",
        "/v1/chat",
        "/v1/chat/completions/a/b",
        "/embeddings",
        "/v2/embeddings",
    ],
)
def test_any_other_route_is_unknown(path: str) -> None:
    """And the answer says where those are found that there are."""
    answer = call(APP, "POST", path)
    assert answer.status_code == 404
    error = error_of(answer)
    assert error["code"] == "unknown_route"
    assert "/openapi.json" in error["message"]


def test_a_response_of_that_name_is_still_looked_for() -> None:
    """Only the method that compacts is not served; for the others it is an id like any other."""
    assert call(APP, "GET", "/v1/responses/compact").status_code == 404
    assert call(APP, "PUT", "/v1/responses/compact").status_code == 405


@pytest.mark.parametrize("path", ["/v1/responses", "/v1/models", "/nowhere", "/healthz"])
@pytest.mark.parametrize("word", ["websocket", "WebSocket"])
def test_a_handshake_is_answered_in_the_one_shape(path: str, word: str) -> None:
    """On every path, with what to use instead."""
    answer = call(APP, "GET", path, headers={**HANDSHAKE, "Upgrade": word})
    assert "stream" in refused(answer)


def test_a_handshake_passes_the_same_doors() -> None:
    """Token, host and origin come first: a page of another origin learns nothing."""
    service = ScriptedService()
    app = application(service)
    assert call(app, "GET", "/v1/responses", who=None, headers=HANDSHAKE).status_code == 401
    assert call(app, "GET", "/v1/responses", headers=HANDSHAKE | {"Host": "evil.example"}).status_code == 403
    assert call(app, "GET", "/v1/responses", headers=HANDSHAKE | {"Origin": "http://evil.example"}).status_code == 403
    refused(call(app, "GET", "/v1/responses", who=OTHER_TOKEN, headers=HANDSHAKE))


def test_another_upgrade_is_ignored() -> None:
    """Some clients offer HTTP/2 on every request; HTTP allows to go on without."""
    headers = {"Connection": "Upgrade, HTTP2-Settings", "Upgrade": "h2c", "HTTP2-Settings": "AAMAAABk"}
    assert call(APP, "GET", "/v1/models", headers=headers).status_code == 200
