"""`text`: formats and their schemas, the verbosity, and where errors point."""

from typing import Any

import msgspec
import pytest

from perdure.api import text_format
from perdure.domain import limits
from perdure.domain.errors import InvalidRequest
from perdure.domain.model import JsonObject, JsonSchema, PlainText, TextFormat
from perdure.domain.response import TextSettings

from .harness import application, create, error_of

SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}


def with_schema(**members: Any) -> dict[str, Any]:
    return {"type": "json_schema", "name": "answer", "schema": SCHEMA, **members}


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        (None, PlainText()),
        ({}, PlainText()),
        ({"type": "text"}, PlainText()),
        ({"type": "json_object"}, JsonObject()),
        (with_schema(), JsonSchema("answer", SCHEMA, strict=False)),
        (with_schema(strict=None, description=None), JsonSchema("answer", SCHEMA, strict=False)),
        (with_schema(strict=True, description="d"), JsonSchema("answer", SCHEMA, "d", strict=True)),
    ],
)
def test_a_format_is_read(given: object, meant: TextFormat) -> None:
    """With its defaults resolved."""
    ignored: list[str] = []
    assert text_format.read({"format": given}, ignored) == (meant, "medium")
    assert ignored == []


@pytest.mark.proves("A-12")
def test_a_format_is_shown_whole() -> None:
    """And the field of the chat interface is refused with the name of this one."""
    shown = msgspec.to_builtins(TextSettings(*text_format.read({"format": with_schema(strict=True)}, [])))
    assert shown == {"format": {**with_schema(strict=True), "description": None}, "verbosity": "medium"}
    answer = create(application(), response_format={"type": "json_schema", "json_schema": {"name": "answer"}})
    assert answer.status_code == 400
    assert error_of(answer)["param"] == "response_format"
    assert "`text.format`" in error_of(answer)["message"]


@pytest.mark.parametrize(
    ("given", "ignored"),
    [
        ({"verbosity": "low"}, ["text.verbosity"]),
        ({"verbosity": "high"}, ["text.verbosity"]),
        ({"verbosity": "medium"}, []),
        ({"odd": 1, "format": {"type": "text", "odd": 1}}, ["text.odd", "text.format.odd"]),
        ({"format": with_schema(odd=1)}, ["text.format.odd"]),
    ],
)
def test_what_has_no_effect_is_named(given: object, ignored: list[str]) -> None:
    """The verbosity is shown all the same."""
    found: list[str] = []
    text_format.read(given, found)
    assert found == ignored


@pytest.mark.parametrize(
    ("given", "param", "code"),
    [
        ({"format": "text"}, "text.format", "invalid_type"),
        ({"format": {"name": "x"}}, "text.format.type", "missing_required_parameter"),
        ({"format": {"type": 5}}, "text.format.type", "invalid_type"),
        ({"format": {"type": "grammar"}}, "text.format.type", "invalid_value"),
        ({"format": with_schema(name=None)}, "text.format.name", "missing_required_parameter"),
        ({"format": with_schema(name="")}, "text.format.name", "invalid_value"),
        ({"format": with_schema(name="a.b")}, "text.format.name", "invalid_value"),
        ({"format": with_schema(name="x" * (limits.FORMAT_NAME_MAX_CHARS + 1))}, "text.format.name", "out_of_range"),
        ({"format": with_schema(schema=None)}, "text.format.schema", "missing_required_parameter"),
        ({"format": with_schema(schema=True)}, "text.format.schema", "invalid_type"),
        ({"format": with_schema(schema={"x": "y" * limits.SCHEMA_MAX_BYTES})}, "text.format.schema", "out_of_range"),
        ({"format": with_schema(strict="yes")}, "text.format.strict", "invalid_type"),
        ({"format": with_schema(description=5)}, "text.format.description", "invalid_type"),
        (
            {"format": {"type": "json_schema", "json_schema": {"name": "a", "schema": {}}}},
            "text.format.json_schema",
            "unsupported_parameter",
        ),
        ({"verbosity": "loud"}, "text.verbosity", "invalid_value"),
        ({"verbosity": 5}, "text.verbosity", "invalid_type"),
    ],
)
def test_a_format_at_fault_is_refused_where_it_stands(given: object, param: str, code: str) -> None:
    """The path names the member."""
    with pytest.raises(InvalidRequest) as error:
        text_format.read(given, [])
    assert (error.value.param, error.value.error_code) == (param, code)


def test_a_schema_in_another_wrapping_has_its_own_paths() -> None:
    """As the chat interface sends it."""
    inner = {"name": "answer", "schema": SCHEMA, "odd": 1}
    ignored: list[str] = []
    given = {"type": "json_schema", "json_schema": inner, "also": 1}
    found = text_format.read_format(given, "response_format", ignored, "json_schema")
    assert found == JsonSchema("answer", SCHEMA, strict=False)
    assert ignored == ["response_format.also", "response_format.json_schema.odd"]
    where = "response_format.json_schema"
    for wrong, param in (({}, where), ({"json_schema": {}}, f"{where}.name")):
        with pytest.raises(InvalidRequest) as error:
            text_format.read_format({"type": "json_schema", **wrong}, "response_format", [], "json_schema")
        assert error.value.param == param
