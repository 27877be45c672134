"""The `messages` of a chat request, as items in normal form (`domain.items`).

A message with calls becomes its text, if it has any, and an item for each call. What a model that reads text cannot
take (images, audio, files), and members that change no text, are left out of the prompt and named.
"""

from typing import Any, NamedTuple

from perdure.api.input_items import NAME_MAX_CHARS, says_something, text_part
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
from perdure.domain.errors import InvalidRequest
from perdure.domain.items import Item, is_json_object
from perdure.domain.limits import INPUT_ITEMS_MAX, INPUT_TEXT_MAX_CHARS

ROLES = ("system", "developer", "user", "assistant", "tool")
PARTS = ("text", "refusal", "image_url", "input_audio", "file")

_READ = {
    "tool": frozenset({"role", "content", "tool_call_id"}),
    "assistant": frozenset({"role", "content", "refusal", "tool_calls", "function_call"}),
}
_READ_OF_OTHERS = frozenset({"role", "content"})


class Given(NamedTuple):
    """The items, the path of what each of them was made of, and the paths of what the model does not get."""

    items: list[Item]
    places: list[str]
    ignored: list[str]


def read(value: object) -> Given:
    """The items of `messages`. Raises `InvalidRequest`."""
    if value is None:
        raise missing("messages", "an array of messages")
    messages = elements(value, "messages", "an array of messages")
    if len(messages) > INPUT_ITEMS_MAX:
        raise out_of_range("messages", f"at most {INPUT_ITEMS_MAX} messages long")
    reader = _Reader()
    for index, message in enumerate(messages):
        reader.take(members(message, f"messages[{index}]"), f"messages[{index}]")
    if not any(map(says_something, reader.items)):
        raise InvalidRequest("`messages` is empty: there is nothing to answer.", param="messages", code="empty_input")
    return Given(reader.items, reader.places, reader.ignored)


class _Reader:
    """Reads message by message. A call whose arguments were never finished can be shown to no model: it is left out
    with its result, and both are named."""

    def __init__(self) -> None:
        self.items: list[Item] = []
        self.places: list[str] = []
        self.ignored: list[str] = []
        self._called: set[str] = set()
        self._broken: set[str] = set()

    def take(self, message: dict[str, Any], where: str) -> None:
        """Add what a message says."""
        role = _role(message.get("role"), f"{where}.role")
        self.ignored.extend(_unread(message, where, _READ.get(role, _READ_OF_OTHERS)))
        if role == "assistant":
            self._take_said(message, where)
            return
        content = _content(message.get("content"), f"{where}.content", "input_text", self.ignored)
        if role == "tool":
            self._take_result(_name(message, "tool_call_id", where), content, where)
        else:
            self._keep(_message(role, content), where)

    def _keep(self, item: Item, where: str) -> None:
        self.items.append(item)
        self.places.append(where)

    def _take_result(self, call_id: str, output: list[Item], where: str) -> None:
        if call_id in self._broken:
            self.ignored.append(where)
        elif call_id not in self._called:
            raise wrong_value(f"{where}.tool_call_id", "the `id` of one of the `tool_calls` before it")
        else:
            item = {"type": "function_call_output", "status": "completed", "call_id": call_id, "output": output}
            self._keep(item, where)

    def _take_said(self, message: dict[str, Any], where: str) -> None:
        """What a model wrote: a text, calls, or both."""
        calls = message.get("tool_calls")
        calls = [] if calls is None else elements(calls, f"{where}.tool_calls", "an array of calls")
        parts = _said_parts(message, where, self.ignored)
        if not parts and not calls:
            raise missing(f"{where}.content", "a string or an array of parts; null only beside `tool_calls`")
        if not calls or any(part.get("text") != "" for part in parts):
            self._keep(_message("assistant", parts), where)
        for index, call in enumerate(calls):
            self._take_call(members(call, f"{where}.tool_calls[{index}]"), f"{where}.tool_calls[{index}]")

    def _take_call(self, call: dict[str, Any], where: str) -> None:
        item = _call(call, where)
        if is_json_object(item["arguments"]):
            self._called.add(item["call_id"])
            self._keep(item, where)
        else:
            self._broken.add(item["call_id"])
            self.ignored.append(where)


def _role(value: object, where: str) -> str:
    if value is None:
        raise missing(where, f"one of {', '.join(ROLES)}")
    if value == "function":
        raise unsupported(
            where, "Messages of the role `function` are not supported; send role `tool`, with `tool_call_id`."
        )
    return choice(value, where, ROLES)


def _said_parts(message: dict[str, Any], where: str, ignored: list[str]) -> list[Item]:
    if message.get("function_call") is not None:
        raise unsupported(
            f"{where}.function_call", "`function_call` of a message is not supported; send `tool_calls`."
        )
    content, refusal = message.get("content"), message.get("refusal")
    parts = [] if content is None else _content(content, f"{where}.content", "output_text", ignored)
    if refusal is not None:
        parts.append({"type": "refusal", "refusal": text(refusal, f"{where}.refusal", INPUT_TEXT_MAX_CHARS)})
    return parts


def _message(role: str, content: list[Item]) -> Item:
    return {"type": "message", "role": role, "status": "completed", "content": content}


def _call(call: dict[str, Any], where: str) -> Item:
    if call.get("type") not in (None, "function"):
        raise unsupported(f"{where}.type", "Calls other than of type `function` are not supported.")
    function = members(call.get("function"), f"{where}.function")
    return {
        "type": "function_call",
        "status": "completed",
        "call_id": _name(call, "id", where),
        "name": _name(function, "name", f"{where}.function"),
        # Some clients put a call without arguments together from no pieces at all.
        "arguments": _needed(function, "arguments", f"{where}.function") or "{}",
    }


def _name(given: dict[str, Any], name: str, where: str) -> str:
    if given.get(name) in (None, ""):
        raise missing(f"{where}.{name}", "a string that is not empty")
    return text(given[name], f"{where}.{name}", NAME_MAX_CHARS)


def _needed(given: dict[str, Any], name: str, where: str) -> str:
    if given.get(name) is None:
        raise missing(f"{where}.{name}", "a string")
    return text(given[name], f"{where}.{name}", INPUT_TEXT_MAX_CHARS)


def _content(value: object, where: str, kind: str, ignored: list[str]) -> list[Item]:
    """A text or a list of parts, as a list of parts whose texts are of this kind."""
    if value is None:
        raise missing(where, "a string or an array of parts")
    if isinstance(value, str):
        return [text_part(kind, text(value, where, INPUT_TEXT_MAX_CHARS))]
    parts = elements(value, where, "a string or an array of parts")
    if len(parts) > INPUT_ITEMS_MAX:
        raise out_of_range(where, f"at most {INPUT_ITEMS_MAX} parts long")
    return [_part(members(part, f"{where}[{i}]"), f"{where}[{i}]", kind, ignored) for i, part in enumerate(parts)]


def _part(part: dict[str, Any], where: str, kind: str, ignored: list[str]) -> Item:
    given = part.get("type")
    if given is None:
        raise missing(f"{where}.type", f"one of {', '.join(PARTS)}")
    if not isinstance(given, str):
        raise wrong_type(f"{where}.type", "a string")
    if given not in PARTS:
        raise wrong_value(f"{where}.type", f"one of {', '.join(PARTS)}")
    if given == "refusal":
        return {"type": given, "refusal": _needed(part, "refusal", where)}
    if given == "text":
        ignored.extend(_unread(part, where, frozenset({"type", "text"})))
        return text_part(kind, _needed(part, "text", where))
    ignored.append(where)
    return _medium(given, members(part.get(given), f"{where}.{given}"))


def _medium(kind: str, given: dict[str, Any]) -> Item:
    """What a model that reads text does not get, as an item holds it."""
    if kind == "image_url":
        return {"type": "input_image", "image_url": given.get("url"), "detail": given.get("detail") or "auto"}
    return {"type": "input_file", **given} if kind == "file" else {"type": kind, kind: given}


def _unread(given: dict[str, Any], where: str, read_: frozenset[str]) -> list[str]:
    """The paths of members that hold something and have no effect."""
    return strangers({name: value for name, value in given.items() if value not in ("", [], {})}, read_, where)
