"""What was kept of a response, as items in normal form (`domain.items`): what it answered, and what was written."""

from typing import Any

import msgspec

from perdure.domain.items import Item, named


class _Snapshot(msgspec.Struct):
    output: list[Item]


def input_of(received: bytes, ident: str) -> list[Item]:
    """The items that the response `ident` answers, each with its id.

    The first version kept the input as it came: a string, or messages that may lack type, status and id. The ids
    that they get are a function of their place, so they are the same at every reading.
    """
    kept = msgspec.json.decode(received, type=str | list[Item])
    items = [{"role": "user", "content": kept}] if isinstance(kept, str) else kept
    return named([_normal(item) for item in items], ident)


def output_of(snapshot: bytes) -> list[Item]:
    """The items that were written, of the response object as it was kept, without the probabilities of tokens: these
    tell how an answer was drawn, not what was said, and may be twenty times as large."""
    return [_bare(item) for item in msgspec.json.decode(snapshot, type=_Snapshot).output]


def _normal(item: Item) -> Item:
    item = {name: value for name, value in item.items() if value is not None}
    if item.get("type", "message") != "message":
        return item
    kind = "output_text" if item["role"] == "assistant" else "input_text"
    content = item["content"]
    parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
    return {"type": "message", "status": "completed", **item, "content": [_part(part, kind) for part in parts]}


def _part(part: Item, kind: str) -> Item:
    part = {**part, "type": kind} if part["type"] == "text" else part
    return {"annotations": [], "logprobs": [], **part} if part["type"] == "output_text" else part


def _bare(item: Item) -> Item:
    if item["type"] != "message":
        return item
    content: list[Any] = [{**part, "logprobs": []} if "logprobs" in part else part for part in item["content"]]
    return {**item, "content": content}
