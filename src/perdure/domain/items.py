"""The items of a conversation in their normal form: as they are kept, listed and sent back, and what a model reads.

An item is a JSON object with an `id`. In normal form nothing has to be guessed: a message has `type`, `role`,
`status` and a list of parts. `api.input_items` makes it from what clients send; items that a model has written are in
it from the start.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec

from perdure.domain.limits import JSON_DEPTH_MAX
from perdure.domain.model import Message, ToolCall

Item = dict[str, Any]

ROLES = {"user": "user", "assistant": "assistant", "system": "system", "developer": "system"}
"""Roles of the API, and those that chat templates know."""
TEXT_PARTS = frozenset({"input_text", "output_text", "text", "refusal"})
_PREFIXES = {"message": "msg", "function_call": "fc", "function_call_output": "fco", "reasoning": "rs"}
_NAME = re.compile(r"[a-z]+_([0-9A-Za-z_-]{1,64})_(in)?[0-9]+")
_ARGUMENTS = msgspec.json.Decoder(dict[str, Any], float_hook=str)


def output_id(kind: str, ident: str, output_index: int) -> str:
    """The outside name of an output item: a function of its place, so that no restart can change it."""
    return f"{_PREFIXES[kind]}_{ident}_{output_index}"


def home(item_id: str) -> tuple[str, bool] | None:
    """The response that an item of this name belongs to, and whether it is of its input; None for a name that was
    not given here."""
    found = _NAME.fullmatch(item_id)
    return (found[1], found[2] is not None) if found else None


def call_id(ident: str, output_index: int) -> str:
    """The name of a call, by which its result comes back."""
    return f"call_{ident}_{output_index}"


def named(items: Iterable[Item], ident: str) -> list[Item]:
    """The items with an `id` each: their own, or one by their place in the input of the response `ident`."""
    return [
        item if item.get("id") else {"id": f"{_PREFIXES.get(item['type'], 'item')}_{ident}_in{place}", **item}
        for place, item in enumerate(items)
    ]


def conversation(instructions: str | None, items: Sequence[Item]) -> tuple[Message, ...]:
    """What a chat template gets: the instructions as a system message, then the items. Reasoning and parts that are
    no text are left out; calls that follow each other, or a message of the model, belong to one turn."""
    turns = [Message("system", instructions)] if instructions else []
    for turn in _turns(items):
        last = turns[-1] if turns else None
        if last is not None and turn.calls and last.role == "assistant":
            turns[-1] = Message("assistant", last.content, last.calls + turn.calls)
        else:
            turns.append(turn)
    return tuple(turns)


def _turns(items: Iterable[Item]) -> Iterator[Message]:
    for item in items:
        kind = item["type"]
        if kind == "message":
            yield Message(ROLES[item["role"]], _text(item["content"]))
        elif kind == "function_call":
            yield Message("assistant", "", (ToolCall(item["call_id"], item["name"], item["arguments"]),))
        elif kind == "function_call_output":
            yield Message("tool", _text(item["output"]), call_id=item["call_id"])


def _text(content: str | list[Item]) -> str:
    if isinstance(content, str):
        return content
    parts = (part for part in content if part["type"] in TEXT_PARTS)
    return "".join(part["refusal"] if part["type"] == "refusal" else part["text"] for part in parts)


def is_json_object(arguments: str) -> bool:
    """Whether the arguments of a call are whole, and no deeper than a body may be: it cannot bound what is inside a
    string, and everybody who reads them would recurse. Numbers are bounded by nobody: a model may write any."""
    try:
        level: list[Any] = [_ARGUMENTS.decode(arguments)]
    except (msgspec.DecodeError, RecursionError):
        return False
    for _ in range(JSON_DEPTH_MAX):
        level = [part for each in level for part in (each.values() if isinstance(each, dict) else each)]
        level = [part for part in level if isinstance(part, dict | list)]
    return not level
