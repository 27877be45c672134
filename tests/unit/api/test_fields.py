"""Fields that are not served: refused, tolerated at their default, or reported as ignored. Never silent."""

from itertools import chain
from typing import Any, get_type_hints

import openresponses_types.types as open_responses
import pytest
from openai.types.responses import response_create_params

from perdure.api import fields
from perdure.domain.errors import InvalidRequest

from .harness import application, create

TOLERANT = {"parallel_tool_calls", "tool_choice", "stream_options"}


def refused(**body: Any) -> InvalidRequest:
    with pytest.raises(InvalidRequest) as error:
        fields.sort_out(body)
    return error.value


def test_every_field_of_the_official_client_is_known() -> None:
    """A new field in the client's package makes this fail until it is decided what becomes of it."""
    hints = [
        get_type_hints(params)
        for params in (
            response_create_params.ResponseCreateParamsNonStreaming,
            response_create_params.ResponseCreateParamsStreaming,
        )
    ]
    known = fields.SERVED | fields.HINTS | fields.NOT_SERVED.keys() | TOLERANT
    assert set(chain(*hints)) <= known
    assert set(open_responses.CreateResponseBody.model_fields) <= known


def test_each_field_has_one_fate() -> None:
    """The tables do not overlap."""
    tables = [fields.SERVED, fields.HINTS, fields.NOT_SERVED.keys(), fields.ELSEWHERE.keys(), TOLERANT]
    assert sum(map(len, tables)) == len(set().union(*tables))


@pytest.mark.parametrize(
    ("field", "values"),
    [
        ("access_programs", [[]]),
        ("background_options", [{}, {"completion_window": "soonest"}, {"completion_window": None}]),
        ("context_management", [[]]),
        ("frequency_penalty", [0, 0.0]),
        ("image", [{}]),
        ("include", [[]]),
        ("moderation", [{}]),
        ("parallel_tool_calls", [True]),
        ("presence_penalty", [0, 0.0]),
        ("reasoning", [{}, {"effort": None, "summary": None}]),
        ("service_tier", ["auto", "default"]),
        ("stream_options", [{}, {"include_obfuscation": False}, {"include_obfuscation": None}]),
        (
            "text",
            [
                {},
                {"format": {"type": "text"}},
                {"format": None, "verbosity": None},
                {"format": {"type": "text"}, "verbosity": "medium"},
            ],
        ),
        ("tool_choice", ["auto"]),
        ("tools", [[]]),
        ("top_logprobs", [0]),
        ("truncation", ["disabled"]),
    ],
)
def test_the_default_of_a_field_is_accepted(field: str, values: list[object]) -> None:
    """Asking for what happens anyway is no reason for a refusal, nor for a report."""
    for value in values:
        assert fields.sort_out({field: value}) == ()


@pytest.mark.parametrize(
    "field", sorted(fields.NOT_SERVED.keys() | fields.HINTS | fields.ELSEWHERE.keys() | TOLERANT)
)
def test_null_is_absence_for_every_known_field(field: str) -> None:
    """Clients that write out every member are not refused, and nothing is reported."""
    assert fields.sort_out({field: None}) == ()


@pytest.mark.parametrize(
    ("field", "values"),
    [
        ("access_programs", [["x"], "x"]),
        ("background_options", [{"completion_window": "2h"}, {"continuation_id": "x"}, "soonest"]),
        ("context_management", [[{"type": "compaction"}], {}]),
        ("conversation", ["conv_1", {"id": "conv_1"}, ""]),
        ("frequency_penalty", [0.5, "0", False]),
        ("image", [{"size": 1}]),
        ("include", [["message.output_text.logprobs"], {}]),
        ("max_tool_calls", [0, 5]),
        ("moderation", [{"x": 1}]),
        ("presence_penalty", [-1, [0]]),
        ("previous_response_id", ["resp_1", ""]),
        ("prompt", [{"id": "p"}]),
        ("reasoning", [{"effort": "low"}, {"summary": "auto"}, []]),
        ("service_tier", ["flex", "priority", 1]),
        (
            "text",
            [
                {"format": {"type": "json_object"}},
                {"format": {"type": "text", "x": 1}},
                {"verbosity": "low"},
                [],
                "x",
            ],
        ),
        ("tool_choice", ["required", {"type": "function", "name": "f"}, 5]),
        ("tools", [[{"type": "function", "name": "f"}], {}, "x"]),
        ("top_logprobs", [1, False, 0.0]),
        ("truncation", ["auto", False]),
    ],
)
def test_a_field_that_would_be_ignored_is_refused_by_name(field: str, values: list[object]) -> None:
    """Anything but the default, in value or in type."""
    for value in values:
        error = refused(**{field: value})
        assert (error.param, error.error_code) == (field, "unsupported_parameter")


@pytest.mark.parametrize(
    ("field", "value"), [("parallel_tool_calls", 1), ("stream_options", []), ("stream_options", "x")]
)
def test_a_tolerated_field_of_another_type_is_refused(field: str, value: object) -> None:
    """Tolerance is for values, not for types."""
    error = refused(**{field: value})
    assert (error.param, error.error_code) == (field, "invalid_type")


@pytest.mark.parametrize("field", sorted(fields.ELSEWHERE))
def test_a_field_of_another_api_is_refused_with_the_right_one(field: str) -> None:
    """The message says where to go."""
    error = refused(**{field: 1})
    assert (error.param, error.error_code) == (field, "unsupported_parameter")
    assert fields.ELSEWHERE[field] in error.message


def test_a_prompt_string_is_the_field_of_another_endpoint() -> None:
    """It is told `input`; a prompt template is told that it is not supported."""
    assert "`input`" in refused(prompt="Hello").message
    assert "not supported yet" in refused(prompt={"id": "p"}).message


@pytest.mark.parametrize("field", sorted(fields.HINTS))
def test_a_hint_is_accepted_and_reported(field: str) -> None:
    """It changes no text, and the response says that it had no effect."""
    assert fields.sort_out({field: "x"}) == (field,)


def test_what_had_no_effect_is_named_in_the_response() -> None:
    """Sorted, without what was null."""
    body = create(
        application(),
        user="u",
        top_k=40,
        min_p=None,
        parallel_tool_calls=False,
        tool_choice="none",
        stream_options={"include_obfuscation": True, "include_usage": True},
    ).json()
    assert body["perdure"]["ignored"] == [
        "parallel_tool_calls",
        "stream_options.include_obfuscation",
        "stream_options.include_usage",
        "tool_choice",
        "top_k",
        "user",
    ]


def test_unknown_fields_are_bounded() -> None:
    """They are repeated in every event, so neither their number nor their length is free."""
    allowed = {f"x{n}": 1 for n in range(fields.UNKNOWN_FIELDS_MAX)}
    assert len(fields.sort_out(allowed)) == fields.UNKNOWN_FIELDS_MAX
    assert refused(**allowed, one_more=1).error_code == "out_of_range"
    assert fields.sort_out({"x" * fields.UNKNOWN_NAME_MAX_CHARS: 1})
    assert refused(**{"x" * (fields.UNKNOWN_NAME_MAX_CHARS + 1): 1}).error_code == "out_of_range"
