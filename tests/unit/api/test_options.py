"""Fields whose members mostly steer a hosted service: their values are known, and what has no effect is named."""

from typing import Any

import pytest

from perdure.api.create_body import CreateBody
from perdure.domain import limits
from perdure.domain.errors import InvalidRequest
from perdure.domain.recovery import OnRestart

from .harness import HELLO

READER = CreateBody(OnRestart.RESUME, OnRestart.FAIL, lambda: 1)
LONG = "x" * (limits.IDENTIFIER_MAX_CHARS + 1)


@pytest.mark.parametrize(
    ("fields", "param", "code"),
    [
        ({"include": ["odd"]}, "include[0]", "invalid_value"),
        ({"include": ["message.output_text.logprobs", None]}, "include[1]", "invalid_type"),
        ({"reasoning": {"effort": "odd"}}, "reasoning.effort", "invalid_value"),
        ({"reasoning": {"effort": 1}}, "reasoning.effort", "invalid_type"),
        ({"reasoning": {"summary": "long"}}, "reasoning.summary", "invalid_value"),
        ({"reasoning": {"context": "odd"}}, "reasoning.context", "invalid_value"),
        ({"reasoning": {"mode": LONG}}, "reasoning.mode", "out_of_range"),
        ({"truncation": "odd"}, "truncation", "invalid_value"),
        ({"stream_options": {"include_obfuscation": 1}}, "stream_options.include_obfuscation", "invalid_type"),
        (
            {"background_options": {"completion_window": "1h"}},
            "background_options.completion_window",
            "invalid_value",
        ),
        ({"background_options": {"continuation_id": LONG}}, "background_options.continuation_id", "out_of_range"),
        ({"prompt_cache_options": {"prewarm": "no"}}, "prompt_cache_options.prewarm", "invalid_type"),
    ],
)
def test_a_value_at_fault_is_refused_where_it_stands(fields: dict[str, Any], param: str, code: str) -> None:
    """Tolerance is for what has no effect, not for what nobody could mean."""
    with pytest.raises(InvalidRequest) as error:
        READER.read({**HELLO, **fields})
    assert (error.value.param, error.value.error_code) == (param, code)


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        (None, None),
        ({}, None),
        ({"effort": None, "summary": None}, None),
        ({"effort": "low"}, {"effort": "low", "summary": None}),
        ({"summary": "auto"}, {"effort": None, "summary": "auto"}),
        ({"mode": "pro", "context": "auto"}, None),
    ],
)
def test_reasoning_is_shown_with_both_keys_or_not_at_all(given: object, shown: object) -> None:
    """What the response may show of it is what was asked for; the members are named as without effect."""
    request = READER.read({**HELLO, "reasoning": given}).request
    assert request.reasoning == shown
    asked = [name for name, value in (given if isinstance(given, dict) else {}).items() if value is not None]
    assert list(request.ignored) == [f"reasoning.{name}" for name in asked]
