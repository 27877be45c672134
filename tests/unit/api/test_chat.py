"""Chat completions over HTTP: what a caller gets, when work ends well and when it does not."""

import asyncio
import json
from typing import Any

import httpx
import pytest
from openai.types.chat import ChatCompletion

from perdure.domain.errors import InvalidRequest
from perdure.domain.principal import Scope

from .harness import FIRST, Wire, application, call, error_of, left_by_its_caller, until
from .scripted import MODEL, NOW, TEXTS, ScriptedService
from .test_repeating import Caller

PATH = "/v1/chat/completions"
HELLO: dict[str, Any] = {"model": MODEL, "messages": [{"role": "user", "content": "Say hello."}]}
STREAMED = json.dumps({**HELLO, "stream": True}).encode()


def chat(service: ScriptedService, **fields: Any) -> httpx.Response:
    """One request over a script."""
    return call(application(service), "POST", PATH, json={**HELLO, **fields})


def data(text: str) -> list[str]:
    """What the frames of a stream hold."""
    return [frame.removeprefix("data: ") for frame in text.split("\n\n") if frame]


def test_a_completion() -> None:
    """Every key that the client's type declares as needed, the text, and where the work itself can be read."""
    answer = chat(ScriptedService(), metadata={"a": "b"}, top_k=3)
    assert answer.status_code == 200
    assert answer.headers["location"] == f"/v1/responses/resp_{FIRST}"
    ChatCompletion.model_validate(answer.json())
    body = answer.json()
    assert body == {
        "id": f"chatcmpl-{FIRST}",
        "object": "chat.completion",
        "created": NOW,
        "model": MODEL,
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": "".join(TEXTS), "refusal": None, "annotations": []},
                "finish_reason": "stop",
                "logprobs": None,
            }
        ],
        "usage": {
            "prompt_tokens": 3,
            "completion_tokens": 3,
            "total_tokens": 6,
            "prompt_tokens_details": {"cached_tokens": 0},
            "completion_tokens_details": {"reasoning_tokens": 0},
        },
        "service_tier": "default",
        "metadata": {"a": "b"},
        "temperature": 0.6,
        "top_p": 0.8,
        "seed": 4711,
        "perdure": {
            "ignored": ["top_k"],
            "truncated": [],
            "resume": "exact",
            "attempt": 1,
            "on_restart": "fail",
        },
    }


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("fields", "used"),
    [
        ({}, (0.6, 0.8)),
        ({"temperature": None, "top_p": None}, (0.6, 0.8)),
        ({"temperature": 1}, (1.0, 0.8)),
        ({"top_p": 1.0}, (0.6, 1.0)),
    ],
)
def test_the_sampling_that_was_used_is_told(fields: dict[str, Any], used: tuple[float, float], stream: bool) -> None:
    """The model's own where the request says nothing, each field for itself; in a stream by the first chunk."""
    answer = chat(ScriptedService(), stream=stream, **fields)
    told = json.loads(data(answer.text)[0]) if stream else answer.json()
    assert (told["temperature"], told["top_p"]) == used


def test_what_is_kept_is_a_response_in_the_foreground() -> None:
    """Not stored unless the caller asks for it, and with the messages as its items."""
    service = ScriptedService()
    chat(service)
    chat(service, store=True)
    first, second = service.kept.values()
    assert (first.request.store, first.request.background, second.request.store) == (False, False, True)
    assert first.items[0]["content"] == [{"type": "input_text", "text": "Say hello."}]


@pytest.mark.parametrize("include_usage", [True, False])
def test_a_stream(include_usage: bool) -> None:
    """The text in pieces, the counts if they were asked for, and the end."""
    answer = chat(ScriptedService(), stream=True, stream_options={"include_usage": include_usage})
    assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert answer.headers["location"] == f"/v1/responses/resp_{FIRST}"
    *sent, done = data(answer.text)
    chunks = [json.loads(each) for each in sent]
    assert done == "[DONE]"
    texts = [chunk["choices"][0]["delta"].get("content") for chunk in chunks if chunk["choices"]]
    assert texts == [None, *TEXTS, None]
    assert [bool(chunk.get("usage")) for chunk in chunks] == [False] * 5 + [True] * include_usage


def test_each_chunk_is_one_write_and_the_first_comes_at_once() -> None:
    """The caller sees text while the rest is still being drawn."""
    service = ScriptedService()
    service.hold = True

    async def run() -> None:
        wire = Wire(application(service), "POST", PATH, STREAMED)
        running = asyncio.create_task(wire.run())
        async with asyncio.timeout(30):
            assert (await wire.take())["type"] == "http.response.start"
            assert b'"role":"assistant"' in (await wire.take())["body"]
            assert TEXTS[0].encode() in (await wire.take())["body"]
            service.finish(FIRST)
            await running
        bodies = [message["body"] for message in wire.rest()]
        assert all(body.startswith(b"data: ") and body.count(b"data: ") == 1 for body in bodies)
        assert bodies[-1] == b"data: [DONE]\n\n"

    asyncio.run(run())


def test_silence_is_filled_with_comments() -> None:
    """As in the stream of a response."""
    service = ScriptedService()
    service.hold, service.keepalive_seconds = True, 0.001

    async def run() -> None:
        wire = Wire(application(service), "POST", PATH, STREAMED)
        running = asyncio.create_task(wire.run())
        async with asyncio.timeout(30):
            while (await wire.take()).get("body") != b": keep-alive\n\n":
                pass
            service.finish(FIRST)
            await running

    asyncio.run(run())


def end(service: ScriptedService, how: str) -> None:
    """End the held response."""
    if how == "fail":
        service.fail(FIRST)
    elif how == "drain":
        service.drain()
    else:
        kept = service.kept[FIRST]
        asyncio.get_running_loop().create_task(service.cancel(kept.principal, FIRST, background_only=False))


ENDS = [
    ("fail", 500, "server_error", "The script says so."),
    ("cancel", 500, "response_cancelled", "cancelled"),
    ("drain", 503, "service_unavailable", f"resp_{FIRST}"),
]


@pytest.mark.proves("B-11")
@pytest.mark.parametrize(("how", "status", "code", "told"), ENDS)
def test_work_that_does_not_end_well_is_an_error_and_is_not_repeated(
    how: str, status: int, code: str, told: str
) -> None:
    """No false completion. The official client, its retries on, makes one response and raises."""
    service = ScriptedService()
    service.hold = True

    async def run() -> Caller:
        async with Caller(application(service)) as client:
            waiting = asyncio.ensure_future(client.chat.completions.create(**HELLO))
            await until(lambda: any(kept.attendants for kept in service.kept.values()))
            end(service, how)
            with pytest.raises(Exception, match=told):
                await waiting
            return client

    (answer,) = asyncio.run(run()).answers
    assert (answer.status_code, error_of(answer)["code"]) == (status, code)
    assert answer.headers["x-should-retry"] == "false"
    assert "retry-after" not in answer.headers
    assert len(service.kept) == 1


@pytest.mark.proves("B-09", "B-11")
@pytest.mark.parametrize(("how", "status", "code", "told"), ENDS)
def test_a_stream_that_does_not_end_well_ends_with_an_error(how: str, status: int, code: str, told: str) -> None:
    """One frame with `error`, and no [DONE]: clients take any other end for a good one."""
    del status
    service = ScriptedService()
    service.hold = True

    async def run() -> list[dict[str, Any]]:
        wire = Wire(application(service), "POST", PATH, STREAMED)
        running = asyncio.create_task(wire.run())
        async with asyncio.timeout(30):
            while TEXTS[0].encode() not in (await wire.take()).get("body", b""):
                pass
            end(service, how)
            await running
        return wire.rest()

    (last,) = asyncio.run(run())
    assert not last["more_body"]
    error = json.loads(last["body"].removeprefix(b"data: "))["error"]
    assert (error["code"], told in error["message"]) == (code, True)


@pytest.mark.proves("B-15")
@pytest.mark.parametrize("body", [STREAMED, STREAMED.replace(b"true", b"false")])
def test_a_caller_who_leaves_attends_no_longer(body: bytes) -> None:
    """The service stops work that nobody attends."""
    kept = left_by_its_caller(PATH, body)
    assert (kept.attendants, kept.left) == (0, 1)


def test_a_prompt_over_the_window_is_refused_in_the_names_of_this_interface() -> None:
    """Nothing is kept."""
    service = ScriptedService()
    error = error_of(chat(service, messages=[{"role": "user", "content": "x" * 5000}]))
    assert (error["code"], error["param"]) == ("context_length_exceeded", "messages")
    service.refusal = InvalidRequest("`text.format.schema` is odd.", param="text.format.schema", code="odd")
    assert error_of(chat(service))["param"] == "response_format.json_schema.schema"
    assert not service.kept


def test_an_unknown_model() -> None:
    """404, as in a create of a response."""
    service = ScriptedService()
    answer = chat(service, model="gpt-4o")
    assert not service.kept
    assert (answer.status_code, error_of(answer)["code"]) == (404, "model_not_found")


def test_a_body_that_is_too_large() -> None:
    """413, and the error arrives."""
    answer = call(
        application(ScriptedService(), body_max_bytes=1024), "POST", PATH, json={**HELLO, "user": "x" * 1024}
    )
    assert (answer.status_code, error_of(answer)["code"]) == (413, "body_too_large")


def test_it_needs_the_scope_of_a_create() -> None:
    """Reading is not enough."""
    service = ScriptedService()
    service.allow("reader", Scope.RESPONSES_READ)
    answer = call(application(service), "POST", PATH, who="reader", json=HELLO)
    assert (answer.status_code, error_of(answer)["code"]) == (403, "missing_scope")
