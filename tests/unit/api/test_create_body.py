"""The fields that are served: strict types, exact bounds, and where each error points."""

from typing import Any

import pytest

from perdure.api.create_body import CreateBody
from perdure.api.fields import SERVED
from perdure.api.input_items import NAME_MAX_CHARS
from perdure.domain import limits
from perdure.domain.errors import InvalidRequest
from perdure.domain.model import PlainText, ToolChoice
from perdure.domain.recovery import OnRestart
from perdure.domain.request import CreateRequest

from .harness import HELLO, SEED, application, create, error_of
from .scripted import ScriptedService

READER = CreateBody(OnRestart.RESUME, OnRestart.FAIL, lambda: SEED)


def read(**fields: Any) -> CreateRequest:
    return READER.read({**HELLO, **fields}).request


def refused(**fields: Any) -> InvalidRequest:
    with pytest.raises(InvalidRequest) as error:
        READER.read({**HELLO, **fields})
    return error.value


def test_a_bare_request_has_every_default() -> None:
    """What is not said is the documented default."""
    request = read()
    assert request.instructions is None
    assert (request.background, request.store) == (False, True)
    assert (request.temperature, request.top_p) == (None, None)  # the model's own
    assert (request.max_output_tokens, request.metadata, request.seed) == (None, {}, SEED)
    assert (request.on_restart, request.ignored) == (OnRestart.FAIL, ())
    assert (request.tools, request.tool_choice, request.choice) == ((), "auto", ToolChoice())
    assert (request.parallel_tool_calls, request.max_tool_calls) == (True, None)
    assert (request.format, request.verbosity, request.truncation) == (PlainText(), "medium", "disabled")
    assert (request.logprobs, request.top_logprobs, request.reasoning) == (False, 0, None)
    assert (request.presence_penalty, request.frequency_penalty, request.stop) == (0.0, 0.0, ())
    assert (request.safety_identifier, request.prompt_cache_key, request.user) == (None, None, None)


def test_null_is_absence() -> None:
    """Every optional field may be null, and means its default."""
    nulls: dict[str, Any] = dict.fromkeys(SERVED - {"model", "input"})
    assert read(**nulls) == read()


def test_the_way_of_delivery_is_no_part_of_the_request() -> None:
    """`stream` says how the answer comes and changes nothing else."""
    with_stream = READER.read({**HELLO, "stream": True})
    without = READER.read(dict(HELLO))
    assert (with_stream.stream, without.stream) == (True, False)
    assert with_stream.request == without.request


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("model", 5),
        ("model", ["m"]),
        ("input", 5),
        ("input", {"role": "user"}),
        ("input", True),
        ("instructions", 5),
        ("instructions", []),
        ("background", 1),
        ("background", "true"),
        ("store", 0),
        ("stream", "false"),
        ("stream", 1.0),
        ("temperature", "1"),
        ("temperature", True),
        ("temperature", [1]),
        ("top_p", "0.5"),
        ("top_p", False),
        ("max_output_tokens", "16"),
        ("max_output_tokens", 16.0),
        ("max_output_tokens", True),
        ("metadata", []),
        ("metadata", "a"),
        ("seed", "5"),
        ("seed", 5.0),
        ("seed", True),
        ("on_restart", 5),
        ("on_restart", True),
        ("previous_response_id", 5),
        ("parallel_tool_calls", 1),
        ("max_tool_calls", "1"),
        ("max_tool_calls", 1.0),
        ("truncation", True),
        ("truncation", ["auto"]),
        ("top_logprobs", False),
        ("top_logprobs", 1.0),
        ("presence_penalty", "0"),
        ("presence_penalty", False),
        ("frequency_penalty", [0]),
        ("safety_identifier", 5),
        ("prompt_cache_key", 5),
        ("user", ["u"]),
        ("tools", {}),
        ("tools", "x"),
        ("tool_choice", 5),
        ("tool_choice", ["auto"]),
        ("text", []),
        ("text", "x"),
        ("include", {}),
        ("include", "x"),
        ("reasoning", []),
        ("reasoning", "low"),
        ("stream_options", []),
        ("background_options", "soonest"),
        ("prompt_cache_options", []),
    ],
)
def test_another_type_is_refused_by_name(field: str, value: object) -> None:
    """A bool is no number, a number in a string is a string, and 16.0 is no integer."""
    error = refused(**{field: value})
    assert (error.param, error.error_code) == (field, "invalid_type")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("model", "m" * (limits.MODEL_NAME_MAX_CHARS + 1)),
        ("input", "x" * (limits.INPUT_TEXT_MAX_CHARS + 1)),
        ("input", [{"role": "user", "content": "x"}] * (limits.INPUT_ITEMS_MAX + 1)),
        ("instructions", "x" * (limits.INPUT_TEXT_MAX_CHARS + 1)),
        ("temperature", -0.001),
        ("temperature", 2.001),
        ("temperature", 10**400),
        ("top_p", -1),
        ("top_p", 1.001),
        ("max_output_tokens", 0),
        ("max_output_tokens", -1),
        ("max_output_tokens", limits.OUTPUT_TOKENS_MAX + 1),
        ("seed", -1),
        ("seed", limits.SEED_MAX + 1),
        ("metadata", {str(n): "" for n in range(limits.METADATA_PAIRS_MAX + 1)}),
        ("metadata", {"k" * (limits.METADATA_KEY_MAX_CHARS + 1): ""}),
        ("previous_response_id", "x" * (NAME_MAX_CHARS + 1)),
        ("max_tool_calls", 0),
        ("max_tool_calls", limits.TOOL_CALLS_MAX + 1),
        ("top_logprobs", -1),
        ("top_logprobs", limits.TOP_LOGPROBS_MAX + 1),
        ("presence_penalty", -2.001),
        ("presence_penalty", 2.001),
        ("frequency_penalty", -2.001),
        ("frequency_penalty", 2.001),
        ("safety_identifier", "x" * (limits.SAFETY_IDENTIFIER_MAX_CHARS + 1)),
        ("prompt_cache_key", "x" * (limits.IDENTIFIER_MAX_CHARS + 1)),
        ("user", "x" * (limits.IDENTIFIER_MAX_CHARS + 1)),
        ("tools", [{"type": "web_search"}] * (limits.TOOLS_MAX + 1)),
        ("include", ["message.output_text.logprobs"] * (limits.INCLUDE_MAX + 1)),
    ],
)
def test_one_beyond_a_bound_is_refused_by_name(field: str, value: object) -> None:
    """Too small, too large, too long, too many."""
    error = refused(**{field: value})
    assert (error.param, error.error_code) == (field, "out_of_range")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("model", "m" * limits.MODEL_NAME_MAX_CHARS),
        ("temperature", 0),
        ("temperature", 2),
        ("temperature", -0.0),
        ("top_p", 0.0),
        ("top_p", 1),
        ("max_output_tokens", limits.OUTPUT_TOKENS_MIN),
        ("max_output_tokens", limits.OUTPUT_TOKENS_MAX),
        ("seed", 0),
        ("seed", limits.SEED_MAX),
        ("metadata", {str(n): "" for n in range(limits.METADATA_PAIRS_MAX)}),
        ("metadata", {"k" * limits.METADATA_KEY_MAX_CHARS: "v" * limits.METADATA_VALUE_MAX_CHARS}),
        ("on_restart", "fail"),
        ("on_restart", "retry"),
        ("on_restart", "resume"),
        ("previous_response_id", "x" * NAME_MAX_CHARS),
        ("max_tool_calls", 1),
        ("max_tool_calls", limits.TOOL_CALLS_MAX),
        ("truncation", "auto"),
        ("top_logprobs", 0),
        ("top_logprobs", limits.TOP_LOGPROBS_MAX),
        ("presence_penalty", -2),
        ("presence_penalty", 2.0),
        ("frequency_penalty", -2.0),
        ("frequency_penalty", 2),
        ("safety_identifier", "x" * limits.SAFETY_IDENTIFIER_MAX_CHARS),
        ("prompt_cache_key", "x" * limits.IDENTIFIER_MAX_CHARS),
        ("user", "x" * limits.IDENTIFIER_MAX_CHARS),
    ],
)
def test_a_bound_itself_is_accepted(field: str, value: object) -> None:
    """Bounds are inclusive, and what was said is what is kept."""
    assert getattr(read(**{field: value}), field) == value


def test_minus_zero_is_zero() -> None:
    """One temperature has one spelling in what is stored."""
    assert str(read(temperature=-0.0).temperature) == "0.0"


def test_errors_inside_metadata_name_the_key() -> None:
    """The path goes to the pair at fault."""
    assert refused(metadata={"ok": "", "bad": 5}).param == "metadata.bad"
    long = refused(metadata={"bad": "v" * (limits.METADATA_VALUE_MAX_CHARS + 1)})
    assert (long.param, long.error_code) == ("metadata.bad", "out_of_range")


def test_an_unknown_policy_is_refused_with_the_known_ones() -> None:
    """The message says what is allowed."""
    error = refused(on_restart="maybe")
    assert (error.param, error.error_code) == ("on_restart", "invalid_value")
    assert "fail, retry, resume" in error.message


@pytest.mark.parametrize("field", ["model", "input"])
@pytest.mark.parametrize("absent", [True, False])
def test_what_is_needed_and_missing_is_named(field: str, absent: bool) -> None:
    """Missing and null are alike."""
    body = {**HELLO, field: None}
    if absent:
        del body[field]
    with pytest.raises(InvalidRequest) as error:
        READER.read(body)
    assert (error.value.param, error.value.error_code) == (field, "missing_required_parameter")


def test_an_empty_model_is_a_missing_one() -> None:
    """There is no model without a name, and no default one."""
    assert refused(model="").error_code == "missing_required_parameter"


@pytest.mark.proves("A-09")
@pytest.mark.parametrize(
    "fields",
    [
        {"text": {}},
        {"text": None},
        {"text": {"format": {}}},
        {"text": {"format": None, "verbosity": None}},
        {"tools": []},
        {"metadata": {}},
        {"instructions": ""},
        {"reasoning": {}},
        {"reasoning": {"effort": None, "summary": None}},
        {"include": []},
        {"stream_options": {}},
    ],
)
def test_empty_settings_are_the_default(fields: dict[str, Any]) -> None:
    """What front ends send for nothing counts as nothing."""
    assert read(**fields) == read()


@pytest.mark.proves("A-09")
def test_the_response_shows_the_defaults_filled_in() -> None:
    """Whatever was sent for nothing."""
    shown = create(application(), text={}, tools=[], metadata={}, instructions="").json()
    assert shown["text"] == {"format": {"type": "text"}, "verbosity": "medium"}
    assert (shown["tools"], shown["metadata"], shown["instructions"]) == ([], {}, None)
    assert shown["perdure"]["ignored"] == []


CODING_CLIENT: dict[str, Any] = {
    "instructions": "You are a coding agent.",
    "input": [
        {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "Be brief."}]},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "List the files."}]},
    ],
    "tools": [{"type": "function", "name": "shell", "description": "Run.", "strict": False, "parameters": {}}],
    "tool_choice": "auto",
    "parallel_tool_calls": True,
    "reasoning": {"effort": "medium", "summary": "auto"},
    "store": False,
    "include": ["reasoning.encrypted_content"],
    "prompt_cache_key": "0199-session",
    "client_metadata": {"x": "y"},
}


@pytest.mark.proves("A-25")
def test_the_fields_of_a_coding_client_are_accepted_and_shown() -> None:
    """Those with a place in the response are shown there; those without an effect are named."""
    shown = create(application(), **CODING_CLIENT).json()
    assert shown["prompt_cache_key"] == "0199-session"
    assert shown["reasoning"] == {"effort": "medium", "summary": "auto"}
    assert shown["tools"] == [CODING_CLIENT["tools"][0]]
    assert (shown["tool_choice"], shown["parallel_tool_calls"], shown["store"]) == ("auto", True, False)
    ignored = ["client_metadata", "include[0]", "reasoning.effort", "reasoning.summary"]
    assert shown["perdure"]["ignored"] == ignored


@pytest.mark.proves("A-25")
def test_names_of_users_and_caches_are_shown_and_no_longer_called_ignored() -> None:
    """The object has a place for them."""
    shown = create(application(), user="u", safety_identifier="s", prompt_cache_key="k").json()
    assert (shown["user"], shown["safety_identifier"], shown["prompt_cache_key"]) == ("u", "s", "k")
    assert shown["perdure"]["ignored"] == []


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({}, (False, 0)),
        ({"include": ["message.output_text.logprobs"]}, (True, 0)),
        ({"top_logprobs": 2}, (True, 2)),
        ({"top_logprobs": 0}, (False, 0)),
        ({"include": ["message.output_text.logprobs"], "top_logprobs": 3}, (True, 3)),
    ],
)
def test_probabilities_are_told_to_who_asks_in_either_way(fields: dict[str, Any], told: tuple[bool, int]) -> None:
    """A number of likely tokens without a token to tell them with would be no answer."""
    request = read(**fields)
    assert (request.logprobs, request.top_logprobs) == told


def test_going_on_from_a_response_needs_no_input() -> None:
    """Whether there is something to answer is seen once its items are there."""
    asked = READER.read({"model": "m", "previous_response_id": "resp_1"})
    assert (asked.request.previous_response_id, asked.items) == ("resp_1", [])
    assert READER.read({"model": "m", "previous_response_id": "resp_1", "input": []}).items == []


def test_an_empty_previous_response_is_refused() -> None:
    """It is never taken for none."""
    error = refused(previous_response_id="")
    assert (error.param, error.error_code) == ("previous_response_id", "invalid_value")


def test_a_count_needs_anything_to_count() -> None:
    """An input of any kind, a response before, or instructions."""
    for fields in ({"input": "x"}, {"input": ""}, {"previous_response_id": "resp_1"}, {"instructions": "x"}):
        assert READER.read_count({"model": "m", **fields}).request.model == "m"
    for nothing in ({}, {"input": []}, {"instructions": ""}):
        with pytest.raises(InvalidRequest) as error:
            READER.read_count({"model": "m", **nothing})
        assert (error.value.param, error.value.error_code) == ("input", "missing_required_parameter")


def test_a_count_reads_the_other_fields_by_the_same_rules() -> None:
    """What a create refuses is refused, and what it leaves out is left out."""
    body = {**HELLO, "tools": [{"type": "function", "name": "f"}], "tool_choice": "required", "truncation": "auto"}
    assert READER.read_count(dict(body)).request == READER.read(dict(body)).request
    with pytest.raises(InvalidRequest) as error:
        READER.read_count({**HELLO, "personality": "friendly"})
    assert error.value.param == "personality"


def test_a_refusal_over_http_points_and_stores_nothing() -> None:
    """The parts above, put together."""
    service = ScriptedService()
    answer = create(application(service), temperature=3)
    assert answer.status_code == 400
    assert error_of(answer) == {
        "message": "`temperature` must be a number from 0 to 2.",
        "type": "invalid_request_error",
        "param": "temperature",
        "code": "out_of_range",
    }
    assert not service.kept
