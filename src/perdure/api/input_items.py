"""The `input` of a create request, in normal form (`domain.items`).

Accepted: a string; messages with or without `type`; calls of functions and their results; references; and whatever a
model has written, sent back as it came, with optional members missing or null. What a model that reads text cannot
take (images, files, reasoning) is kept and left out of the prompt, and named; so are members that nobody reads.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from perdure.api.values import (
    choice,
    elements,
    members,
    missing,
    out_of_range,
    strangers,
    text,
    unsupported,
    wrong_type,
    wrong_value,
)
from perdure.domain.items import ROLES, Item, is_json_object
from perdure.domain.limits import INPUT_ITEMS_MAX, INPUT_TEXT_MAX_CHARS

NAME_MAX_CHARS = 256
TEXT_PARTS = ("input_text", "output_text", "text")
MEDIA_PARTS = ("input_image", "input_file", "input_audio", "input_video", "computer_screenshot")
PHASES = ("commentary", "final_answer")

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
    """The items, and the paths of what the model does not get."""

    items: list[Item]
    ignored: list[str]


def read(value: object) -> Input:
    """The items of `input`. Raises `InvalidRequest`."""
    found = Input([], [])
    if isinstance(value, str):
        part = {"type": "input_text", "text": text(value, "input", INPUT_TEXT_MAX_CHARS)}
        found.items.append({"type": "message", "role": "user", "status": "completed", "content": [part]})
    elif value is not None:
        items = elements(value, "input", "a string or an array of items")
        if len(items) > INPUT_ITEMS_MAX:
            raise out_of_range("input", f"at most {INPUT_ITEMS_MAX} items long")
        found.items.extend(_item(item, f"input[{index}]", found.ignored) for index, item in enumerate(items))
    return found


def says_something(item: Item) -> bool:
    """Whether there is anything in it to answer."""
    if item["type"] != "message":
        return item["type"] != "reasoning"
    return any(part.get("text") or part.get("refusal") or part["type"] in MEDIA_PARTS for part in item["content"])


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
    known, read_one = _READERS[kind]
    ident = text(item.get("id") or "", f"{where}.id", NAME_MAX_CHARS)
    found = read_one(item, where, ignored)
    ignored.extend(strangers(item, ("id", "type", "status", *known), where))
    return {**({"id": ident} if ident else {}), "type": kind, **found}


def _message(item: dict[str, Any], where: str, ignored: list[str]) -> Item:
    if item.get("role") is None:
        raise missing(f"{where}.role", f"one of {', '.join(ROLES)}")
    if item["role"] in ("tool", "function"):
        raise unsupported(f"{where}.role", "Results of calls are items of type `function_call_output` here.")
    if item.get("tool_calls") or item.get("function_call"):
        member = "tool_calls" if item.get("tool_calls") else "function_call"
        raise unsupported(f"{where}.{member}", "Calls are items of type `function_call` here.")
    role = choice(item["role"], f"{where}.role", tuple(ROLES))
    kind = "output_text" if role == "assistant" else "input_text"
    found = {"role": role, "status": _status(item), "content": _content(item, "content", where, kind, ignored)}
    if item.get("phase") is None:
        return found
    return {**found, "phase": choice(item["phase"], f"{where}.phase", PHASES)}


def _function_call(item: dict[str, Any], where: str, _: list[str]) -> Item:
    """A call that was cut off comes back too, if need be without the status that says so."""
    arguments = _needed(item, "arguments", where)
    cut_off = item.get("status") is None and not is_json_object(arguments)
    return {
        "status": "incomplete" if cut_off else _status(item),
        "call_id": _name(item, "call_id", where),
        "name": _name(item, "name", where),
        "arguments": arguments,
    }


def _function_call_output(item: dict[str, Any], where: str, ignored: list[str]) -> Item:
    called = _name(item, "call_id", where)
    output = _content(item, "output", where, "input_text", ignored)
    return {"status": _status(item), "call_id": called, "output": output}


def _reasoning(item: dict[str, Any], where: str, ignored: list[str]) -> Item:
    ignored.append(where)
    found: Item = {"summary": []}
    for name in ("summary", "content"):
        if item.get(name) is not None:
            parts = elements(item[name], f"{where}.{name}", "an array of parts")
            found[name] = [members(part, f"{where}.{name}[{index}]") for index, part in enumerate(parts)]
    if item.get("encrypted_content") is not None:
        found["encrypted_content"] = _needed(item, "encrypted_content", where)
    return {**found, "status": _status(item)}


def _item_reference(item: dict[str, Any], where: str, _: list[str]) -> Item:
    return {"id": _name(item, "id", where)}


_READERS: Mapping[str, tuple[Sequence[str], Callable[[dict[str, Any], str, list[str]], Item]]] = {
    "message": (("role", "content", "phase"), _message),
    "function_call": (("call_id", "name", "arguments"), _function_call),
    "function_call_output": (("call_id", "output"), _function_call_output),
    "reasoning": (("summary", "content", "encrypted_content"), _reasoning),
    "item_reference": ((), _item_reference),
}
"""The members that are read of each type of item, and what reads them."""
_SERVED = ", ".join(f"`{kind}`" for kind in _READERS)


def _status(item: dict[str, Any]) -> str:
    return "incomplete" if item.get("status") == "incomplete" else "completed"


def _needed(item: dict[str, Any], name: str, where: str, most: int = INPUT_TEXT_MAX_CHARS) -> str:
    if item.get(name) is None:
        raise missing(f"{where}.{name}", "a string")
    return text(item[name], f"{where}.{name}", most)


def _name(item: dict[str, Any], name: str, where: str) -> str:
    found = _needed(item, name, where, NAME_MAX_CHARS)
    if not found:
        raise wrong_value(f"{where}.{name}", "a string that is not empty")
    return found


def _content(item: dict[str, Any], name: str, where: str, kind: str, ignored: list[str]) -> list[Item]:
    """A text or a list of parts, as a list of parts; texts become parts of this kind."""
    value, where = item.get(name), f"{where}.{name}"
    if value is None:
        raise missing(where, "a string or an array of parts")
    if isinstance(value, str):
        return [text_part(kind, text(value, where, INPUT_TEXT_MAX_CHARS))]
    parts = elements(value, where, "a string or an array of parts")
    if len(parts) > INPUT_ITEMS_MAX:
        raise out_of_range(where, f"at most {INPUT_ITEMS_MAX} parts long")
    return [_part(part, f"{where}[{index}]", kind, ignored) for index, part in enumerate(parts)]


def text_part(kind: str, shown: str) -> Item:
    """A part of one of the two kinds that hold text."""
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
        ignored.extend(strangers(part, ("type", "refusal"), where))
        return {"type": given, "refusal": _needed(part, "refusal", where)}
    if given not in TEXT_PARTS:
        raise wrong_value(f"{where}.type", "`input_text` or `output_text`")
    ignored.extend(strangers(part, ("type", "text", "annotations", "logprobs"), where))
    found = text_part(kind, _needed(part, "text", where))
    if kind == "output_text" and part.get("annotations") is not None:
        found["annotations"] = elements(part["annotations"], f"{where}.annotations", "an array")
    return found
