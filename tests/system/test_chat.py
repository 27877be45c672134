"""Chat completions of a real server: the same work as a response, kept, shown and stopped like one."""

import json
from typing import Any

import httpx
import pytest

from tests.system.server import Server, data_of, split_frames, until
from tests.system.test_foreground import GRACE_SECONDS, ends, known, newest, slots_used

PATH = "/v1/chat/completions"
SCHEMA = {
    "type": "object",
    "properties": {"colour": {"enum": ["red", "green"]}, "ripe": {"type": "boolean"}},
    "required": ["colour", "ripe"],
    "additionalProperties": False,
}
FUNCTION: dict[str, Any] = {"name": "note", "description": "Notes a fruit.", "parameters": SCHEMA, "strict": True}
TOOL = {"type": "function", "function": FUNCTION}
CALLED = {"name": "note", "arguments": '{"colour":"red","ripe":true}'}
CALL = {"id": "c1", "type": "function", "function": CALLED}
HELLO = {"role": "user", "content": "A fruit, please."}
ROUND = [{"role": "system", "content": "Be brief."}, HELLO, {"role": "assistant", "tool_calls": [CALL]},
         {"role": "tool", "tool_call_id": "c1", "content": "noted"}]  # fmt: skip
ITEMS = [ROUND[0], HELLO, {"type": "function_call", "call_id": "c1", **CALLED},
         {"type": "function_call_output", "call_id": "c1", "output": "noted"}]  # fmt: skip

SAME: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "a text": ({"messages": [HELLO], "max_tokens": 40}, {"input": [HELLO], "max_output_tokens": 40}),
    "penalties": (
        {"messages": [HELLO], "max_tokens": 40, "presence_penalty": 1.5, "frequency_penalty": 0.5},
        {"input": [HELLO], "max_output_tokens": 40, "presence_penalty": 1.5, "frequency_penalty": 0.5},
    ),
    "a schema": (
        {
            "messages": [HELLO],
            "response_format": {"type": "json_schema", "json_schema": {"name": "fruit", "schema": SCHEMA}},
        },
        {"input": [HELLO], "text": {"format": {"type": "json_schema", "name": "fruit", "schema": SCHEMA}}},
    ),
    "a call": (
        {"messages": [HELLO], "tools": [TOOL], "tool_choice": "required", "parallel_tool_calls": False},
        {
            "input": [HELLO],
            "tools": [{"type": "function", **FUNCTION}],
            "tool_choice": "required",
            "parallel_tool_calls": False,
        },
    ),
    "a result of a call": (
        {"messages": ROUND, "max_tokens": 20, "tools": [TOOL], "tool_choice": "none"},
        {
            "input": ITEMS,
            "max_output_tokens": 20,
            "tools": [{"type": "function", **FUNCTION}],
            "tool_choice": "none",
        },
    ),
}


def post(server: Server, path: str, **fields: Any) -> httpx.Response:
    """A request that is accepted."""
    answer = server.http.post(path, json={"model": server.model_name, "seed": 11, **fields})
    assert answer.status_code == 200, answer.text
    return answer


def said_by_response(response: dict[str, Any]) -> tuple[str, list[tuple[str, str]]]:
    """Text and calls."""
    parts = [part for item in response["output"] if item["type"] == "message" for part in item["content"]]
    calls = [item for item in response["output"] if item["type"] == "function_call"]
    return "".join(part["text"] for part in parts), [(call["name"], call["arguments"]) for call in calls]


def said_by_chat(message: dict[str, Any]) -> tuple[str, list[tuple[str, str]]]:
    """Text and calls."""
    calls = [call["function"] for call in message.get("tool_calls", [])]
    return message["content"] or "", [(call["name"], call["arguments"]) for call in calls]


def folded(chunks: list[dict[str, Any]]) -> dict[str, Any]:
    """The message that chunks add up to."""
    message: dict[str, Any] = {"content": "", "tool_calls": []}
    for delta in (chunk["choices"][0]["delta"] for chunk in chunks if chunk["choices"]):
        message["content"] += delta.get("content") or ""
        for piece in delta.get("tool_calls", []):
            if "id" in piece:
                message["tool_calls"].append({"function": {**piece["function"], "arguments": ""}})
            message["tool_calls"][piece["index"]]["function"]["arguments"] += piece["function"]["arguments"]
    return message


@pytest.mark.parametrize("what", SAME)
def test_both_interfaces_say_the_same(tiny_server: Server, what: str) -> None:
    """With the same seed: text, calls, counts; at once and in pieces."""
    asked, same = SAME[what]
    response = post(tiny_server, "/v1/responses", **same).json()
    completion = post(tiny_server, PATH, **asked).json()
    answer = post(tiny_server, PATH, **asked, stream=True, stream_options={"include_usage": True})
    *frames, done = split_frames(answer)
    chunks = [data_of(frame) for frame in frames]
    assert done == "data: [DONE]"
    expected = said_by_response(response)
    assert any(expected)
    assert said_by_chat(completion["choices"][0]["message"]) == said_by_chat(folded(chunks)) == expected
    counts = [response["usage"][name] for name in ("input_tokens", "output_tokens")]
    for used in (completion["usage"], chunks[-1]["usage"]):
        assert [used[name] for name in ("prompt_tokens", "completion_tokens")] == counts


def test_a_stop_string_ends_the_text_and_is_not_shown(tiny_server: Server) -> None:
    """The text up to it, and a reason that tells it from a limit."""
    asked: dict[str, Any] = {"messages": [HELLO], "max_tokens": 60}
    whole = post(tiny_server, PATH, **asked).json()["choices"][0]
    assert whole["finish_reason"] == "length"
    text = whole["message"]["content"]
    stop = next(text[place : place + 2] for place in range(10, len(text)) if text[place : place + 2].isascii())
    cut = post(tiny_server, PATH, **asked, stop=[stop]).json()["choices"][0]
    assert (cut["message"]["content"], cut["finish_reason"]) == (text[: text.index(stop)], "stop")


def test_logprobs(tiny_server: Server) -> None:
    """An entry for each token, with as many likely ones as were asked for."""
    choice = post(tiny_server, PATH, messages=[HELLO], max_tokens=5, logprobs=True, top_logprobs=3).json()["choices"][
        0
    ]
    told = choice["logprobs"]["content"]
    assert 0 < len(told) <= 5
    assert all(len(each["top_logprobs"]) == 3 and each["logprob"] <= 0 for each in told)


def test_it_is_a_task_and_can_be_stored(tiny_server: Server) -> None:
    """With `store` it is a response to be read, and gone on from, in the other interface."""
    before = known(tiny_server)
    answer = post(tiny_server, PATH, messages=[HELLO], max_tokens=3, store=True, metadata={"a": "b"})
    completion = answer.json()
    task = newest(tiny_server, before)
    assert (task["background"], task["on_restart"], task["status"]) == (False, "fail", "incomplete")
    name = task["response_id"]
    assert completion["id"] == name.replace("resp_", "chatcmpl-")
    response = tiny_server.get(answer.headers["location"])
    assert (response["id"], response["metadata"], response["store"]) == (name, {"a": "b"}, True)
    assert said_by_response(response)[0] == completion["choices"][0]["message"]["content"]
    child = post(tiny_server, "/v1/responses", previous_response_id=name, input="More.", max_output_tokens=1).json()
    assert child["usage"]["input_tokens"] > response["usage"]["input_tokens"]


@pytest.mark.proves("B-15")
def test_it_stops_when_its_caller_leaves(tiny_server: Server) -> None:
    """In the middle of a stream: cancelled with what it had, and the slot is free."""
    before = known(tiny_server)
    body = {"model": tiny_server.model_name, "messages": [HELLO], "max_tokens": 1900, "stream": True}
    with tiny_server.caller() as caller, caller.stream("POST", PATH, json=body) as answer:
        frames = split_frames(answer)
        while not json.loads(next(frames).removeprefix("data: "))["choices"][0]["delta"].get("content"):
            pass
    assert ends(tiny_server, newest(tiny_server, before)) == "cancelled"
    until(lambda: True if slots_used(tiny_server) == 0 else None, "the slot", GRACE_SECONDS)


def test_a_schema_that_cannot_be_kept_to_is_refused_by_its_place(tiny_server: Server) -> None:
    """In the names of this interface, and nothing is kept."""
    before = known(tiny_server)
    odd = {"type": "object", "properties": {"a": {"$ref": "#/nowhere"}}}
    wanted = {"type": "json_schema", "json_schema": {"name": "odd", "schema": odd}}
    body = {"model": tiny_server.model_name, "messages": [HELLO], "response_format": wanted}
    answer = tiny_server.http.post(PATH, json=body)
    assert answer.status_code == 400, answer.text
    assert answer.json()["error"]["param"].startswith("response_format.json_schema.schema")
    assert known(tiny_server) == before
