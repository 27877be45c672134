"""What the official client repeats by itself, and what it must not: counted, with its retries on."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, cast

import httpx
import openai
import pytest
from litestar import Litestar
from openai import AsyncOpenAI

from perdure.domain import errors as kinds
from perdure.domain import limits
from perdure.domain.errors import PerdureError

from .harness import application, error_of, until
from .scripted import MODEL, OWNER_TOKEN, ScriptedService

RETRIES = 2
SECRET = "zx-secret-9471"  # noqa: S105 -- what a caller sends and nobody may send back
RETRY_AFTER_MAX_SECONDS = 120  # of the client: it gives up where it is told to wait longer
JSON = {"Content-Type": "application/json"}


class Caller(AsyncOpenAI):
    """The official client, as it comes, but that it notes how long it would wait and does not."""

    def __init__(self, app: Litestar, token: str = OWNER_TOKEN) -> None:
        self.answers: list[httpx.Response] = []
        self.waits: list[float] = []
        http = httpx.AsyncClient(
            transport=httpx.ASGITransport(cast("Any", app)), event_hooks={"response": [self._note]}
        )
        super().__init__(
            base_url="http://localhost:8383/v1", api_key=token, max_retries=RETRIES, http_client=cast("Any", http)
        )

    async def _note(self, answer: httpx.Response) -> None:
        await answer.aread()
        self.answers.append(answer)

    async def _sleep_for_retry(self, *, retries_taken: int, max_retries: int, options: Any, response: Any) -> None:
        self.waits.append(
            self._calculate_retry_timeout(max_retries - retries_taken, options, response and response.headers)
        )


Call = Callable[[AsyncOpenAI], Awaitable[object]]


def refused(app: Litestar, call: Call, token: str = OWNER_TOKEN) -> tuple[Caller, openai.APIStatusError]:
    """The client and its error, once it has given up."""

    async def run() -> tuple[Caller, openai.APIStatusError]:
        async with Caller(app, token) as client:
            with pytest.raises(openai.APIStatusError) as raised:
                await call(client)
            return client, raised.value

    return asyncio.run(run())


def create(client: Any, **more: Any) -> Awaitable[object]:
    """An ordinary request."""
    return client.responses.create(**{"model": MODEL, "input": SECRET, **more})


def raw(method: str, path: str, content: bytes = b"") -> Call:
    """A request that the client has no verb for."""

    async def call(client: AsyncOpenAI) -> object:
        send = getattr(client, method)
        return await send(path, cast_to=object, options={"headers": JSON}, content=content)

    return call


WRONG: dict[str, tuple[Call, int, str]] = {
    "bad JSON": (raw("post", "/responses", b'{"model": "' + SECRET.encode()), 400, "invalid_json"),
    "wrong type": (lambda client: create(client, temperature=SECRET), 400, "invalid_type"),
    "wrong value": (lambda client: create(client, extra_body={"on_restart": SECRET}), 400, "invalid_value"),
    "unknown model": (lambda client: create(client, model=SECRET), 404, "model_not_found"),
    "unknown route": (raw("post", f"/{SECRET}"), 404, "unknown_route"),
    "wrong method": (raw("put", f"/responses/{SECRET}"), 405, "method_not_allowed"),
    "too large body": (lambda client: create(client, input=SECRET * 200), 413, "body_too_large"),
    "unknown id": (lambda client: client.responses.retrieve(f"resp_{SECRET}"), 404, "not_found"),
    "no id at all": (lambda client: client.responses.cancel(SECRET), 404, "not_found"),
    "unknown parameter": (
        lambda client: client.responses.retrieve("resp_x", extra_query={"x": SECRET}),
        400,
        "unknown_parameter",
    ),
    "not served": (raw("post", "/embeddings", b'{"input": "' + SECRET.encode() + b'"}'), 501, "not_implemented"),
}


def checked(answer: httpx.Response, status: int, code: str) -> None:
    """The one shape, and nothing of what was sent."""
    assert answer.status_code == status, answer.text
    error = error_of(answer)
    assert error["code"] == code
    assert all(isinstance(error[key], str) for key in ("message", "type", "code"))
    assert error["param"] is None or isinstance(error["param"], str)
    assert SECRET not in answer.text
    assert "Traceback" not in answer.text
    assert "<" not in answer.text  # no repr of an object, no markup


@pytest.mark.proves("A-18")
@pytest.mark.parametrize("name", WRONG)
def test_what_a_client_did_wrong_is_answered_once(name: str) -> None:
    """In the one shape, with an id, and without its own words."""
    call, status, code = WRONG[name]
    service = ScriptedService()
    client, error = refused(application(service, body_max_bytes=1024), call)
    (answer,) = client.answers
    checked(answer, status, code)
    assert answer.headers["x-should-retry"] == "false"
    assert (error.status_code, error.code, error.request_id) == (status, code, answer.headers["x-request-id"])
    assert not service.kept


@pytest.mark.proves("A-18")
def test_a_missing_or_unknown_token_is_answered_once() -> None:
    """The token is not said back."""
    client, error = refused(application(), lambda each: each.models.list(), SECRET)
    checked(client.answers[0], 401, "invalid_api_key")
    assert (len(client.answers), type(error)) == (1, openai.AuthenticationError)
    client, _ = refused(application(), lambda each: each.models.list(extra_headers={"Authorization": openai.Omit()}))
    assert [answer.status_code for answer in client.answers] == [401]


@pytest.mark.proves("A-18")
def test_a_fault_of_the_service_is_answered_once() -> None:
    """Whether it made a response before is not known, so that nobody may ask again by himself."""
    service = ScriptedService()
    service.refusal = RuntimeError(SECRET)
    client, error = refused(application(service), create)
    (answer,) = client.answers
    checked(answer, 500, "server_error")
    assert isinstance(error, openai.InternalServerError)


LASTING = [kinds.StorageDamaged]
PASSING = [kinds.QueueFull, kinds.Unavailable, kinds.ModelUnavailable, kinds.StorageFull, kinds.StorageFailed]


@pytest.mark.parametrize("kind", PASSING)
def test_what_passes_is_repeated_after_the_time_that_is_told(kind: type[PerdureError]) -> None:
    """Nothing was created, and each time is one that the client keeps to."""
    service = ScriptedService()
    service.refusal = kind("Later.")
    client, _ = refused(application(service), create)
    assert len(client.answers) == 1 + RETRIES
    told = {int(answer.headers["retry-after"]) for answer in client.answers}
    assert set(client.waits) == told
    assert all(0 < seconds <= RETRY_AFTER_MAX_SECONDS for seconds in told)
    assert limits.RETRY_AFTER_QUEUE_FULL_SECONDS in told or kind is not kinds.QueueFull
    assert not any("x-should-retry" in answer.headers for answer in client.answers)


@pytest.mark.parametrize("kind", LASTING)
def test_what_does_not_pass_is_not_repeated(kind: type[PerdureError]) -> None:
    """Until somebody repairs it."""
    service = ScriptedService()
    service.refusal = kind("Broken.")
    client, _ = refused(application(service), create)
    assert [answer.headers.get("x-should-retry") for answer in client.answers] == ["false"]


@pytest.mark.parametrize(("what", "stream"), [("follow", False), ("follow", True), ("response", False)])
@pytest.mark.parametrize("kind", [kinds.StorageFailed, kinds.Unavailable, kinds.QueueFull, RuntimeError])
def test_what_fails_after_acceptance_makes_no_second_response(what: str, kind: type[Exception], stream: bool) -> None:
    """The same errors, met where the response is there already, are not to be waited for."""
    service = ScriptedService()

    def broken(*_: object) -> Any:
        raise kind("The disk refused.")

    setattr(service, what, broken)
    client, _ = refused(application(service), lambda each: create(each, stream=stream))
    assert len(service.kept) == 1
    assert [answer.headers.get("x-should-retry") for answer in client.answers] == ["false"]
    assert "retry-after" not in client.answers[0].headers


def test_a_read_that_fails_is_repeated_all_the_same() -> None:
    """It makes nothing."""
    service = ScriptedService()

    def broken(*_: object) -> Any:
        raise kinds.StorageFailed("The disk refused.")

    setattr(service, "response", broken)  # noqa: B010 -- as above, where the name is a parameter
    client, _ = refused(application(service), lambda each: each.responses.retrieve("resp_x"))
    assert len(client.answers) == 1 + RETRIES


def test_a_stop_leaves_one_response_and_no_second_try() -> None:
    """Who waited for it is told where it is."""
    service = ScriptedService()
    service.hold = True

    async def run() -> Caller:
        async with Caller(application(service)) as client:
            waiting = asyncio.ensure_future(create(client))
            await until(lambda: any(kept.attendants for kept in service.kept.values()))
            service.drain()
            with pytest.raises(openai.InternalServerError, match="resp_"):
                await waiting
            return client

    client = asyncio.run(run())
    assert (len(client.answers), len(service.kept)) == (1, 1)
    assert client.answers[0].headers["x-should-retry"] == "false"


def test_every_kind_of_error_says_whether_to_repeat() -> None:
    """Either one header or the other, whatever the kind."""
    for name, kind in vars(kinds).items():
        if isinstance(kind, type) and issubclass(kind, PerdureError):
            service = ScriptedService()
            service.refusal = kind("Something.")
            client, _ = refused(application(service), create)
            headers = client.answers[0].headers
            assert ("retry-after" in headers) != (headers.get("x-should-retry") == "false"), name
