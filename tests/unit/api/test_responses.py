"""Create, read, cancel and delete, as JSON."""

import asyncio
from typing import Any

import httpx
import pytest
from openresponses_types.types import ResponseResource

from perdure.domain.errors import ModelUnavailable, QueueFull, StorageFailed, StorageFull, Unavailable
from perdure.domain.recovery import OnRestart

from .harness import HELLO, SEED, Wire, application, call, calls, client, create, error_of, until
from .scripted import MODEL, OTHER_TOKEN, TEXTS, ScriptedService

FIRST = f"{0:026d}"


async def post(http: httpx.AsyncClient, **fields: Any) -> httpx.Response:
    return await http.post("/v1/responses", json={**HELLO, **fields})


def test_foreground_create_answers_with_the_finished_response() -> None:
    """It is 200, complete, valid by the stricter open specification, and says where it is kept."""
    answer = create(application())
    assert answer.status_code == 200
    body = answer.json()
    assert body["status"] == "completed"
    assert body["output"][0]["content"][0]["text"] == "".join(TEXTS)
    assert answer.headers["location"] == f"/v1/responses/{body['id']}"
    assert ResponseResource.model_validate(body).status == "completed"


def test_background_create_is_accepted_at_once() -> None:
    """It is 202 with the unfinished object and its place, and nobody attends."""
    service = ScriptedService()
    service.hold = True
    answer = create(application(service), background=True)
    assert answer.status_code == 202
    body = answer.json()
    assert body["status"] == "queued"
    assert body["background"] is True
    assert answer.headers["location"] == f"/v1/responses/{body['id']}"
    assert service.kept[FIRST].left == 0
    assert ResponseResource.model_validate(body).background


def test_create_hands_over_every_field() -> None:
    """What the caller set arrives at the service, the input in normal form."""
    service = ScriptedService()
    items = [
        {"role": "developer", "content": [{"type": "input_text", "text": "ü"}]},
        {"role": "user", "content": "b"},
    ]
    create(
        application(service),
        input=items,
        instructions="Be brief.",
        background=True,
        store=False,
        temperature=0.5,
        top_p=0.25,
        max_output_tokens=7,
        metadata={"a": "b"},
        seed=2**63 - 1,
        on_restart="retry",
        flavour="odd",
    )
    kept = service.kept[FIRST]
    request = kept.request
    said = [(m.role, m.content) for m in request.prompt(kept.items).messages]
    assert said == [("system", "Be brief."), ("system", "ü"), ("user", "b")]
    assert (request.instructions, request.background, request.store) == ("Be brief.", True, False)
    assert (request.temperature, request.top_p, request.max_output_tokens) == (0.5, 0.25, 7)
    assert (request.metadata, request.seed, request.on_restart) == ({"a": "b"}, 2**63 - 1, OnRestart.RETRY)
    assert request.ignored == ("flavour",)


def test_the_seed_is_drawn_only_when_none_is_given() -> None:
    """A given seed is kept, zero included; a missing one comes from the injected names."""
    service = ScriptedService()
    app = application(service)
    create(app, seed=0)
    create(app, seed=None)
    assert [kept.request.seed for kept in service.kept.values()] == [0, SEED]


def test_the_restart_policy_defaults_by_kind_of_work() -> None:
    """Background and foreground work take their own setting."""
    service = ScriptedService()
    app = application(service, on_restart_background="retry", on_restart_foreground="resume")
    create(app)
    create(app, background=True)
    assert [kept.request.on_restart for kept in service.kept.values()] == [OnRestart.RESUME, OnRestart.RETRY]


def test_a_foreground_run_that_fails_is_a_200() -> None:
    """An error status would make the official client create a second response."""
    service = ScriptedService()
    service.hold = True

    async def run() -> httpx.Response:
        async with client(application(service)) as http:
            asked = asyncio.create_task(post(http))
            await until(lambda: FIRST in service.kept and service.kept[FIRST].attendants == 1)
            service.fail(FIRST)
            return await asked

    answer = asyncio.run(run())
    assert answer.status_code == 200
    assert answer.json()["status"] == "failed"
    assert answer.json()["error"]["code"] == "server_error"


def test_a_foreground_caller_who_leaves_no_longer_attends() -> None:
    """The wait ends with the connection, and nothing is sent."""
    service = ScriptedService()
    service.hold = True

    async def run() -> Wire:
        wire = Wire(application(service), "POST", "/v1/responses", b'{"model":"%s","input":"x"}' % MODEL.encode())
        running = asyncio.create_task(wire.run())
        await until(lambda: FIRST in service.kept and service.kept[FIRST].attendants == 1)
        wire.leave()
        await asyncio.wait_for(running, 30)
        return wire

    wire = asyncio.run(run())
    assert (service.kept[FIRST].attendants, service.kept[FIRST].left) == (0, 1)
    assert wire.rest() == []


def test_a_foreground_wait_that_a_drain_ends_is_a_503_that_is_not_repeated() -> None:
    """The caller learns that the response is kept, and the official client is told not to create another."""
    service = ScriptedService()
    service.hold = True

    async def run() -> httpx.Response:
        async with client(application(service)) as http:
            asked = asyncio.create_task(post(http))
            await until(lambda: FIRST in service.kept and service.kept[FIRST].attendants == 1)
            service.drain()
            return await asked

    answer = asyncio.run(run())
    assert answer.status_code == 503
    error = error_of(answer)
    assert error["code"] == "service_unavailable"
    assert f"resp_{FIRST}" in error["message"]
    assert answer.headers["x-should-retry"] == "false"
    assert "retry-after" not in answer.headers


def test_a_stored_response_is_read() -> None:
    """GET gives what the create gave."""
    app = application()
    created = create(app).json()
    answer = call(app, "GET", f"/v1/responses/{created['id']}")
    assert answer.status_code == 200
    assert answer.json() == created


VERBS = [("GET", ""), ("GET", "?stream=true"), ("DELETE", ""), ("POST", "/cancel")]


@pytest.mark.parametrize("name", ["resp_x", "resp_", "task_x", FIRST, "resp_" + "x" * 65, "resp_a.b", "resp_%00"])
def test_what_is_no_response_is_not_found(name: str) -> None:
    """Unknown and impossible ids are 404 alike, on every verb."""
    app = application()
    create(app)
    for label, answer in calls(app, [(method, f"/v1/responses/{name}{suffix}") for method, suffix in VERBS]):
        assert answer.status_code == 404, label
        assert error_of(answer)["code"] == "not_found"


@pytest.mark.parametrize(("method", "suffix"), VERBS)
def test_a_foreign_response_is_answered_like_an_unknown_one(method: str, suffix: str) -> None:
    """Another client's id cannot be told from one that never was, nor from one that cannot be."""
    app = application()
    create(app, background=True)
    names = [f"resp_{FIRST}", f"resp_{'7' * 26}", "x"]
    paths = [(method, f"/v1/responses/{name}{suffix}") for name in names]
    foreign, unknown, impossible = (answer for _, answer in calls(app, paths, who=OTHER_TOKEN))
    assert foreign.status_code == unknown.status_code == impossible.status_code == 404
    assert error_of(foreign) == error_of(unknown) == error_of(impossible)


def test_cancel_answers_with_the_object_and_may_be_repeated() -> None:
    """A background response is cancelled once; later calls show the same end."""
    service = ScriptedService()
    service.hold = True
    app = application(service)
    create(app, background=True)
    first = call(app, "POST", f"/v1/responses/resp_{FIRST}/cancel")
    again = call(app, "POST", f"/v1/responses/resp_{FIRST}/cancel")
    assert (first.status_code, first.json()["status"]) == (200, "cancelled")
    assert again.json() == first.json()


def test_a_foreground_response_cannot_be_cancelled_here() -> None:
    """The refusal of the service reaches the caller as a 400."""
    app = application()
    create(app)
    answer = call(app, "POST", f"/v1/responses/resp_{FIRST}/cancel")
    assert answer.status_code == 400
    assert error_of(answer)["code"] == "not_cancellable"


def test_delete_removes_and_says_so() -> None:
    """The body names the response; a second delete finds nothing."""
    app = application()
    create(app)
    answer = call(app, "DELETE", f"/v1/responses/resp_{FIRST}")
    assert (answer.status_code, answer.json()) == (
        200,
        {"id": f"resp_{FIRST}", "object": "response", "deleted": True},
    )
    assert call(app, "DELETE", f"/v1/responses/resp_{FIRST}").status_code == 404


@pytest.mark.parametrize(
    ("query", "param", "code"),
    [
        ("stream=true&starting_after=-1", "starting_after", "invalid_value"),
        ("stream=true&starting_after=x", "starting_after", "invalid_value"),
        ("stream=true&starting_after=", "starting_after", "invalid_value"),
        ("stream=true&starting_after=1.0", "starting_after", "invalid_value"),
        ("stream=true&starting_after=9999999999999999999", "starting_after", "invalid_value"),
        ("stream=true&starting_after=1&starting_after=2", "starting_after", "invalid_value"),
        ("starting_after=1", "starting_after", "invalid_value"),
        ("stream=false&starting_after=0", "starting_after", "invalid_value"),
        ("stream=yes", "stream", "invalid_value"),
        ("stream=", "stream", "invalid_value"),
        ("include=everything", "include", "invalid_value"),
        ("include[]=message.output_text.logprobs&include[]=Everything", "include", "invalid_value"),
        ("include_obfuscation=yes", "include_obfuscation", "invalid_value"),
        ("stream=true&include_obfuscation=true", "include_obfuscation", "unsupported_parameter"),
        ("limit=5", "limit", "unknown_parameter"),
        ("Stream=true", "Stream", "unknown_parameter"),
    ],
)
def test_a_bad_query_is_refused_by_name(query: str, param: str, code: str) -> None:
    """Each parameter is known, single and of its type, or the call is a 400."""
    app = application()
    create(app)
    answer = call(app, "GET", f"/v1/responses/resp_{FIRST}?{query}")
    assert answer.status_code == 400
    error = error_of(answer)
    assert (error["param"], error["code"]) == (param, code)


@pytest.mark.parametrize(
    "query",
    [
        "stream=false",
        "include=",
        "include_obfuscation=false",
        "include_obfuscation=true",
        "include=reasoning.encrypted_content",
        "include[]=message.output_text.logprobs&include[]=file_search_call.results&include=web_search_call.results",
        "",
    ],
)
def test_a_query_that_asks_for_the_default_is_accepted(query: str) -> None:
    """Nothing is refused that would change nothing."""
    app = application()
    create(app)
    assert call(app, "GET", f"/v1/responses/resp_{FIRST}?{query}").status_code == 200


@pytest.mark.parametrize(
    ("method", "path"), [("POST", ""), ("POST", f"/resp_{FIRST}/cancel"), ("DELETE", f"/resp_{FIRST}")]
)
def test_verbs_that_take_no_query_refuse_one(method: str, path: str) -> None:
    """A parameter that would be ignored is refused, and nothing happens."""
    service = ScriptedService()
    app = application(service)
    create(app, background=True)
    answer = call(app, method, f"/v1/responses{path}?dry_run=true", json=dict(HELLO))
    assert answer.status_code == 400
    assert error_of(answer)["code"] == "unknown_parameter"
    assert list(service.kept) == [FIRST]


@pytest.mark.parametrize("method", ["GET", "POST", "DELETE"])
def test_an_idempotency_key_is_refused_until_it_is_served(method: str) -> None:
    """A key that would be ignored is a 400 that names it, and nothing is stored."""
    service = ScriptedService()
    app = application(service)
    path = "/v1/responses" if method == "POST" else f"/v1/responses/resp_{FIRST}"
    answer = call(app, method, path, json=dict(HELLO), headers={"Idempotency-Key": "k"})
    assert answer.status_code == 400
    error = error_of(answer)
    assert (error["param"], error["code"]) == ("Idempotency-Key", "unsupported_parameter")
    assert not service.kept


@pytest.mark.parametrize(
    ("refusal", "status", "code", "retry_after"),
    [
        (QueueFull("Full."), 429, "queue_full", "5"),
        (Unavailable("Draining."), 503, "service_unavailable", "5"),
        (ModelUnavailable("Gone."), 503, "model_unavailable", "5"),
        (StorageFull("Full."), 503, "storage_full", "5"),
        (StorageFailed("Bad."), 503, "storage_failed", "5"),
    ],
)
@pytest.mark.parametrize("fields", [{}, {"background": True}, {"stream": True}])
def test_a_refused_submit_is_an_error_in_every_form_of_delivery(
    refusal: Exception, status: int, code: str, retry_after: str, fields: dict[str, bool]
) -> None:
    """Also a stream begins only once the work is accepted, so its refusal still has a status."""
    service = ScriptedService()
    service.refusal = refusal
    answer = create(application(service), **fields)
    assert answer.status_code == status
    assert error_of(answer)["code"] == code
    assert answer.headers["retry-after"] == retry_after


def test_an_unknown_model_is_a_404_that_names_the_field() -> None:
    """Nothing is stored for it."""
    service = ScriptedService()
    answer = create(application(service), model="No-Such-Model")
    assert answer.status_code == 404
    error = error_of(answer)
    assert (error["code"], error["param"]) == ("model_not_found", "model")
    assert not service.kept


def test_a_prompt_over_the_window_is_a_400() -> None:
    """The refusal of the service passes unchanged."""
    answer = create(application(), input="x" * 5000)
    assert answer.status_code == 400
    error = error_of(answer)
    assert (error["code"], error["param"]) == ("context_length_exceeded", "input")


def test_everything_that_was_returned_is_accepted_back() -> None:
    """Output items come back as input: complete, without optional members, or with these as null."""
    service = ScriptedService()
    app = application(service)
    item = create(app).json()["output"][0]
    bare = {name: value for name, value in item.items() if name not in ("id", "status")}
    nulls = {**item, "id": None, "status": None, "phase": None}
    question = {"role": "user", "content": "And now?"}
    for replayed in (item, bare, nulls):
        answer = create(app, input=[replayed, question])
        assert answer.status_code == 200
    prompts = [kept.request.prompt(kept.items) for kept in list(service.kept.values())[1:]]
    said = {tuple((m.role, m.content) for m in prompt.messages) for prompt in prompts}
    assert said == {(("assistant", "".join(TEXTS)), ("user", "And now?"))}
