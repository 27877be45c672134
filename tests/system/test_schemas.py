"""What a real server makes of schemas that it cannot hold an answer to, and where it says that it found them."""

import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.system.server import Server, until

HELLO = {"role": "user", "content": "Hello"}
ODD = {
    "type": "object",
    "properties": {
        "x": {"enum": [1, 2], "not": {"const": 3}},
        "m": {"type": "object", "propertyNames": {"type": "string"}, "maxProperties": 0},
    },
    "required": ["x", "m"],
    "additionalProperties": False,
}
BROKEN = {"type": "object", "properties": {"x": {"type": "string", "pattern": "("}}}
SEARCH = {"type": "web_search"}
CUSTOM = {"type": "custom", "custom": {"name": "c"}}


def function(parameters: dict[str, Any], *, strict: bool | None = None, chat: bool = False) -> dict[str, Any]:
    """A tool as one of the two interfaces has it."""
    inner = {"name": "note", "parameters": parameters, **({} if strict is None else {"strict": strict})}
    return {"type": "function", "function": inner} if chat else {"type": "function", **inner}


def post(server: Server, path: str, **body: Any) -> dict[str, Any]:
    """What a server answers to a request for its model."""
    answer = server.http.post(f"/v1/{path}", json={"model": server.model_name, **body})
    found = answer.json()
    assert answer.status_code == (400 if found.get("error") else 200), found
    return found


def schema_format(schema: dict[str, Any], *, strict: bool = False) -> dict[str, Any]:
    """The members of a format of JSON."""
    return {"name": "n", "schema": schema, "strict": strict}


def test_a_function_that_is_not_strict_is_held_to_what_can_be(tiny_server: Server) -> None:
    """And what went is named by the caller's own paths, with the other tools counted."""
    asked: dict[str, Any] = {"tool_choice": "required", "parallel_tool_calls": False}
    for strict in (None, False):
        found = post(
            tiny_server, "responses", input=[HELLO], tools=[SEARCH, function(ODD, strict=strict)], seed=1, **asked
        )
        place = "tools[1].parameters.properties"
        assert found["perdure"]["ignored"] == ["tools[0]", f"{place}.x.not", f"{place}.m.propertyNames"]
        (call,) = found["output"]
        arguments = json.loads(call["arguments"])
        assert (arguments["x"] in (1, 2), arguments["m"]) == (True, {})
        assert found["tools"][0]["parameters"] == ODD
    found = post(tiny_server, "chat/completions", messages=[HELLO], tools=[CUSTOM, function(ODD, chat=True)], **asked)
    place = "tools[1].function.parameters.properties"
    assert found["perdure"]["ignored"] == ["tools[0]", f"{place}.x.not", f"{place}.m.propertyNames"]
    assert found["choices"][0]["finish_reason"] == "tool_calls"


def test_a_format_that_is_not_strict_too(tiny_server: Server) -> None:
    """In both interfaces."""
    written = {"type": "json_schema", **schema_format(ODD)}
    found = post(tiny_server, "responses", input=[HELLO], text={"format": written})
    place = "text.format.schema.properties"
    assert found["perdure"]["ignored"] == [f"{place}.x.not", f"{place}.m.propertyNames"]
    found = post(
        tiny_server,
        "chat/completions",
        messages=[HELLO],
        response_format={"type": "json_schema", "json_schema": schema_format(ODD)},
    )
    place = "response_format.json_schema.schema.properties"
    assert found["perdure"]["ignored"] == [f"{place}.x.not", f"{place}.m.propertyNames"]


@pytest.mark.parametrize(
    ("path", "fields", "param"),
    [
        ("responses", {"tools": [SEARCH, function(ODD, strict=True)]}, "tools[1].parameters.properties.x.not"),
        ("responses/input_tokens", {"tools": [SEARCH, function(BROKEN)]}, "tools[1].parameters.properties.x.pattern"),
        ("responses", {"tools": [SEARCH, function({"type": "string"})]}, "tools[1].parameters.type"),
        (
            "responses",
            {"text": {"format": {"type": "json_schema", **schema_format(ODD, strict=True)}}},
            "text.format.schema.properties.x.not",
        ),
        (
            "chat/completions",
            {"tools": [CUSTOM, function(ODD, strict=True, chat=True)]},
            "tools[1].function.parameters.properties.x.not",
        ),
        (
            "chat/completions",
            {"response_format": {"type": "json_schema", "json_schema": schema_format(BROKEN)}},
            "response_format.json_schema.schema.properties.x.pattern",
        ),
    ],
)
def test_a_refusal_points_into_the_request_as_it_was_sent(
    tiny_server: Server, path: str, fields: dict[str, Any], param: str
) -> None:
    """Strict schemas are held to or refused; what is no schema is refused in any case."""
    given = "messages" if path.startswith("chat") else "input"
    assert post(tiny_server, path, **{given: [HELLO]}, **fields)["error"]["param"] == param


def test_a_schema_is_not_refused_for_a_trial_that_somebody_ended(tiny_server: Server) -> None:
    """The caller is told to try again, and then it is taken. It takes most of a second to try."""
    slow = {"properties": {"n": {"type": "integer", "multipleOf": 30_011}}}
    asked = {"model": tiny_server.model_name, "input": [HELLO], "tools": [function(slow)], "max_output_tokens": 1}
    tokenizer = tiny_server.named_children()["tokenizer_child"]
    with ThreadPoolExecutor(1) as pool:
        answering = pool.submit(tiny_server.http.post, "/v1/responses", json=asked)
        until(lambda: next(iter(tokenizer.children()), None), "a trial").kill()
        refused = answering.result()
    assert (refused.status_code, refused.json()["error"]["code"]) == (503, "model_unavailable")
    assert int(refused.headers["retry-after"]) > 0
    assert "from outside (Killed); try again" in refused.json()["error"]["message"]
    assert tiny_server.http.post("/v1/responses", json=asked).status_code == 200


@pytest.mark.proves("F-09", "I-08")
def test_a_conversation_far_over_the_window_is_shortened_if_asked(tiny_server: Server) -> None:
    """5 MB in many turns: without `auto` refused before the work, with that as the remedy; with it, answered."""
    turns = [{"role": ("user", "assistant")[n % 2], "content": f"{n} " + "word " * 250} for n in range(3_999)]
    long = [*turns, {"role": "user", "content": "And now?"}]
    refusal = post(tiny_server, "responses", input=long)["error"]
    assert (refusal["code"], refusal["param"]) == ("context_length_exceeded", "input")
    assert "bytes long" in refusal["message"]
    assert refusal["message"].endswith("Shorten the input, or send `truncation: auto`.")
    found = post(tiny_server, "responses", input=long, truncation="auto", max_output_tokens=5)
    gone = found["perdure"]["truncated"]
    assert gone == [f"msg_{found['id'].removeprefix('resp_')}_in{n}" for n in range(len(gone))]
    assert len(turns) - 10 < len(gone) <= len(turns)
    assert 0 < found["usage"]["output_tokens"] <= 5
    chat = post(tiny_server, "chat/completions", messages=long, truncation="auto", max_tokens=5)
    assert len(chat["perdure"]["truncated"]) == len(gone)
    many = post(tiny_server, "responses", input=[{"role": "user", "content": "a"}] * 5_000)["error"]["message"]
    assert "at least" in many
    assert many.endswith("Shorten the input, or send `truncation: auto`.")
    huge = [turns[0], {"role": "user", "content": "a" * 4_000_000}]
    alone = post(tiny_server, "responses", input=huge, truncation="auto")["error"]["message"]
    assert "without its 1 oldest items is 4000000 bytes long" in alone
    assert alone.endswith("Shorten what is left.")
