"""`tools` and `tool_choice`: what is served, what is left out and named, and where errors point."""

from typing import Any

import pytest

from perdure.api import tools
from perdure.api.create_body import CreateBody
from perdure.domain import limits
from perdure.domain.errors import InvalidRequest
from perdure.domain.model import Tool, ToolChoice
from perdure.domain.recovery import OnRestart
from perdure.domain.request import CreateRequest

from .harness import GONE, HELLO, NOT_HERE, RANGE, TYPE, VALUE, application, create

READER = CreateBody(OnRestart.RESUME, OnRestart.FAIL, lambda: 1)
WEATHER: dict[str, Any] = {
    "type": "function",
    "name": "get_weather",
    "description": "The weather of a place.",
    "parameters": {"type": "object", "properties": {"place": {"type": "string"}}},
    "strict": True,
}
TIME = {"type": "function", "name": "time"}


def read(**fields: Any) -> CreateRequest:
    return READER.read({**HELLO, **fields}).request


def refused(**fields: Any) -> InvalidRequest:
    with pytest.raises(InvalidRequest) as error:
        READER.read({**HELLO, **fields})
    return error.value


def function(**members: Any) -> dict[str, Any]:
    return {"type": "function", "name": "f", **members}


def test_a_function_is_read_whole() -> None:
    """With every member, and with none but the name."""
    assert read(tools=[WEATHER, TIME]).tools == (
        Tool("get_weather", "The weather of a place.", WEATHER["parameters"], strict=True),
        Tool("time"),
    )


def test_a_function_is_shown_with_five_keys() -> None:
    """What was not said is null."""
    shown = create(application(), tools=[WEATHER, TIME]).json()["tools"]
    assert shown == [WEATHER, {**TIME, "description": None, "parameters": None, "strict": None}]


@pytest.mark.proves("A-06")
def test_tools_that_cannot_be_served_are_left_out_and_named() -> None:
    """The function runs; known, new and unheard-of types are treated alike."""
    given = [WEATHER, {"type": "web_search"}, {"type": "namespace", "name": "crm", "tools": []}, {"type": "odd"}]
    body = create(application(), tools=given).json()
    assert body["status"] == "completed"
    assert body["tools"] == [WEATHER]
    assert body["perdure"]["ignored"] == ["tools[1]", "tools[2]", "tools[3]"]


@pytest.mark.parametrize(
    ("extra", "ignored"),
    [
        ({"defer_loading": False, "output_schema": None, "allowed_callers": ["direct"]}, ()),
        ({"defer_loading": True}, ("tools[0].defer_loading",)),
        ({"output_schema": {"type": "string"}}, ("tools[0].output_schema",)),
        ({"allowed_callers": ["programmatic"]}, ("tools[0].allowed_callers",)),
        ({"async": True, "odd": 1}, ("tools[0].async", "tools[0].odd")),
        ({"x" * 100: 1}, (f"tools[0].{'x' * limits.UNKNOWN_NAME_MAX_CHARS}",)),
    ],
)
def test_members_of_a_function_without_effect_are_named(extra: dict[str, Any], ignored: tuple[str, ...]) -> None:
    """But for those that ask for what happens anyway."""
    assert read(tools=[function(**extra)]).ignored == ignored


@pytest.mark.parametrize(
    ("tool", "param", "code"),
    [
        ("x", "tools[1]", TYPE),
        (None, "tools[1]", TYPE),
        ({}, "tools[1].type", GONE),
        ({"type": None, "name": "f"}, "tools[1].type", GONE),
        ({"type": 5}, "tools[1].type", TYPE),
        ({"type": "function"}, "tools[1].name", GONE),
        (function(name=None), "tools[1].name", GONE),
        (function(name=5), "tools[1].name", TYPE),
        (function(name=""), "tools[1].name", VALUE),
        (function(name="a b"), "tools[1].name", VALUE),
        (function(name="é"), "tools[1].name", VALUE),
        (function(name="f\n"), "tools[1].name", VALUE),
        (function(name="x" * (limits.FUNCTION_NAME_MAX_CHARS + 1)), "tools[1].name", RANGE),
        (function(name="get_weather"), "tools[1].name", VALUE),
        (function(parameters=[]), "tools[1].parameters", TYPE),
        (function(parameters="{}"), "tools[1].parameters", TYPE),
        (function(parameters={"x": "y" * limits.SCHEMA_MAX_BYTES}), "tools[1].parameters", RANGE),
        (function(strict=1), "tools[1].strict", TYPE),
        (function(description=5), "tools[1].description", TYPE),
        (function(description="x" * (limits.DESCRIPTION_MAX_CHARS + 1)), "tools[1].description", RANGE),
        ({"type": "function", "function": {"name": "f"}}, "tools[1].function", NOT_HERE),
    ],
)
def test_a_function_at_fault_is_refused_where_it_stands(tool: object, param: str, code: str) -> None:
    """The path names the tool and the member."""
    error = refused(tools=[WEATHER, tool])
    assert (error.param, error.error_code) == (param, code)


@pytest.mark.parametrize("name", ["f", "a-b_c.D9", "x" * limits.FUNCTION_NAME_MAX_CHARS])
def test_a_good_name_is_accepted(name: str) -> None:
    """Letters, digits and three signs."""
    assert read(tools=[function(name=name)]).tools[0].name == name


@pytest.mark.parametrize(
    ("given", "shown", "meant"),
    [
        ("auto", "auto", ToolChoice("auto")),
        ("none", "none", ToolChoice("none")),
        ("required", "required", ToolChoice("required")),
        (TIME, TIME, ToolChoice("required", ("time",))),
        (
            {"type": "allowed_tools", "mode": "required", "tools": [WEATHER, TIME, TIME]},
            {
                "type": "allowed_tools",
                "mode": "required",
                "tools": [{"type": "function", "name": "get_weather"}, TIME, TIME],
            },
            ToolChoice("required", ("get_weather", "time")),
        ),
        (
            {"type": "allowed_tools", "tools": [TIME]},
            {"type": "allowed_tools", "mode": "auto", "tools": [TIME]},
            ToolChoice("auto", ("time",)),
        ),
    ],
)
def test_a_choice_is_shown_and_meant(given: object, shown: object, meant: ToolChoice) -> None:
    """What the response shows is the choice with its defaults."""
    request = read(tools=[WEATHER, TIME], tool_choice=given)
    assert (request.tool_choice, request.choice) == (shown, meant)


@pytest.mark.proves("A-06")
@pytest.mark.parametrize(
    ("choice", "code"),
    [
        ({"type": "function", "name": "gone"}, VALUE),
        ({"type": "function", "name": "crm"}, VALUE),
        ({"type": "allowed_tools", "mode": "auto", "tools": [TIME, {"type": "function", "name": "gone"}]}, VALUE),
        ({"type": "allowed_tools", "mode": "auto", "tools": [TIME, {"type": "web_search"}]}, NOT_HERE),
        ({"type": "custom", "name": "crm"}, NOT_HERE),
        ({"type": "mcp", "server_label": "x"}, NOT_HERE),
        ({"type": "web_search_preview"}, NOT_HERE),
        ({"type": "odd"}, NOT_HERE),
        ("function", VALUE),
    ],
)
def test_a_choice_of_what_is_not_there_is_refused(choice: object, code: str) -> None:
    """Missing and left out are alike: it could not be kept to."""
    error = refused(tools=[TIME, {"type": "namespace", "name": "crm"}], tool_choice=choice)
    assert (error.param, error.error_code) == ("tool_choice", code)


@pytest.mark.parametrize("given", [None, [], [{"type": "web_search"}]])
def test_a_call_cannot_be_required_without_functions(given: object) -> None:
    """Not even where other tools were sent."""
    error = refused(tools=given, tool_choice="required")
    assert (error.param, error.error_code) == ("tool_choice", VALUE)
    for mode in ("auto", "none"):
        assert read(tools=given, tool_choice=mode).choice == ToolChoice(mode)


@pytest.mark.parametrize(
    ("choice", "param", "code"),
    [
        ({}, "tool_choice.type", GONE),
        ({"type": 5}, "tool_choice.type", TYPE),
        ({"type": "function"}, "tool_choice.name", GONE),
        ({"type": "function", "name": 5}, "tool_choice.name", TYPE),
        ({"type": "allowed_tools", "mode": "auto"}, "tool_choice.tools", TYPE),
        ({"type": "allowed_tools", "mode": "auto", "tools": []}, "tool_choice.tools", RANGE),
        ({"type": "allowed_tools", "tools": [TIME] * (limits.TOOLS_MAX + 1)}, "tool_choice.tools", RANGE),
        ({"type": "allowed_tools", "mode": "odd", "tools": [TIME]}, "tool_choice.mode", VALUE),
        ({"type": "allowed_tools", "mode": "auto", "tools": ["time"]}, "tool_choice.tools[0]", TYPE),
        ({"type": "allowed_tools", "mode": "auto", "tools": [{}]}, "tool_choice.tools[0].type", GONE),
        (
            {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function"}]},
            "tool_choice.tools[0].name",
            GONE,
        ),
    ],
)
def test_a_malformed_choice_is_refused_where_it_stands(choice: object, param: str, code: str) -> None:
    """The path names the member."""
    error = refused(tools=[TIME], tool_choice=choice)
    assert (error.param, error.error_code) == (param, code)


def test_a_limit_of_hosted_calls_is_shown_and_named() -> None:
    """There are none, so it has no effect."""
    request = read(max_tool_calls=3)
    assert (request.max_tool_calls, request.ignored) == (3, ("max_tool_calls",))


def test_functions_in_another_wrapping_have_their_own_paths() -> None:
    """As the chat interface sends them."""
    ignored: list[str] = []
    given = [{"type": "x"}, {"type": "function", "function": {"name": "f", "odd": 1}, "also": 1}]
    assert tools.read(given, ignored, "function") == ((Tool("f"),), ("tools[1].function",))
    assert ignored == ["tools[0]", "tools[1].also", "tools[1].function.odd"]
    for wrong, param in (({}, "tools[0].function"), ({"function": {}}, "tools[0].function.name")):
        with pytest.raises(InvalidRequest) as error:
            tools.read([{"type": "function", **wrong}], [], "function")
        assert error.value.param == param


def test_a_response_shows_its_choice_as_the_published_types_have_it() -> None:
    """The answers are held against them while they are read."""
    app = application()
    for choice in (TIME, {"type": "allowed_tools", "mode": "auto", "tools": [TIME]}, "none"):
        assert create(app, tools=[WEATHER, TIME], tool_choice=choice).json()["tool_choice"] == choice
