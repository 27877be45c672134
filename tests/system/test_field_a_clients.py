"""What clients of the field send and need back, over a real socket (A-06, A-08, A-11, A-12, A-25)."""

import json
from typing import Any

import jsonschema
import pytest

from tests.system.server import Server, check_log, deltas_of, text_of

SCHEMA = {
    "type": "object",
    "properties": {"colour": {"enum": ["red", "green"]}, "ripe": {"type": "boolean"}},
    "required": ["colour", "ripe"],
    "additionalProperties": False,
}
NOTE = {"type": "function", "name": "note", "description": "Notes a fruit.", "parameters": SCHEMA, "strict": True}
SHAPE = {"type": "json_schema", "name": "fruit", "schema": SCHEMA, "strict": True}
CODING_CLIENT: dict[str, Any] = {
    "instructions": "You are a coding agent. " * 60,  # the window has little room left, and no limit is asked for
    "input": [
        {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "Be brief."}]},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "List the files."}]},
    ],
    "tools": [{"type": "function", "name": "shell", "description": "Run.", "strict": False, "parameters": SCHEMA}],
    "tool_choice": "auto",
    "parallel_tool_calls": True,
    "reasoning": {"effort": "medium", "summary": "auto"},
    "store": False,
    "stream": True,
    "include": ["reasoning.encrypted_content"],
    "prompt_cache_key": "0199-session",
    "client_metadata": {"session": "0199"},
}
OPTIONAL = {"message": ("id", "status", "type"), "function_call": ("id", "status")}


def ask(server: Server, **fields: Any) -> dict[str, Any]:
    """A foreground response."""
    body = {"model": server.model_name, "input": "A fruit, please.", "seed": 5, **fields}
    answer = server.http.post("/v1/responses", json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()


@pytest.mark.proves("A-25")
def test_a_coding_client_is_served(tiny_server: Server) -> None:
    """Its twelve fields and no more: it runs, shows what has a place, names what has no effect; and the list of
    models has the standard shape."""
    body = {"model": tiny_server.model_name, **CODING_CLIENT}
    assert len(body) == 12
    with tiny_server.http.stream("POST", "/v1/responses", json=body) as answer:
        assert answer.status_code == 200
        events = check_log(answer.read().decode().rstrip("\n").split("\n\n"))
    response = events[-1]["response"]
    assert response["status"] in ("completed", "incomplete")
    assert response["usage"]["output_tokens"] > 0
    for field in ("instructions", "tools", "tool_choice", "parallel_tool_calls", "reasoning", "prompt_cache_key"):
        assert response[field] == body[field], field
    ignored = ["client_metadata", "include[0]", "reasoning.effort", "reasoning.summary"]
    assert (response["store"], response["perdure"]["ignored"]) == (False, ignored)
    models = tiny_server.get("/v1/models")
    assert models["object"] == "list"
    assert [(each["id"], each["object"]) for each in models["data"]] == [(tiny_server.model_name, "model")]


@pytest.mark.proves("A-12")
@pytest.mark.parametrize("stream", [False, True])
def test_a_schema_is_kept_to(tiny_server: Server, stream: bool) -> None:
    """By a model that writes noise; and the chat interface's name for it is refused with ours."""
    body = {"model": tiny_server.model_name, "input": "A fruit, please.", "stream": stream}
    answer = tiny_server.http.post("/v1/responses", json={**body, "text": {"format": SHAPE}})
    assert answer.status_code == 200, answer.text
    text = text_of(answer.json()) if not stream else deltas_of(check_log(answer.text.rstrip("\n").split("\n\n")))
    jsonschema.validate(json.loads(text), SCHEMA)
    before = tiny_server.get("/v1/responses")
    elsewhere = {"type": "json_schema", "json_schema": {"name": "fruit", "schema": SCHEMA}}
    refused = tiny_server.http.post("/v1/responses", json={**body, "response_format": elsewhere})
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "response_format")
    assert "`text.format`" in refused.json()["error"]["message"]
    assert tiny_server.get("/v1/responses") == before


@pytest.mark.proves("A-06")
def test_a_tool_that_is_not_known_here_costs_only_itself(tiny_server: Server) -> None:
    """The function is called, the others are named; to require one of them is refused."""
    tools = [NOTE, {"type": "web_search"}, {"type": "namespace", "name": "crm", "description": "x", "tools": []}]
    response = ask(tiny_server, tools=tools, tool_choice="required", parallel_tool_calls=False)
    (call,) = response["output"]
    assert (call["type"], call["name"]) == ("function_call", "note")
    assert response["tools"] == [NOTE]
    assert response["perdure"]["ignored"] == ["tools[1]", "tools[2]"]
    body = {"model": tiny_server.model_name, "input": "x", "tools": tools, "tool_choice": {"type": "web_search"}}
    refused = tiny_server.http.post("/v1/responses", json=body)
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "tool_choice")


@pytest.mark.proves("A-08")
@pytest.mark.parametrize("how", ["complete", "missing", "null"])
def test_what_was_answered_can_be_sent_back(tiny_server: Server, how: str) -> None:
    """A call, a text, and one that was cut off: as they came, without what is optional, and with null in its place.
    The model reads the same each time."""
    (call,) = ask(tiny_server, tools=[NOTE], tool_choice="required", parallel_tool_calls=False)["output"]
    (text,) = ask(tiny_server, text={"format": SHAPE})["output"]
    (cut,) = ask(tiny_server, max_output_tokens=9)["output"]
    result = {"type": "function_call_output", "call_id": call["call_id"], "output": "noted"}
    conversation = [call, result, text, cut, {"role": "user", "content": "And another."}]
    whole = ask(tiny_server, input=conversation, max_output_tokens=9)
    emptied = ({**call, "arguments": "{}"}, result, {**text, "content": []}, {**cut, "content": []})
    for place, item in enumerate(emptied):
        less = ask(tiny_server, input=[*conversation[:place], item, *conversation[place + 1 :]], max_output_tokens=1)
        shown = whole["usage"]["input_tokens"] - less["usage"]["input_tokens"]
        assert (shown > 0) == (item != conversation[place]), "the model is not shown what is in it"
    sent = [bare(item, how) if item.get("id") else item for item in conversation]
    again = ask(tiny_server, input=sent, max_output_tokens=9)
    assert again["usage"] == whole["usage"]
    assert text_of(again) == text_of(whole)


def bare(item: dict[str, Any], how: str) -> dict[str, Any]:
    """An item as a client sends it back."""
    left = {name: value for name, value in item.items() if how == "complete" or name not in OPTIONAL[item["type"]]}
    nulls = dict.fromkeys(OPTIONAL[item["type"]]) if how == "null" else {}
    return {**nulls, **left, "odd": {"by": "a client"}}


@pytest.mark.proves("A-11")
@pytest.mark.parametrize("fields", [{"max_output_tokens": 5}, {"text": {"format": SHAPE}}, {"tools": [NOTE]}])
def test_an_answer_is_whole_by_the_published_types(tiny_server: Server, fields: dict[str, Any]) -> None:
    """They are held against it, strictly, as it is read; and the lists that are often missing are there."""
    response = ask(tiny_server, **{"max_output_tokens": 30, **fields})
    for item in response["output"]:
        for part in item.get("content", []):
            assert (part["annotations"], part["logprobs"]) == ([], [])
    assert response["usage"].keys() >= {"input_tokens_details", "output_tokens_details"}
    assert (response["error"], response["object"]) == (None, "response")
