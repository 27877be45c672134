"""The objects of /openapi.json that only the chat interface has, but for those that are derived from types."""

from typing import Any

from perdure.api import create_schemas
from perdure.api.chat_body import STOP_MAX_CHARS, STOPS_MAX
from perdure.api.chat_fields import ELSEWHERE, HINTS, NOT_SERVED, SAME, SERVED
from perdure.api.chat_messages import PARTS, ROLES
from perdure.api.options import REASONING
from perdure.api.text_format import FORMATS, VERBOSITIES
from perdure.api.tools import MODES
from perdure.domain import limits

Schema = dict[str, Any]

_NOTHING: Schema = {"type": "null"}
_FLAG: Schema = {"type": ["boolean", "null"], "default": False}
_TOKENS: Schema = {
    "type": ["integer", "null"],
    "minimum": limits.OUTPUT_TOKENS_MIN,
    "maximum": limits.OUTPUT_TOKENS_MAX,
}
_STOP: Schema = {"type": "string", "minLength": 1, "maxLength": STOP_MAX_CHARS}


def components() -> dict[str, Schema]:
    """Every named object."""
    return {"CreateChatCompletion": _request(), "ChatInputMessage": _message(), "ChatTool": _tool()}


def _request() -> Schema:
    of_a_response = create_schemas.components()["CreateResponse"]["properties"]
    not_served = ", ".join(f"`{name}` ({default})" for name, (_, default) in NOT_SERVED.items())
    return {
        "type": "object",
        "required": ["model", "messages"],
        "description": (
            "`null` stands for absence. Known fields that are not served are refused unless they hold their default:"
            f" {not_served}. Without effect, and named in `perdure.ignored`: {', '.join(sorted(HINTS))},"
            " and every field that is not known. Fields of other interfaces are refused."
        ),
        "propertyNames": {"maxLength": limits.UNKNOWN_NAME_MAX_CHARS, "not": {"enum": sorted(ELSEWHERE)}},
        "maxProperties": len(SERVED) + limits.UNKNOWN_FIELDS_MAX,
        "properties": {
            **{name: schema for name, schema in of_a_response.items() if name in SAME},
            "messages": _array("ChatInputMessage", limits.INPUT_ITEMS_MAX, 1),
            "store": _FLAG,
            "stream": _FLAG,
            "stream_options": _object_or_null({"include_usage": _FLAG, "include_obfuscation": _FLAG}),
            "max_completion_tokens": _TOKENS,
            "max_tokens": _TOKENS,
            "stop": {"anyOf": [_STOP, {"type": "array", "items": _STOP, "maxItems": STOPS_MAX}, _NOTHING]},
            "logprobs": _FLAG,
            "top_logprobs": {"type": ["integer", "null"], "minimum": 0, "maximum": limits.TOP_LOGPROBS_MAX},
            "response_format": _object_or_null({"type": {"enum": list(FORMATS)}}),
            "tools": {**_array("ChatTool", limits.TOOLS_MAX), "type": ["array", "null"]},
            "tool_choice": {"anyOf": [{"enum": [*MODES, None]}, {"type": "object", "required": ["type"]}]},
            "reasoning_effort": {"enum": [*REASONING["effort"], None]},
            "verbosity": {"enum": [*VERBOSITIES, None]},
        },
    }


def _message() -> Schema:
    text: Schema = {"type": "string", "maxLength": limits.INPUT_TEXT_MAX_CHARS}
    named = [_object({"type": {"const": part}}, "type", part) for part in PARTS]
    parts: Schema = {"type": "array", "items": {"anyOf": named}, "maxItems": limits.INPUT_ITEMS_MAX}
    return _object(
        {
            "role": {"enum": list(ROLES)},
            "content": {"anyOf": [text, parts, _NOTHING], "description": "Null beside `tool_calls` only."},
            "tool_calls": {"type": ["array", "null"], "items": {"type": "object"}},
            "tool_call_id": {"type": ["string", "null"], "description": "Needed in the role `tool`."},
        },
        "role",
    )


def _tool() -> Schema:
    name: Schema = {"type": "string", "pattern": f"^[a-zA-Z0-9_.-]{{1,{limits.FUNCTION_NAME_MAX_CHARS}}}$"}
    function = _object(
        {
            "name": name,
            "description": {"type": ["string", "null"], "maxLength": limits.DESCRIPTION_MAX_CHARS},
            "parameters": {"type": ["object", "null"], "description": "The JSON Schema of the arguments."},
            "strict": {"type": ["boolean", "null"]},
        },
        "name",
    )
    other: Schema = {"type": "string", "not": {"const": "function"}}
    served = _object({"type": {"const": "function"}, "function": function}, "type", "function")
    return {"anyOf": [served, _object({"type": other}, "type")]}


def _object(properties: dict[str, Schema], *needed: str) -> Schema:
    return {"type": "object", "required": list(needed), "properties": properties}


def _array(name: str, most: int, least: int = 0) -> Schema:
    return {
        "type": "array",
        "items": {"$ref": f"#/components/schemas/{name}"},
        "minItems": least,
        "maxItems": most,
    }


def _object_or_null(properties: dict[str, Schema]) -> Schema:
    return {"type": ["object", "null"], "properties": properties}
