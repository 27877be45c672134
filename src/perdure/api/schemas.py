"""The objects of /openapi.json: those that are encoded from types are derived from them, the rest is written here."""

from collections.abc import Mapping
from typing import Any

import msgspec

from perdure.api.create_body import OUTPUT_TOKENS_MAX
from perdure.api.fields import HINTS, NOT_SERVED
from perdure.api.input_items import TEXT_PARTS
from perdure.api.models import Model
from perdure.api.service import ServiceFacts
from perdure.domain import limits
from perdure.domain.items import ROLES
from perdure.domain.recovery import OnRestart
from perdure.domain.response import Response, ResponseError
from perdure.engine.service import Task

Schema = dict[str, Any]

_SOMETIMES: Mapping[str, frozenset[str]] = {
    ResponseError.__name__: frozenset({"detail"}),
    Task.__name__: frozenset({"history"}),
}
"""Members that are left out when they hold nothing; all others are always there."""


def components() -> dict[str, Schema]:
    """Every named object."""
    types = (Response, Task, Model, ServiceFacts)
    _, derived = msgspec.json.schema_components(types, ref_template="#/components/schemas/{name}")
    for name, schema in derived.items():
        if "properties" in schema:
            sometimes = _SOMETIMES.get(name, frozenset())
            schema["required"] = [member for member in schema["properties"] if member not in sometimes]
    return {**derived, **_requests(), **_errors(), **_lists(), **_states()}


def ref(name: str) -> Schema:
    """A reference to a named object."""
    return {"$ref": f"#/components/schemas/{name}"}


def _requests() -> dict[str, Schema]:
    return {
        "CreateResponse": _create_response(),
        "InputMessage": _input_message(),
        "InputText": _object({"type": {"enum": list(TEXT_PARTS)}, "text": _text()}),
        "Event": _object({"type": {"type": "string"}, "sequence_number": {"type": "integer", "minimum": 0}}),
        "Deleted": _object({"id": {"type": "string"}, "object": {"const": "response"}, "deleted": {"const": True}}),
    }


def _errors() -> dict[str, Schema]:
    return {
        "Error": _object({"error": ref("ErrorBody")}),
        "ErrorBody": _object(
            {
                "message": {"type": "string"},
                "type": {"type": "string"},
                "param": _or_null(),
                "code": {"type": "string"},
            }
        ),
    }


def _lists() -> dict[str, Schema]:
    return {
        "ModelList": _object({"object": {"const": "list"}, "data": _array(ref("Model"))}),
        "TaskList": _object(
            {
                "object": {"const": "list"},
                "data": _array(ref("Task")),
                "first_id": _or_null(),
                "last_id": _or_null(),
                "has_more": {"type": "boolean"},
            }
        ),
        "EventList": _object(
            {
                "object": {"const": "list"},
                "data": _array(ref("Event")),
                "last_seq": {"type": "integer"},
                "has_more": {"type": "boolean"},
            }
        ),
    }


def _states() -> dict[str, Schema]:
    return {
        "Alive": _object({"status": {"const": "ok"}}),
        "Ready": _object({"status": {"const": "ready"}}),
        "NotReady": _object({"status": {"const": "unavailable"}, "reason": _or_null()}),
    }


def _create_response() -> Schema:
    not_served = ", ".join(f"`{name}` ({default})" for name, (_, default) in NOT_SERVED.items())
    return {
        "type": "object",
        "required": ["model", "input"],
        "description": (
            "`null` stands for absence. Known fields that are not served are refused unless they hold their default:"
            f" {not_served}. Without effect, and named in `perdure.ignored`: {', '.join(sorted(HINTS))},"
            " and every field that is not known."
        ),
        "properties": {
            "model": {"type": "string", "minLength": 1, "maxLength": limits.MODEL_NAME_MAX_CHARS},
            "input": {
                "oneOf": [
                    {"type": "string", "minLength": 1, "maxLength": limits.INPUT_TEXT_MAX_CHARS},
                    {**_array(ref("InputMessage")), "minItems": 1, "maxItems": limits.INPUT_ITEMS_MAX},
                ]
            },
            "instructions": {"type": ["string", "null"], "maxLength": limits.INPUT_TEXT_MAX_CHARS},
            "background": {"type": ["boolean", "null"], "default": False},
            "store": {"type": ["boolean", "null"], "default": True},
            "stream": {"type": ["boolean", "null"], "default": False},
            "temperature": _number(limits.TEMPERATURE_MAX, limits.TEMPERATURE_DEFAULT),
            "top_p": _number(limits.TOP_P_MAX, limits.TOP_P_DEFAULT),
            "max_output_tokens": _integer(limits.OUTPUT_TOKENS_MIN, OUTPUT_TOKENS_MAX),
            "metadata": {
                "type": ["object", "null"],
                "maxProperties": limits.METADATA_PAIRS_MAX,
                "propertyNames": {"maxLength": limits.METADATA_KEY_MAX_CHARS},
                "additionalProperties": {"type": "string", "maxLength": limits.METADATA_VALUE_MAX_CHARS},
            },
            "seed": _integer(0, limits.SEED_MAX),
            "on_restart": {"enum": [*(str(policy) for policy in OnRestart), None]},
        },
    }


def _input_message() -> Schema:
    content = {"oneOf": [_text(), {**_array(ref("InputText")), "maxItems": limits.INPUT_ITEMS_MAX}]}
    return {
        "type": "object",
        "required": ["role", "content"],
        "properties": {
            "type": {"enum": ["message", None]},
            "role": {"enum": list(ROLES)},
            "content": content,
        },
    }


def _object(properties: dict[str, Schema]) -> Schema:
    return {"type": "object", "required": list(properties), "properties": properties}


def _array(items: Schema) -> Schema:
    return {"type": "array", "items": items}


def _text() -> Schema:
    return {"type": "string", "maxLength": limits.INPUT_TEXT_MAX_CHARS}


def _or_null() -> Schema:
    return {"type": ["string", "null"]}


def _number(most: float, default: float) -> Schema:
    return {"type": ["number", "null"], "minimum": 0, "maximum": most, "default": default}


def _integer(least: int, most: int) -> Schema:
    return {"type": ["integer", "null"], "minimum": least, "maximum": most}
