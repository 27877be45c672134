"""Where the errors of a chat request point: at the first value at fault, by the names of this interface."""

from typing import Any

import pytest

from perdure.api.chat_body import renamed
from perdure.domain.errors import InvalidRequest

from .test_chat_body import TOOL, refused

ITEMS = ["messages[0]", "messages[2].tool_calls[0]", "messages[3]"]
"""The places of three items."""


def allowed(**given: Any) -> dict[str, Any]:
    """A choice among some tools."""
    return {"type": "allowed_tools", "allowed_tools": given}


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"tool_choice": {"type": "function"}}, "tool_choice.function"),
        ({"tool_choice": {"type": "function", "name": "x"}}, "tool_choice.function"),
        ({"tool_choice": {"type": "function", "function": {}}}, "tool_choice.function.name"),
        ({"tool_choice": {"type": "function", "function": {"name": "y"}}}, "tool_choice"),
        ({"tool_choice": {"type": "allowed_tools"}}, "tool_choice.allowed_tools"),
        ({"tool_choice": allowed(mode="auto", tools=[])}, "tool_choice.allowed_tools.tools"),
        ({"tool_choice": allowed(mode="x", tools=[TOOL])}, "tool_choice.allowed_tools.mode"),
        ({"tool_choice": allowed(tools=[{"type": "custom"}])}, "tool_choice.allowed_tools.tools[0].type"),
        ({"tool_choice": "any"}, "tool_choice"),
        ({"tool_choice": 5}, "tool_choice"),
        ({"tool_choice": "required", "tools": []}, "tool_choice"),
        ({"tools": [{"type": "function", "name": "x"}]}, "tools[0].function"),
        ({"tools": [{"type": "function", "function": {}}]}, "tools[0].function.name"),
        ({"tools": [TOOL, TOOL]}, "tools[1].function.name"),
        (
            {"tools": [{"type": "function", "function": {"name": "x", "parameters": 5}}]},
            "tools[0].function.parameters",
        ),
        ({"response_format": {"type": "json_schema"}}, "response_format.json_schema"),
        ({"response_format": {"type": "json_schema", "json_schema": {}}}, "response_format.json_schema.name"),
        ({"response_format": {"type": "xml"}}, "response_format.type"),
        ({"response_format": "json_object"}, "response_format"),
        ({"n": 2}, "n"),
        ({"n": True}, "n"),
        ({"logit_bias": {"5": 1}}, "logit_bias"),
        ({"reasoning_effort": "huge"}, "reasoning_effort"),
        ({"verbosity": 5}, "verbosity"),
        ({"seed": -1}, "seed"),
        ({"metadata": {"a": 5}}, "metadata.a"),
        ({"temperature": 2.5}, "temperature"),
        ({"store": "yes"}, "store"),
        ({"on_restart": "sometimes"}, "on_restart"),
    ],
)
def test_an_error_points_at_its_place(fields: dict[str, Any], param: str) -> None:
    """By the names of this interface."""
    error = refused(**{"tools": [TOOL], **fields})
    assert error.param == param
    assert f"`{param}`" in error.message


@pytest.mark.parametrize(
    ("message", "param", "told", "at"),
    [
        ("`input` is empty.", "input", "`messages` is empty.", "messages"),
        ("The input is long.", "input", "The input is long.", "messages"),
        (
            "`text.format.schema` is odd.",
            "text.format.schema",
            "`response_format.json_schema.schema` is odd.",
            "response_format.json_schema.schema",
        ),
        ("`tools[3].function.name`", "tools[3].function.name", "`tools[3].function.name`", "tools[3].function.name"),
        (
            "Odd.",
            "tools[0].function.parameters.properties.input",
            "Odd.",
            "tools[0].function.parameters.properties.input",
        ),
        ("`input[1]` is odd.", "input[1]", "`messages[2].tool_calls[0]` is odd.", "messages[2].tool_calls[0]"),
        ("It (input[0]) is odd.", "input[0].content[1]", "It (messages[0]) is odd.", "messages[0].content[1]"),
        ("Odd.", "input[1].call_id", "Odd.", "messages[2].tool_calls[0].id"),
        ("Odd.", "input[1].arguments", "Odd.", "messages[2].tool_calls[0].function.arguments"),
        ("Odd.", "input[2].call_id", "Odd.", "messages[3].tool_call_id"),
        ("Odd.", "input[2].output", "Odd.", "messages[3].content"),
        ("He says input[9] is odd.", "input", "He says input[9] is odd.", "messages"),
        ("`model` is odd.", None, "`model` is odd.", None),
    ],
)
def test_what_the_service_refuses_is_told_in_the_names_of_this_interface(
    message: str, param: str | None, told: str, at: str | None
) -> None:
    """Whoever sent `messages` cannot know what `input` is."""
    error = renamed(InvalidRequest(message, param=param, code="odd"), ITEMS)
    assert (error.message, error.param, error.error_code) == (told, at, "odd")
