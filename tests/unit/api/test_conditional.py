"""Conditional reads on the wire: which routes, which headers, what the header may say."""

import re
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from litestar.routes import HTTPRoute

from perdure.api.conditional import matches
from perdure.domain.errors import StorageFailed

from .harness import application, call, create, error_of
from .scripted import MODEL, OTHER_TOKEN, ScriptedService
from .test_openapi import DOCUMENT

IDENT = f"{0:026d}"
PATHS = {
    "get_response": f"/v1/responses/resp_{IDENT}",
    "list_responses": "/v1/responses",
    "list_input_items": f"/v1/responses/resp_{IDENT}/input_items",
    "list_tasks": "/v1/tasks",
    "get_task": f"/v1/tasks/task_{IDENT}",
    "list_task_events": f"/v1/tasks/task_{IDENT}/events",
    "list_models": "/v1/models",
    "get_model": f"/v1/models/{MODEL}",
}
SETTLED = ["get_response", "list_input_items", "get_task", "list_task_events"]
OF_VERSION = ["list_responses", "list_tasks", "list_models", "get_model"]
"""Models have a validator of their own in the engine; the script gives them the version's."""


def get(app: Any, path: str, *tags: str, who: str = "owner-token") -> httpx.Response:
    """A read by somebody who has the answers of these tags."""
    headers = [("If-None-Match", tag) for tag in tags]
    return call(app, "GET", path, who=who, headers=headers)


@pytest.fixture
def service() -> ScriptedService:
    return ScriptedService()


@pytest.fixture
def app(service: ScriptedService) -> Any:
    """With one response, which has ended."""
    app = application(service)
    create(app, background=True)
    return app


@pytest.mark.proves("S6")
@pytest.mark.parametrize("operation", PATHS)
def test_a_read_has_a_tag_and_the_tag_spares_the_next_one(app: Any, operation: str) -> None:
    """The second answer has no body and nothing that tells of one; the tag, the rule for caches and the id stay."""
    whole = get(app, PATHS[operation])
    assert whole.status_code == 200
    assert re.fullmatch(r'"[\w-]{20,}"', whole.headers["etag"], re.ASCII)
    assert whole.headers["cache-control"] == "private, no-cache"
    again = get(app, PATHS[operation], whole.headers["etag"])
    assert (again.status_code, again.content) == (304, b"")
    assert set(again.headers) == {"etag", "cache-control", "x-request-id"}
    for name in ("etag", "cache-control"):
        assert again.headers[name] == whole.headers[name]
    assert again.headers["x-request-id"] != whole.headers["x-request-id"]


@pytest.mark.proves("S3", "S6")
def test_exactly_the_described_operations_are_conditional(app: Any) -> None:
    """Every other one has neither a tag nor an ear for one."""
    described = {
        operation["operationId"]
        for methods in DOCUMENT["paths"].values()
        for operation in methods.values()
        if "304" in operation["responses"]
    }
    assert described == set(PATHS)
    served = {
        str(handler.operation_id): route.path
        for route in app.routes
        if isinstance(route, HTTPRoute)
        for handler in route.route_handlers
        if "GET" in handler.http_methods and route.path != "/openapi.json"
    }
    for operation in set(served) - set(PATHS):
        answer = get(app, served[operation], "*")
        assert (answer.status_code, answer.headers.get("etag")) == (200, None)


@pytest.mark.parametrize("operation", PATHS)
def test_the_document_tells_of_the_headers(operation: str) -> None:
    """Of the tag in both answers, and of the header that brings it back."""
    (told,) = [
        each
        for methods in DOCUMENT["paths"].values()
        for each in methods.values()
        if each["operationId"] == operation
    ]
    assert set(told["responses"]["304"]) == {"description", "headers"}
    for status in ("200", "304"):
        assert set(told["responses"][status]["headers"]) == {"ETag", "Cache-Control"}
    assert "If-None-Match" in [each["name"] for each in told["parameters"] if each["in"] == "header"]


@pytest.mark.parametrize("path", ["/v1/service", "/healthz", "/readyz", "/openapi.json"])
def test_what_comes_from_memory_has_no_tag(app: Any, path: str) -> None:
    """It may change without a commit."""
    assert "etag" not in get(app, path, "*").headers


def test_what_changes_something_has_no_tag(service: ScriptedService) -> None:
    """Neither has a stream of events."""
    service.hold = True
    app = application(service)
    created = create(app, background=True)
    name = created.json()["id"]
    service.finish(IDENT)
    service.hold = False
    answers = [
        created,
        create(app, stream=True),
        get(app, f"/v1/responses/{name}?stream=true", "*"),
        call(app, "POST", f"/v1/responses/{name}/cancel", headers={"If-None-Match": "*"}),
        call(app, "POST", f"/v1/tasks/{name.replace('resp', 'task')}/cancel", headers={"If-None-Match": "*"}),
        call(app, "DELETE", f"/v1/responses/{name}", headers={"If-None-Match": "*"}),
    ]
    assert [(answer.status_code, answer.headers.get("etag")) for answer in answers] == [(202, None)] + [
        (200, None)
    ] * 5


HOLDING: dict[str, Callable[[str], list[str]]] = {
    "alone": lambda tag: [tag],
    "weak": lambda tag: [f"W/{tag}"],
    "in a list": lambda tag: [f'"a", {tag},"b,c" , W/"d"'],
    "in a list with gaps": lambda tag: [f" , ,{tag}, ,"],
    "on a second line": lambda tag: ['"a"', tag],
    "anything": lambda _tag: ["*"],
    "anything, with space": lambda _tag: [" * "],
}
NOT_HOLDING: dict[str, Callable[[str], list[str]]] = {
    "another one": lambda _tag: ['"a"'],
    "without quotes": lambda tag: [tag.strip('"')],
    "in other letters": lambda tag: [tag.swapcase()],
    "longer": lambda tag: [tag[:-1] + 'x"'],
    "with space inside": lambda tag: ['" ' + tag[1:]],
    "weak in small letters": lambda tag: [f"w/{tag}"],
    "beside garbage": lambda tag: [f"{tag}, garbage"],
    "beside a quote too many": lambda tag: [f'{tag}, "'],
    "anything and one more": lambda tag: ["*", tag],
    "anything in quotes": lambda _tag: ['"*"'],
    "empty": lambda _tag: [""],
    "commas": lambda _tag: [",,,"],
}


@pytest.mark.parametrize("operation", ["get_response", "list_tasks"])
@pytest.mark.parametrize("form", HOLDING)
def test_a_header_that_names_the_tag_holds(app: Any, operation: str, form: str) -> None:
    """However it is written."""
    tag = get(app, PATHS[operation]).headers["etag"]
    answer = get(app, PATHS[operation], *HOLDING[form](tag))
    assert (answer.status_code, answer.headers["etag"]) == (304, tag)


@pytest.mark.parametrize("operation", ["get_response", "list_tasks"])
@pytest.mark.parametrize("form", NOT_HOLDING)
def test_a_header_that_does_not_name_the_tag_does_not_hold(app: Any, operation: str, form: str) -> None:
    """Garbage is no error; the whole answer is always right."""
    whole = get(app, PATHS[operation])
    answer = get(app, PATHS[operation], *NOT_HOLDING[form](whole.headers["etag"]))
    assert (answer.status_code, answer.content) == (200, whole.content)


def test_a_header_of_any_bytes_is_read() -> None:
    """In one pass, so that a long one costs no more than its length."""
    for byte in b'" ,W/a*\xff\x00':
        many = bytes([byte]) * 60_000
        matches([(b"if-none-match", many), (b"if-none-match", b'W/"' + many)])
    assert matches([(b"if-none-match", b'"\xff"')]) == (False, frozenset({"\xff"}))


@pytest.mark.proves("E-25")
@pytest.mark.parametrize("operation", SETTLED)
@pytest.mark.parametrize("header", ["*", "its tag"])
def test_who_may_not_see_it_is_told_that_there_is_nothing(app: Any, operation: str, header: str) -> None:
    """404 and no 304, though he has the tag of the one who may."""
    tag = get(app, PATHS[operation]).headers["etag"]
    answer = get(app, PATHS[operation], "*" if header == "*" else tag, who=OTHER_TOKEN)
    assert (answer.status_code, answer.headers.get("etag")) == (404, None)
    error_of(answer)


@pytest.mark.parametrize(
    "path", ["/v1/models/nothing", "/v1/tasks?after=task_nothing", "/v1/tasks/task_nothing/events"]
)
def test_anything_means_anything_that_there_is(app: Any, path: str) -> None:
    """An error stays an error."""
    assert get(app, path, "*").status_code == 404


@pytest.mark.parametrize("operation", PATHS)
def test_a_tag_is_one_clients(service: ScriptedService, operation: str) -> None:
    """The same page is another tag to another client, though it were the same bytes."""
    app = application(service)
    if operation in OF_VERSION:
        mine, other = (get(app, PATHS[operation], who=who) for who in ("owner-token", OTHER_TOKEN))
        assert mine.content == other.content
        assert mine.headers["etag"] != other.headers["etag"]
        assert get(app, PATHS[operation], mine.headers["etag"], who=OTHER_TOKEN).status_code == 200


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("/v1/tasks", "/v1/tasks?limit=20"),
        ("/v1/tasks?limit=1", "/v1/tasks?limit=2"),
        ("/v1/tasks?limit=2&order=desc", "/v1/tasks?order=desc&limit=2"),
        (PATHS["list_task_events"], PATHS["list_task_events"] + "?after=2"),
        (PATHS["get_task"], PATHS["list_task_events"]),
    ],
)
def test_a_tag_is_one_targets(app: Any, one: str, other: str) -> None:
    """The query is part of it, letter for letter."""
    tags = [get(app, path).headers["etag"] for path in (one, other)]
    assert tags[0] != tags[1]
    assert get(app, other, tags[0]).status_code == 200


@pytest.mark.proves("S1", "S4")
@pytest.mark.parametrize("operation", OF_VERSION)
def test_without_a_version_the_answer_is_whole_and_has_no_tag(service: ScriptedService, operation: str) -> None:
    """Not even "anything" is a 304 then, and no cache is told to keep what cannot be asked about."""
    app = application(service)
    whole = get(app, PATHS[operation])
    service.version_trouble = StorageFailed("The script says so.")
    for header in ("*", whole.headers["etag"]):
        answer = get(app, PATHS[operation], header)
        assert (answer.status_code, answer.content) == (200, whole.content)
        assert "etag" not in answer.headers
        assert answer.headers["cache-control"] == "private, no-cache"
    assert service.reports == []
