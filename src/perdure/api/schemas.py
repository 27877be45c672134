"""The objects of /openapi.json: those that are encoded from types are derived from them, the rest is written here."""

from collections.abc import Mapping
from typing import Any

import msgspec

from perdure.api import chat_schemas, create_schemas
from perdure.api.chat_answer import ChatCompletion, ChatMessage
from perdure.api.chat_stream import CalledPiece, ChatChunk, ChatDelta, ToolCallPiece
from perdure.api.models import Model
from perdure.api.service import ServiceFacts
from perdure.domain.response import Response, ResponseError
from perdure.engine.service import Task

Schema = dict[str, Any]

_SOMETIMES: Mapping[str, frozenset[str]] = {
    ResponseError.__name__: frozenset({"detail"}),
    Task.__name__: frozenset({"history"}),
    ChatMessage.__name__: frozenset({"tool_calls", "reasoning_content"}),
    ChatChunk.__name__: frozenset({"usage", "metadata", "temperature", "top_p", "seed", "perdure"}),
    ChatDelta.__name__: frozenset(ChatDelta.__struct_fields__),
    ToolCallPiece.__name__: frozenset({"id", "type"}),
    CalledPiece.__name__: frozenset({"name"}),
}
"""Members that are left out when they hold nothing; all others are always there."""


def components() -> dict[str, Schema]:
    """Every named object."""
    types = (Response, Task, Model, ServiceFacts, ChatCompletion, ChatChunk)
    _, derived = msgspec.json.schema_components(types, ref_template="#/components/schemas/{name}")
    for name, schema in derived.items():
        if "properties" in schema:
            sometimes = _SOMETIMES.get(name, frozenset())
            schema["required"] = [member for member in schema["properties"] if member not in sometimes]
    return {
        **derived,
        **create_schemas.components(),
        **_requests(),
        **chat_schemas.components(),
        **_errors(),
        **_lists(),
        **_states(),
    }


def ref(name: str) -> Schema:
    """A reference to a named object."""
    return {"$ref": f"#/components/schemas/{name}"}


def _requests() -> dict[str, Schema]:
    return {
        "Item": _object({"id": {"type": "string"}, "type": {"type": "string"}}),
        "InputTokens": _object(
            {"object": {"const": "response.input_tokens"}, "input_tokens": {"type": "integer", "minimum": 0}}
        ),
        "Frame": _frame("Event"),
        "ChatFrame": _frame("ChatChunk", "Error"),
        "Event": _object({"type": {"type": "string"}, "sequence_number": {"type": "integer", "minimum": 0}}),
        "Deleted": _object({"id": {"type": "string"}, "object": {"const": "response"}, "deleted": {"const": True}}),
    }


def _frame(*names: str) -> Schema:
    """One frame of a stream, whose `data` is the JSON of one of those, or the mark of the end."""
    content = {"anyOf": [ref(name) for name in names]}
    payload = {"type": "string", "contentMediaType": "application/json", "contentSchema": content}
    return {**_object({"data": {"anyOf": [{"const": "[DONE]"}, payload]}}), "description": "One frame of a stream."}


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
        "TaskList": _page("Task"),
        "ResponseList": _page("Response"),
        "ItemList": _page("Item"),
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


def _page(name: str) -> Schema:
    return _object(
        {
            "object": {"const": "list"},
            "data": _array(ref(name)),
            "first_id": _or_null(),
            "last_id": _or_null(),
            "has_more": {"type": "boolean"},
        }
    )


def _object(properties: dict[str, Schema]) -> Schema:
    return {"type": "object", "required": list(properties), "properties": properties}


def _array(items: Schema) -> Schema:
    return {"type": "array", "items": items}


def _or_null() -> Schema:
    return {"type": ["string", "null"]}
