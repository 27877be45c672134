"""The fields that are served: strict types, exact bounds, and where each error points."""

from typing import Any

import pytest

from perdure.api.create_body import OUTPUT_TOKENS_MAX, CreateBody
from perdure.api.fields import SERVED
from perdure.domain import limits
from perdure.domain.errors import InvalidRequest
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
    assert (request.temperature, request.top_p) == (limits.TEMPERATURE_DEFAULT, limits.TOP_P_DEFAULT)
    assert (request.max_output_tokens, request.metadata, request.seed) == (None, {}, SEED)
    assert (request.on_restart, request.ignored) == (OnRestart.FAIL, ())


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
        ("max_output_tokens", OUTPUT_TOKENS_MAX + 1),
        ("seed", -1),
        ("seed", limits.SEED_MAX + 1),
        ("metadata", {str(n): "" for n in range(limits.METADATA_PAIRS_MAX + 1)}),
        ("metadata", {"k" * (limits.METADATA_KEY_MAX_CHARS + 1): ""}),
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
        ("max_output_tokens", OUTPUT_TOKENS_MAX),
        ("seed", 0),
        ("seed", limits.SEED_MAX),
        ("metadata", {str(n): "" for n in range(limits.METADATA_PAIRS_MAX)}),
        ("metadata", {"k" * limits.METADATA_KEY_MAX_CHARS: "v" * limits.METADATA_VALUE_MAX_CHARS}),
        ("on_restart", "fail"),
        ("on_restart", "retry"),
        ("on_restart", "resume"),
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


@pytest.mark.parametrize(
    "fields", [{"text": {}}, {"text": None}, {"tools": []}, {"metadata": {}}, {"instructions": ""}]
)
def test_empty_settings_are_the_default(fields: dict[str, Any]) -> None:
    """What front ends send for nothing counts as nothing."""
    assert read(**fields) == read()


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
