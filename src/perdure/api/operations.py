"""What each operation takes and answers, for /openapi.json: one entry an operation id."""

from collections.abc import Mapping
from typing import Any

from perdure.api.options import INCLUDABLE
from perdure.api.schemas import ref
from perdure.domain import limits
from perdure.domain.lifecycle import Status

Part = dict[str, Any]

_CURSOR: Part = {"type": "integer", "minimum": 0}


def _json(description: str, schema: str, frame: str | None = None) -> Part:
    """An answer, and what a stream has instead: each of its frames is a `frame`."""
    content: Part = {"application/json": {"schema": ref(schema)}}
    if frame is not None:
        content["text/event-stream"] = {"schema": ref(frame)}
    return {"description": description, "content": content}


def _body(schema: str, **example: object) -> Part:
    """What is sent. The example is what /docs begins with, so it is one that works after the first start."""
    content = {"schema": ref(schema), "example": {"model": "smollm2-135m-instruct", **example}}
    return {"required": True, "content": {"application/json": content}}


def _query(name: str, schema: Part, description: str) -> Part:
    return {"name": name, "in": "query", "required": False, "schema": schema, "description": description}


def _page(most: int, default: int, noun: str) -> list[Part]:
    """The parameters of a page."""
    size: Part = {"type": "integer", "minimum": 1, "maximum": most, "default": default}
    return [
        _query("limit", size, "How many at most."),
        _query("after", {"type": "string"}, f"The id of the last {noun} of the page before."),
        _query("order", {"enum": ["asc", "desc"], "default": "desc"}, "By the time of creation."),
    ]


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

_CREATE: Part = {
    "summary": "Create a response",
    "description": "Answers 200 with the finished response, with `stream` its events; with `background` 202 at once.",
    "requestBody": _body("CreateResponse", input="Say hello."),
    "responses": {
        **_answers(_json("The response, or its events.", "Response", "Frame"), 404, 413, 415, 429),
        "202": _json("The response, accepted and kept; `Location` says where to read it.", "Response"),
    },
}

_CHAT: Part = {
    "summary": "Create a chat completion",
    "description": (
        "The same work as a foreground response, asked for and answered in the shapes of chat completions. Answers"
        " 200 with the completion, with `stream` its chunks. Work that fails is a 500 with its code."
    ),
    "requestBody": _body("CreateChatCompletion", messages=[{"role": "user", "content": "Say hello."}]),
    "responses": _answers(_json("The completion, or its chunks.", "ChatCompletion", "ChatFrame"), 404, 413, 415, 429),
}

_INCLUDE = [
    _query(
        name,
        {"type": "array", "items": {"enum": list(INCLUDABLE)}},
        "Changes nothing: what a create has asked for is there anyway.",
    )
    for name in ("include", "include[]")
]

OPERATIONS: Mapping[str, Part] = {
    "create_chat_completion": _CHAT,
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
            _query("include_obfuscation", {"type": "boolean", "default": False}, "With `stream` only false."),
            *_INCLUDE,
            _IF_NONE_MATCH,
        ],
        "responses": _kept(_json("The response, or its events.", "Response", "Frame"), 404),
    },
    "list_responses": {
        "summary": "List one's own stored responses",
        "description": "A page ends early where it would be very large; `has_more` says so.",
        "parameters": [
            *_page(limits.RESPONSES_PAGE_MAX, limits.RESPONSES_PAGE_DEFAULT, "response"),
            _IF_NONE_MATCH,
        ],
        "responses": _kept(_json("A page of responses.", "ResponseList"), 404),
    },
    "list_input_items": {
        "summary": "List the items that a response answers",
        "parameters": [
            *_page(limits.INPUT_ITEMS_PAGE_MAX, limits.INPUT_ITEMS_PAGE_DEFAULT, "item"),
            *_INCLUDE,
            _IF_NONE_MATCH,
        ],
        "responses": _kept(_json("A page of items.", "ItemList"), 404),
    },
    "count_input_tokens": {
        "summary": "Count the tokens of a request",
        "description": "Checks what a create checks, and keeps nothing.",
        "requestBody": _body("CreateResponse", input="Say hello."),
        "responses": _answers(_json("How long the prompt is.", "InputTokens"), 404, 413, 415),
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
            *_page(limits.TASKS_PAGE_MAX, limits.TASKS_PAGE_DEFAULT, "task"),
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
