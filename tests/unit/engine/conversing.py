"""Conversations on a stage: items, turns, and what was kept of them."""

from collections.abc import Sequence
from typing import Any

from perdure.domain.items import Item
from perdure.engine.kept import input_of

from .stage import Stage, request


def call(call_id: str, arguments: str, status: str = "completed", name: str = "f") -> Item:
    """A call of a function, in normal form."""
    return {
        "type": "function_call",
        "status": status,
        "call_id": call_id,
        "name": name,
        "arguments": arguments,
    }


def result(call_id: str, text: str) -> Item:
    """What came of a call."""
    part = {"type": "input_text", "text": text}
    return {"type": "function_call_output", "status": "completed", "call_id": call_id, "output": [part]}


def chained(ident: str) -> dict[str, Any]:
    """The field of a request that goes on from a response."""
    return {"previous_response_id": f"resp_{ident}"}


async def send(stage: Stage, items: Sequence[Item], **fields: Any) -> str:
    """Have a response to these items accepted."""
    return (await stage.engine.submit(stage.principal, request(**fields), items)).ident


async def answered(stage: Stage, items: Sequence[Item], **fields: Any) -> str:
    """The same once it has ended."""
    ident = await send(stage, items, **fields)
    await stage.ended(ident)
    return ident


async def kept(stage: Stage, ident: str) -> list[Item]:
    """The items that a response answers."""
    task = await stage.store.task(ident)
    assert task is not None
    return input_of(await stage.store.received(task.id), ident)


async def output(stage: Stage, ident: str) -> list[Item]:
    """The items that it has written."""
    return (await stage.response(ident))["output"]
