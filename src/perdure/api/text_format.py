"""The format of a text: `text` of a create request, and what the chat interface calls `response_format`."""

from typing import Any, NamedTuple

from perdure.api.tools import kind, schema
from perdure.api.values import choice, flag, members, missing, name, strangers, text, unsupported, wrong_value
from perdure.domain import limits
from perdure.domain.model import JsonObject, JsonSchema, PlainText, TextFormat

VERBOSITIES = ("low", "medium", "high")
VERBOSITY_DEFAULT = "medium"
FORMATS = ("text", "json_object", "json_schema")
SCHEMA_FORMAT = frozenset({"type", "name", "schema", "description", "strict"})
"""The members of a format with a schema that are read."""


class TextOptions(NamedTuple):
    """What `text` holds."""

    format: TextFormat
    verbosity: str


def read(value: object, ignored: list[str]) -> TextOptions:
    """The settings of a text; `ignored` gets the paths of those without effect. Raises `InvalidRequest`."""
    given = {} if value is None else members(value, "text")
    ignored.extend(strangers(given, ("format", "verbosity"), "text"))
    shape = read_format(given.get("format"), "text.format", ignored)
    verbosity = given.get("verbosity")
    if verbosity is None:
        return TextOptions(shape, VERBOSITY_DEFAULT)
    if choice(verbosity, "text.verbosity", VERBOSITIES) != VERBOSITY_DEFAULT:
        ignored.append("text.verbosity")
    return TextOptions(shape, verbosity)


def read_format(value: object, where: str, ignored: list[str], within: str | None = None) -> TextFormat:
    """A format. `within` names the member that holds the schema and its name, where they do not stand in it."""
    given = {} if value is None else members(value, where)
    if not given:
        return PlainText()
    wanted = kind(given, where)
    if wanted not in FORMATS:
        raise wrong_value(f"{where}.type", f"one of {', '.join(FORMATS)}")
    if wanted == "json_schema":
        return _wrapped(given, where, ignored, within) if within else _plain(given, where, ignored)
    ignored.extend(strangers(given, ("type",), where))
    return JsonObject() if wanted == "json_object" else PlainText()


def _wrapped(given: dict[str, Any], where: str, ignored: list[str], within: str) -> JsonSchema:
    ignored.extend(strangers(given, ("type", within), where))
    where = f"{where}.{within}"
    if given.get(within) is None:
        raise missing(where, "an object with a `name` and a `schema`")
    return _json_schema(members(given[within], where), where, ignored)


def _plain(given: dict[str, Any], where: str, ignored: list[str]) -> JsonSchema:
    if given.get("schema") is None and isinstance(given.get("json_schema"), dict):
        raise unsupported(
            f"{where}.json_schema",
            f"`{where}.json_schema` belongs to the chat interface; here its members stand in `{where}` itself.",
        )
    return _json_schema(given, where, ignored)


def _json_schema(given: dict[str, Any], where: str, ignored: list[str]) -> JsonSchema:
    called = name(given.get("name"), f"{where}.name", limits.FORMAT_NAME_MAX_CHARS)
    if given.get("schema") is None:
        raise missing(f"{where}.schema", "a JSON Schema")
    told, strict = given.get("description"), given.get("strict")
    ignored.extend(strangers(given, SCHEMA_FORMAT, where))
    return JsonSchema(
        name=called,
        schema=schema(given["schema"], f"{where}.schema"),
        description=None if told is None else text(told, f"{where}.description", limits.DESCRIPTION_MAX_CHARS),
        strict=False if strict is None else flag(strict, f"{where}.strict"),
    )
