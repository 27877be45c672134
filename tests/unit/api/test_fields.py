"""Fields that are not served: refused, tolerated at their default, or reported as ignored. Never silent."""

from typing import Any

import pytest

from perdure.api import fields
from perdure.domain import limits
from perdure.domain.errors import InvalidRequest

from .harness import application, create


def refused(**body: Any) -> InvalidRequest:
    with pytest.raises(InvalidRequest) as error:
        fields.sort_out(body)
    return error.value


def test_each_field_has_one_fate() -> None:
    """The tables do not overlap."""
    tables = [fields.SERVED, fields.HINTS, fields.NOT_SERVED.keys(), fields.ELSEWHERE.keys()]
    assert sum(map(len, tables)) == len(set().union(*tables))


@pytest.mark.parametrize(
    ("field", "values"),
    [
        ("access_programs", [{}, {"cyber": "standard"}, {"cyber": None}]),
        ("context_management", [[]]),
        ("image", [{}, {"context_compression": "auto"}]),
        ("moderation", [{}]),
        ("service_tier", ["auto", "default"]),
    ],
)
def test_the_default_of_a_field_is_accepted(field: str, values: list[object]) -> None:
    """Asking for what happens anyway is no reason for a refusal, nor for a report."""
    for value in values:
        assert fields.sort_out({field: value}) == []


@pytest.mark.parametrize("field", sorted(fields.NOT_SERVED.keys() | fields.HINTS | fields.ELSEWHERE.keys()))
def test_null_is_absence_for_every_known_field(field: str) -> None:
    """Clients that write out every member are not refused, and nothing is reported."""
    assert fields.sort_out({field: None}) == []


@pytest.mark.parametrize(
    ("field", "values"),
    [
        ("access_programs", [[], "x", {"cyber": "daybreak_red"}, {"other": 1}]),
        ("context_management", [[{"type": "compaction"}], {}]),
        ("conversation", ["conv_1", {"id": "conv_1"}, ""]),
        ("image", [{"size": 1}, {"context_compression": "enabled"}, []]),
        ("moderation", [{"x": 1}]),
        ("personality", ["friendly", ""]),
        ("prompt", [{"id": "p"}]),
        ("service_tier", ["flex", "priority", 1]),
    ],
)
def test_a_field_that_would_be_ignored_is_refused_by_name(field: str, values: list[object]) -> None:
    """Anything but the default, in value or in type."""
    for value in values:
        error = refused(**{field: value})
        assert (error.param, error.error_code) == (field, "unsupported_parameter")


@pytest.mark.proves("A-12")
@pytest.mark.parametrize("field", sorted(fields.ELSEWHERE))
def test_a_field_of_another_api_is_refused_with_the_right_one(field: str) -> None:
    """The message says where to go."""
    error = refused(**{field: 1})
    assert (error.param, error.error_code) == (field, "unsupported_parameter")
    assert fields.ELSEWHERE[field] in error.message


def test_a_prompt_string_is_the_field_of_another_endpoint() -> None:
    """It is told `input`; a prompt template is told that it is not supported."""
    assert "`input`" in refused(prompt="Hello").message
    assert "not supported;" in refused(prompt={"id": "p"}).message


@pytest.mark.parametrize("field", sorted(fields.HINTS))
def test_a_hint_is_accepted_and_reported(field: str) -> None:
    """It changes no text, and the response says that it had no effect."""
    assert fields.sort_out({field: "x"}) == [field]


def test_what_had_no_effect_is_named_in_the_response() -> None:
    """Fields first, without what was null."""
    body = create(
        application(),
        client_metadata={"a": 1},
        top_k=40,
        min_p=None,
        parallel_tool_calls=False,
        tool_choice="none",
        stream_options={"include_obfuscation": True, "include_usage": True},
    ).json()
    assert body["perdure"]["ignored"] == [
        "client_metadata",
        "top_k",
        "stream_options.include_obfuscation",
        "stream_options.include_usage",
    ]


def test_unknown_fields_are_bounded() -> None:
    """They are repeated in every event, so neither their number nor their length is free."""
    allowed = {f"x{n}": 1 for n in range(limits.UNKNOWN_FIELDS_MAX)}
    assert len(fields.sort_out(allowed)) == limits.UNKNOWN_FIELDS_MAX
    assert refused(**allowed, one_more=1).error_code == "out_of_range"
    assert fields.sort_out({"x" * limits.UNKNOWN_NAME_MAX_CHARS: 1})
    assert refused(**{"x" * (limits.UNKNOWN_NAME_MAX_CHARS + 1): 1}).error_code == "out_of_range"
