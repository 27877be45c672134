"""The `input` of a create request, in normal form (`domain.items`).

Accepted: a string; messages with or without `type`; calls of functions and their results; references; and whatever a
model has written, sent back as it came, with optional members missing or null. What a model that reads text cannot
take (images, files, reasoning) is kept and left out of the prompt, and named.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from perdure.api.values import (
    choice,
    elements,
    members,
    missing,
    out_of_range,
    text,
    unsupported,
    wrong_type,
    wrong_value,
)
from perdure.domain.errors import InvalidRequest
from perdure.domain.items import ROLES, Item
from perdure.domain.limits import INPUT_ITEMS_MAX, INPUT_TEXT_MAX_CHARS

NAME_MAX_CHARS = 256
TEXT_PARTS = ("input_text", "output_text", "text")
MEDIA_PARTS = ("input_image", "input_file", "input_audio", "input_video", "computer_screenshot")

ITEMS_NOT_SERVED = frozenset(
    {
        "additional_tools",
        "apply_patch_call",
        "apply_patch_call_output",
        "code_interpreter_call",
        "compaction",
        "compaction_trigger",
        "computer_call",
        "computer_call_output",
        "configuration_update",
        "custom_tool_call",
        "custom_tool_call_output",
        "file_search_call",
        "image_generation_call",
        "local_shell_call",
        "local_shell_call_output",
        "mcp_approval_request",
        "mcp_approval_response",
        "mcp_call",
        "mcp_list_tools",
        "program",
        "program_output",
        "shell_call",
        "shell_call_output",
        "tool_search_call",
        "tool_search_output",
        "web_search_call",
    }
)


class Input(NamedTuple):
    """The items, and the paths of those items and parts that the model does not get."""

    items: list[Item]
    ignored: list[str]


def read(value: object) -> Input:
    """The items of `input`. Raises `InvalidRequest`."""
    if value is None:
        raise missing("input", "a string or an array of items")
    found = Input([], [])
    if isinstance(value, str):
        part = {"type": "input_text", "text": text(value, "input", INPUT_TEXT_MAX_CHARS)}
        found.items.append({"type": "message", "role": "user", "status": "completed", "content": [part]})
    else:
        items = elements(value, "input", "a string or an array of items")
        if len(items) > INPUT_ITEMS_MAX:
            raise out_of_range("input", f"at most {INPUT_ITEMS_MAX} items long")
        found.items.extend(_item(item, f"input[{index}]", found.ignored) for index, item in enumerate(items))
    if not any(_says_something(item) for item in found.items):
        raise InvalidRequest("`input` is empty: there is nothing to answer.", param="input", code="empty_input")
    return found


def _says_something(item: Item) -> bool:
    if item["type"] != "message":
        return item["type"] != "reasoning"
    return any(part.get("text") or part["type"] in MEDIA_PARTS for part in item["content"])


def _item(value: object, where: str, ignored: list[str]) -> Item:
    item = members(value, where)
    kind = item.get("type")
    if kind is None:
        # The one item other than a message whose type may be left out.
        kind = "item_reference" if item and item.keys() <= {"id", "type"} else "message"
    if not isinstance(kind, str):
        raise wrong_type(f"{where}.type", "a string")
    if kind in ITEMS_NOT_SERVED:
        raise unsupported(f"{where}.type", f"Input items of type `{kind}` are not supported; {_SERVED} are.")
    if kind not in _READERS:
        raise wrong_value(f"{where}.type", f"one of {_SERVED}")
    read_one = _READERS[kind](item, where, ignored)
    given = {"id": text(item["id"], f"{where}.id", NAME_MAX_CHARS)} if item.get("id") is not None else {}
    return {**given, "type": kind, **read_one}


def _message(item: dict[str, Any], where: str, ignored: list[str]) -> Item:
    if item.get("role") is None:
        raise missing(f"{where}.role", f"one of {', '.join(ROLES)}")
    role = choice(item["role"], f"{where}.role", tuple(ROLES))
    kind = "output_text" if role == "assistant" else "input_text"
    return {"role": role, "status": _status(item), "content": _content(item, "content", where, kind, ignored)}


def _function_call(item: dict[str, Any], where: str, _: list[str]) -> Item:
    needed = {name: _needed(item, name, where) for name in ("call_id", "name", "arguments")}
    return {"status": _status(item), **needed}


def _function_call_output(item: dict[str, Any], where: str, ignored: list[str]) -> Item:
    called = _needed(item, "call_id", where)
    output = _content(item, "output", where, "input_text", ignored)
    return {"status": _status(item), "call_id": called, "output": output}


def _reasoning(item: dict[str, Any], where: str, ignored: list[str]) -> Item:
    ignored.append(where)
    kept = {name: item[name] for name in ("content", "encrypted_content", "status") if item.get(name) is not None}
    return {"summary": elements(item.get("summary") or [], f"{where}.summary", "an array"), **kept}


def _item_reference(item: dict[str, Any], where: str, _: list[str]) -> Item:
    return {"id": _needed(item, "id", where)}


_READERS: Mapping[str, Callable[[dict[str, Any], str, list[str]], Item]] = {
    "message": _message,
    "function_call": _function_call,
    "function_call_output": _function_call_output,
    "reasoning": _reasoning,
    "item_reference": _item_reference,
}
_SERVED = ", ".join(f"`{kind}`" for kind in _READERS)


def _status(item: dict[str, Any]) -> str:
    return "incomplete" if item.get("status") == "incomplete" else "completed"


def _needed(item: dict[str, Any], name: str, where: str) -> str:
    if item.get(name) is None:
        raise missing(f"{where}.{name}", "a string")
    return text(item[name], f"{where}.{name}", INPUT_TEXT_MAX_CHARS)


def _content(item: dict[str, Any], name: str, where: str, kind: str, ignored: list[str]) -> list[Item]:
    """A text or a list of parts, as a list of parts; a bare text becomes a part of this kind."""
    value, where = item.get(name), f"{where}.{name}"
    if value is None:
        raise missing(where, "a string or an array of parts")
    if isinstance(value, str):
        return [_text_part(kind, text(value, where, INPUT_TEXT_MAX_CHARS))]
    parts = elements(value, where, "a string or an array of parts")
    if len(parts) > INPUT_ITEMS_MAX:
        raise out_of_range(where, f"at most {INPUT_ITEMS_MAX} parts long")
    return [_part(part, f"{where}[{index}]", kind, ignored) for index, part in enumerate(parts)]


def _text_part(kind: str, shown: str) -> Item:
    part = {"type": kind, "text": shown}
    return {**part, "annotations": [], "logprobs": []} if kind == "output_text" else part


def _part(value: object, where: str, kind: str, ignored: list[str]) -> Item:
    part = members(value, where)
    given = part.get("type")
    if given is None:
        raise missing(f"{where}.type", "`input_text` or `output_text`")
    if not isinstance(given, str):
        raise wrong_type(f"{where}.type", "a string")
    if given in MEDIA_PARTS:
        ignored.append(where)
        return part
    if given == "refusal":
        return {"type": given, "refusal": _needed(part, "refusal", where)}
    if given not in TEXT_PARTS:
        raise wrong_value(f"{where}.type", "`input_text` or `output_text`")
    return _text_part(kind if given == "text" else given, _needed(part, "text", where))
