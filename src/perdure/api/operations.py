"""What each operation takes and answers, for /openapi.json: one entry an operation id."""

from collections.abc import Mapping
from typing import Any

from perdure.api.schemas import ref
from perdure.domain import limits
from perdure.domain.lifecycle import Status

Part = dict[str, Any]

_CURSOR: Part = {"type": "integer", "minimum": 0}


def _json(description: str, schema: str, *others: str) -> Part:
    content: Part = {"application/json": {"schema": ref(schema)}}
    for media in others:
        content[media] = {"schema": {"type": "string"}}
    return {"description": description, "content": content}


def _query(name: str, schema: Part, description: str) -> Part:
    return {"name": name, "in": "query", "required": False, "schema": schema, "description": description}


def _answers(ok: Part, *statuses: int) -> Part:
    """The good answer, and the errors: `statuses` besides those that every guarded route can give."""
    errors = {str(status): _json(_ERRORS[status], "Error") for status in sorted({400, 401, 403, 500, 503, *statuses})}
    return {"200": ok, **errors}


def _kept(ok: Part, *statuses: int) -> Part:
    """The answers of a conditional read."""
    return {**_answers({**ok, "headers": _VALIDATORS}, *statuses), "304": _NOT_MODIFIED}


_VALIDATORS: Part = {
    "ETag": {
        "description": "Stands for this answer. Missing where something was written during the read, and on streams.",
        "schema": {"type": "string"},
    },
    "Cache-Control": {"description": "`private, no-cache`.", "schema": {"type": "string"}},
}
_NOT_MODIFIED: Part = {"description": "The answer of this `ETag` still holds.", "headers": _VALIDATORS}
_IF_NONE_MATCH: Part = {
    "name": "If-None-Match",
    "in": "header",
    "required": False,
    "schema": {"type": "string"},
    "description": "The `ETag` of an answer that the client has.",
}

_ERRORS = {
    400: "The request cannot be accepted as it stands.",
    401: "No token, or one that names no client.",
    403: "The token lacks a scope, or the door is closed to this host or origin.",
    404: "Nothing of that name that this client may see.",
    413: "The body is too large.",
    415: "The body is not JSON.",
    429: "The queue is full; nothing was created.",
    500: "The service made a mistake.",
    503: "The service cannot do this now.",
}

_SSE = "text/event-stream"

_CREATE: Part = {
    "summary": "Create a response",
    "description": "Answers 200 with the finished response, with `stream` its events; with `background` 202 at once.",
    "requestBody": {"required": True, "content": {"application/json": {"schema": ref("CreateResponse")}}},
    "responses": {
        **_answers(_json("The response, or its events.", "Response", _SSE), 404, 413, 415, 429),
        "202": _json("The response, accepted and kept; `Location` says where to read it.", "Response"),
    },
}

OPERATIONS: Mapping[str, Part] = {
    "create_response": _CREATE,
    "get_response": {
        "summary": "Read a response or its events",
        "parameters": [
            _query(
                "stream",
                {"type": "boolean", "default": False},
                "Send the events, from the first or after the cursor.",
            ),
            _query("starting_after", _CURSOR, "With `stream`: only events with higher numbers."),
            _IF_NONE_MATCH,
        ],
        "responses": _kept(_json("The response, or its events.", "Response", _SSE), 404),
    },
    "cancel_response": {
        "summary": "Cancel a background response",
        "responses": _answers(_json("The response as it is now.", "Response"), 404),
    },
    "delete_response": {
        "summary": "Delete a response",
        "responses": _answers(_json("It is gone.", "Deleted"), 404),
    },
    "list_tasks": {
        "summary": "List one's own tasks",
        "parameters": [
            _query("status", {"enum": [str(status) for status in Status]}, "Only tasks in this state."),
            _query(
                "limit",
                {
                    "type": "integer",
                    "minimum": 1,
                    "maximum": limits.TASKS_PAGE_MAX,
                    "default": limits.TASKS_PAGE_DEFAULT,
                },
                "How many at most.",
            ),
            _query("after", {"type": "string"}, "The id of the last task of the page before."),
            _query("order", {"enum": ["asc", "desc"], "default": "desc"}, "By the time of creation."),
            _IF_NONE_MATCH,
        ],
        "responses": _kept(_json("A page of tasks.", "TaskList"), 404),
    },
    "get_task": {
        "summary": "Read a task",
        "parameters": [_IF_NONE_MATCH],
        "responses": _kept(_json("The task.", "Task"), 404),
    },
    "list_task_events": {
        "summary": "Read the event log of a task",
        "parameters": [
            _query("after", {"type": "integer", "minimum": -1, "default": -1}, "Only events with higher numbers."),
            _query(
                "limit",
                {
                    "type": "integer",
                    "minimum": 1,
                    "maximum": limits.EVENTS_PAGE_MAX,
                    "default": limits.EVENTS_PAGE_DEFAULT,
                },
                "How many at most.",
            ),
            _IF_NONE_MATCH,
        ],
        "responses": _kept(_json("A page of events.", "EventList"), 404),
    },
    "cancel_task": {
        "summary": "Cancel a task, foreground or background",
        "responses": _answers(_json("The task as it is now.", "Task"), 404),
    },
    "list_models": {
        "summary": "List the models that can be asked",
        "parameters": [_IF_NONE_MATCH],
        "responses": _kept(_json("Every model.", "ModelList")),
    },
    "get_model": {
        "summary": "Read a model",
        "parameters": [_IF_NONE_MATCH],
        "responses": _kept(_json("The model.", "Model"), 404),
    },
    "get_service": {
        "summary": "Version, counters and condition",
        "responses": _answers(_json("What the service says of itself.", "ServiceFacts")),
    },
    "get_metrics": {
        "summary": "The same in numbers, for Prometheus",
        "responses": _answers(
            {"description": "All metrics as they are now.", "content": {"text/plain": {"schema": {"type": "string"}}}}
        ),
    },
    "healthz": {
        "summary": "Whether the process lives",
        "security": [],
        "responses": {"200": _json("It does.", "Alive")},
    },
    "readyz": {
        "summary": "Whether work can be taken",
        "security": [],
        "responses": {
            "200": _json("It can.", "Ready"),
            "503": _json("It cannot; the reason says why.", "NotReady"),
        },
    },
}
