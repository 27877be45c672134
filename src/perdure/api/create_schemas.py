"""The objects of /openapi.json that a create request is made of. Every bound comes from where it is enforced.

What no schema can say is said in words: that a choice must name a tool of the request, and that there must be
something to answer.
"""

from collections.abc import Mapping
from typing import Any

from perdure.api.create_body import TRUNCATIONS
from perdure.api.fields import ELSEWHERE, HINTS, NOT_SERVED, SERVED
from perdure.api.input_items import MEDIA_PARTS, NAME_MAX_CHARS, PHASES, TEXT_PARTS
from perdure.api.options import COMPLETION_WINDOWS, IDENTIFIERS, INCLUDABLE, REASONING
from perdure.api.sampling import NUMBERS
from perdure.api.text_format import VERBOSITIES, VERBOSITY_DEFAULT
from perdure.api.tools import MODES
from perdure.domain import limits
from perdure.domain.items import ROLES
from perdure.domain.recovery import OnRestart

Schema = dict[str, Any]

_OBJECT: Schema = {"type": ["object", "null"]}
_NOTHING: Schema = {"type": "null"}
_STATUS: Schema = {"enum": ["in_progress", "completed", "incomplete", None]}

_DEFAULTS: Mapping[str, Schema] = {
    "access_programs": {**_OBJECT, "properties": {"cyber": {"enum": ["standard", None]}}},
    "context_management": {"type": ["array", "null"], "maxItems": 0},
    "conversation": _NOTHING,
    "image": {**_OBJECT, "properties": {"context_compression": {"enum": ["auto", None]}}},
    "moderation": {**_OBJECT, "maxProperties": 0},
    "personality": _NOTHING,
    "prompt": _NOTHING,
    "service_tier": {"enum": ["auto", "default", None]},
}
"""What `fields.NOT_SERVED` accepts. Members that are not named may only be null."""


def components() -> dict[str, Schema]:
    """Every named object."""
    return {
        "CreateResponse": _create_response(),
        "InputMessage": _item("message", needed=("role", "content"), **_message()),
        "InputFunctionCall": _item("function_call", needed=("type", "call_id", "name", "arguments"), **_call()),
        "InputFunctionCallOutput": _item("function_call_output", needed=("type", "call_id", "output"), **_result()),
        "InputReasoning": _item("reasoning", needed=("type",), **_reasoning()),
        "InputReference": _item("item_reference", needed=("id",), id=_name()),
        "InputPart": _part(),
        "InputTool": _tool(),
        "InputTextFormat": _text_format(),
    }


def _create_response() -> Schema:
    not_served = ", ".join(f"`{name}` ({default})" for name, (_, default) in NOT_SERVED.items())
    properties = {**_plain(), **_objects(), **_lists(), **_not_served()}
    return {
        "type": "object",
        "required": ["model"],
        "anyOf": [{"required": ["input"]}, {"required": ["previous_response_id"]}],
        "description": (
            "`null` stands for absence. Known fields that are not served are refused unless they hold their default:"
            f" {not_served}. Without effect, and named in `perdure.ignored`: {', '.join(sorted(HINTS))},"
            " and every field that is not known. Fields of other interfaces are refused."
        ),
        "propertyNames": {"maxLength": limits.UNKNOWN_NAME_MAX_CHARS, "not": {"enum": sorted(ELSEWHERE)}},
        "maxProperties": len(SERVED) + limits.UNKNOWN_FIELDS_MAX,
        "properties": properties,
    }


def _plain() -> dict[str, Schema]:
    """Fields that hold one value."""
    return {
        "model": {"type": "string", "minLength": 1, "maxLength": limits.MODEL_NAME_MAX_CHARS},
        "instructions": _text("null"),
        "previous_response_id": {"type": ["string", "null"], "minLength": 1, "maxLength": NAME_MAX_CHARS},
        "background": _flag(default=False),
        "store": _flag(default=True),
        "stream": _flag(default=False),
        "parallel_tool_calls": _flag(default=True),
        "max_output_tokens": _integer(limits.OUTPUT_TOKENS_MIN, limits.OUTPUT_TOKENS_MAX),
        "max_tool_calls": _integer(1, limits.TOOL_CALLS_MAX),
        "top_logprobs": {**_integer(0, limits.TOP_LOGPROBS_MAX), "default": 0},
        "seed": _integer(0, limits.SEED_MAX),
        "on_restart": {"enum": [*(str(policy) for policy in OnRestart), None]},
        "truncation": {"enum": [*TRUNCATIONS, None], "default": "disabled"},
        **{name: _number(*bounds) for name, bounds in NUMBERS.items()},
        **{name: {"type": ["string", "null"], "maxLength": most} for name, most in IDENTIFIERS.items()},
    }


def _objects() -> dict[str, Schema]:
    """Fields that hold an object."""
    verbosity: Schema = {"enum": [*VERBOSITIES, None], "default": VERBOSITY_DEFAULT}
    identifier: Schema = {"type": ["string", "null"], "maxLength": limits.IDENTIFIER_MAX_CHARS}
    effects = {name: {"enum": [*values, None]} for name, values in REASONING.items()}
    windows: Schema = {"enum": [COMPLETION_WINDOWS[0], None]}
    return {
        "metadata": {
            **_OBJECT,
            "maxProperties": limits.METADATA_PAIRS_MAX,
            "propertyNames": {"maxLength": limits.METADATA_KEY_MAX_CHARS},
            "additionalProperties": {"type": "string", "maxLength": limits.METADATA_VALUE_MAX_CHARS},
        },
        "text": {**_OBJECT, "properties": {"format": _ref("InputTextFormat"), "verbosity": verbosity}},
        "reasoning": {**_OBJECT, "properties": {**effects, "mode": identifier}},
        "stream_options": {**_OBJECT, "properties": {"include_obfuscation": _flag(default=False)}},
        "background_options": {
            **_OBJECT,
            "properties": {"completion_window": windows, "continuation_id": identifier},
        },
        "prompt_cache_options": {**_OBJECT, "properties": {"prewarm": {"enum": [False, None]}}},
    }


def _lists() -> dict[str, Schema]:
    """Fields that hold a list, and the choice among one."""
    items = ("InputMessage", "InputFunctionCall", "InputFunctionCallOutput", "InputReasoning", "InputReference")
    listed = _array({"anyOf": [_ref(name) for name in items]}, limits.INPUT_ITEMS_MAX)
    return {
        "input": {"anyOf": [_text(), listed, _NOTHING]},
        "include": {**_array({"enum": list(INCLUDABLE)}, limits.INCLUDE_MAX), "type": ["array", "null"]},
        "tools": {
            **_array(_ref("InputTool"), limits.TOOLS_MAX),
            "type": ["array", "null"],
            "description": "Functions are served. Tools of other types are left out, and named in `perdure.ignored`.",
        },
        "tool_choice": {
            "anyOf": [{"enum": [*MODES, None]}, _chosen(), _allowed()],
            "description": "What it names must be a function in `tools`, and `required` needs one there.",
        },
    }


def _not_served() -> dict[str, Schema]:
    objects = {name: {**found, "additionalProperties": _NOTHING} for name, found in _DEFAULTS.items()}
    return {name: objects[name] if _DEFAULTS[name].get("properties") else _DEFAULTS[name] for name in _DEFAULTS}


def _chosen() -> Schema:
    function = {"type": "string", "maxLength": limits.FUNCTION_NAME_MAX_CHARS}
    return _object({"type": {"const": "function"}, "name": function}, "type", "name")


def _allowed() -> Schema:
    tools = {**_array(_chosen(), limits.TOOLS_MAX), "minItems": 1}
    mode: Schema = {"enum": [*MODES, None], "default": "auto"}
    return _object({"type": {"const": "allowed_tools"}, "mode": mode, "tools": tools}, "type", "tools")


def _tool() -> Schema:
    function = {
        "type": {"const": "function"},
        "name": _pattern("_.-", limits.FUNCTION_NAME_MAX_CHARS),
        "description": {"type": ["string", "null"], "maxLength": limits.DESCRIPTION_MAX_CHARS},
        "parameters": {**_OBJECT, "description": "The JSON Schema of the arguments."},
        "strict": {"type": ["boolean", "null"]},
    }
    other: Schema = {"type": "string", "not": {"const": "function"}}
    return {"anyOf": [_object(function, "type", "name"), _object({"type": other}, "type")]}


def _text_format() -> Schema:
    with_schema = {
        "type": {"const": "json_schema"},
        "name": _pattern("_-", limits.FORMAT_NAME_MAX_CHARS),
        "schema": {"type": "object"},
        "description": {"type": ["string", "null"], "maxLength": limits.DESCRIPTION_MAX_CHARS},
        "strict": _flag(default=False),
    }
    return {
        "anyOf": [
            {**_OBJECT, "maxProperties": 0},
            _object({"type": {"enum": ["text", "json_object"]}}, "type"),
            _object(with_schema, "type", "name", "schema"),
        ]
    }


def _item(kind: str, *, needed: tuple[str, ...], **properties: Schema) -> Schema:
    named: Schema = {"const": kind} if "type" in needed else {"enum": [kind, None]}
    ident: Schema = {"type": ["string", "null"], "maxLength": NAME_MAX_CHARS}
    return _object({"id": ident, "type": named, "status": _STATUS, **properties}, *needed)


def _message() -> dict[str, Schema]:
    return {
        "role": {"enum": list(ROLES)},
        "content": _content(),
        "phase": {"enum": [*PHASES, None]},
        "tool_calls": {"type": ["array", "null"], "maxItems": 0},
        "function_call": {**_OBJECT, "maxProperties": 0},
    }


def _call() -> dict[str, Schema]:
    return {"call_id": _name(), "name": _name(), "arguments": _text()}


def _result() -> dict[str, Schema]:
    return {"call_id": _name(), "output": _content()}


def _reasoning() -> dict[str, Schema]:
    parts: Schema = {"type": ["array", "null"], "items": {"type": "object"}}
    return {"summary": parts, "content": parts, "encrypted_content": _text("null")}


def _content() -> Schema:
    return {"anyOf": [_text(), _array(_ref("InputPart"), limits.INPUT_ITEMS_MAX)]}


def _part() -> Schema:
    annotations: Schema = {"type": ["array", "null"]}
    texts = {"type": {"enum": list(TEXT_PARTS)}, "text": _text(), "annotations": annotations}
    return {
        "anyOf": [
            _object(texts, "type", "text"),
            _object({"type": {"const": "refusal"}, "refusal": _text()}, "type", "refusal"),
            _object({"type": {"enum": list(MEDIA_PARTS)}}, "type"),
        ]
    }


def _ref(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


def _object(properties: dict[str, Schema], *needed: str) -> Schema:
    return {"type": "object", "required": list(needed), "properties": properties}


def _array(items: Schema, most: int) -> Schema:
    return {"type": "array", "items": items, "maxItems": most}


def _text(*others: str) -> Schema:
    return {"type": ["string", *others] if others else "string", "maxLength": limits.INPUT_TEXT_MAX_CHARS}


def _name() -> Schema:
    return {"type": "string", "minLength": 1, "maxLength": NAME_MAX_CHARS}


def _pattern(others: str, most: int) -> Schema:
    return {"type": "string", "pattern": f"^[a-zA-Z0-9{others}]{{1,{most}}}$"}


def _flag(*, default: bool) -> Schema:
    return {"type": ["boolean", "null"], "default": default}


def _number(least: float, most: float, default: float | None) -> Schema:
    bounds: Schema = {"type": ["number", "null"], "minimum": least, "maximum": most}
    return bounds if default is None else {**bounds, "default": default}


def _integer(least: int, most: int) -> Schema:
    return {"type": ["integer", "null"], "minimum": least, "maximum": most}
