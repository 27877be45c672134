"""The `input` of a create request, as the messages that a chat template takes.

Accepted: a string; messages with or without `type`; and messages that the model wrote, sent back as they came, with
optional members missing or null. Members that change nothing (`id`, `status`, `annotations`, `phase`) may be there.
"""

from typing import Any

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
from perdure.domain.limits import INPUT_ITEMS_MAX, INPUT_TEXT_MAX_CHARS
from perdure.domain.model import Message

ROLES = {"user": "user", "assistant": "assistant", "system": "system", "developer": "system"}
TEXT_PARTS = ("input_text", "output_text", "text")

PARTS_NOT_SERVED = frozenset(
    {
        "input_image",
        "input_file",
        "input_audio",
        "input_video",
        "refusal",
        "reasoning_text",
        "summary_text",
        "computer_screenshot",
        "encrypted_content",
    }
)

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
        "function_call",
        "function_call_output",
        "image_generation_call",
        "item_reference",
        "local_shell_call",
        "local_shell_call_output",
        "mcp_approval_request",
        "mcp_approval_response",
        "mcp_call",
        "mcp_list_tools",
        "program",
        "program_output",
        "reasoning",
        "shell_call",
        "shell_call_output",
        "tool_search_call",
        "tool_search_output",
        "web_search_call",
    }
)


def read(value: object) -> tuple[Message, ...]:
    """The messages of `input`. Raises `InvalidRequest`."""
    if value is None:
        raise missing("input", "a string or an array of messages")
    if isinstance(value, str):
        found = (Message("user", text(value, "input", INPUT_TEXT_MAX_CHARS)),)
    else:
        items = elements(value, "input", "a string or an array of messages")
        if len(items) > INPUT_ITEMS_MAX:
            raise out_of_range("input", f"at most {INPUT_ITEMS_MAX} items long")
        found = tuple(_message(item, f"input[{index}]") for index, item in enumerate(items))
    if not any(message.content for message in found):
        raise InvalidRequest("`input` is empty: there is nothing to answer.", param="input", code="empty_input")
    return found


def _message(value: object, where: str) -> Message:
    item = members(value, where)
    _check_type(item, where)
    if item.get("role") is None:
        raise missing(f"{where}.role", f"one of {', '.join(ROLES)}")
    role = choice(item["role"], f"{where}.role", tuple(ROLES))
    return Message(ROLES[role], _content(item.get("content"), f"{where}.content"))


def _check_type(item: dict[str, Any], where: str) -> None:
    kind = item.get("type")
    if kind is None and item.keys() <= {"id", "type"} and item:
        kind = "item_reference"  # the one item other than a message whose type may be left out
    if kind is None or kind == "message":
        return
    where = f"{where}.type"
    if not isinstance(kind, str):
        raise wrong_type(where, "a string")
    if kind in ITEMS_NOT_SERVED:
        raise unsupported(where, f"Input items of type `{kind}` are not supported yet; `message` is.")
    raise wrong_value(where, "`message`")


def _content(value: object, where: str) -> str:
    if value is None:
        raise missing(where, "a string or an array of parts")
    if isinstance(value, str):
        return text(value, where, INPUT_TEXT_MAX_CHARS)
    parts = elements(value, where, "a string or an array of parts")
    if len(parts) > INPUT_ITEMS_MAX:
        raise out_of_range(where, f"at most {INPUT_ITEMS_MAX} parts long")
    return "".join(_part(part, f"{where}[{index}]") for index, part in enumerate(parts))


def _part(value: object, where: str) -> str:
    part = members(value, where)
    kind = part.get("type")
    if kind is None:
        raise missing(f"{where}.type", "`input_text` or `output_text`")
    if not isinstance(kind, str):
        raise wrong_type(f"{where}.type", "a string")
    if kind in PARTS_NOT_SERVED:
        raise unsupported(f"{where}.type", f"Parts of type `{kind}` are not supported yet; text is.")
    if kind not in TEXT_PARTS:
        raise wrong_value(f"{where}.type", "`input_text` or `output_text`")
    if part.get("text") is None:
        raise missing(f"{where}.text", "a string")
    return text(part["text"], f"{where}.text", INPUT_TEXT_MAX_CHARS)
