"""The comparison that every kill is judged by sees each thing in which two texts can differ."""

import copy
import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.system.kills.compare import differences
from tests.system.kills.undisturbed import Expected
from tests.system.server import text_of

ITEM: dict[str, Any] = {"type": "message", "content": [{"type": "output_text", "text": "Hé"}]}
RESPONSE: dict[str, Any] = {
    "status": "incomplete",
    "error": None,
    "incomplete_details": {"reason": "max_output_tokens"},
    "usage": {"output_tokens": 2},
    "model": "tiny",
    "temperature": 0.0,
    "top_p": 1.0,
    "max_output_tokens": 2,
    "perdure": {"resume": "exact", "attempt": 1},
    "output": [ITEM],
}
TYPES = (
    *("created", "queued", "in_progress", "output_item.added", "content_part.added", "output_text.delta"),
    *("output_text.delta", "output_text.done", "content_part.done", "output_item.done", "incomplete"),
)


def log() -> list[dict[str, Any]]:
    """The events of the response."""
    events: list[dict[str, Any]] = [
        {"type": f"response.{kind}", "sequence_number": n} for n, kind in enumerate(TYPES)
    ]
    events[5]["delta"], events[6]["delta"] = "H", "é"
    events[-1]["response"] = copy.deepcopy(RESPONSE)
    return events


def frames(events: list[dict[str, Any]]) -> list[str]:
    """As they come over the wire."""
    return [*(f"event: {each['type']}\ndata: {json.dumps(each)}" for each in events), "data: [DONE]"]


def compared(change: Callable[[dict[str, Any], list[dict[str, Any]], list[int]], None]) -> list[str]:
    """What is found after a change to the response, its events, or its tokens."""
    response, events, tokens = copy.deepcopy(RESPONSE), log(), [7, 8]
    seen = frames(events)[:6]
    change(response, events, tokens)
    expected = Expected(RESPONSE, text_of(RESPONSE), (7, 8))
    return list(differences(expected, response, frames(events), tokens, seen))


def test_what_is_the_same_has_no_difference() -> None:
    """Or the other tests here would show nothing."""
    assert compared(lambda response, events, tokens: None) == []


CHANGES: dict[str, Callable[[dict[str, Any], list[dict[str, Any]], list[int]], Any]] = {
    "status": lambda response, events, tokens: response.update(status="completed"),
    "text from 1 on": lambda response, events, tokens: response["output"][0]["content"][0].update(text="Ho"),
    "usage:": lambda response, events, tokens: response["usage"].update(output_tokens=3),
    "perdure:": lambda response, events, tokens: response["perdure"].update(resume="approximate"),
    "tokens from 1 on": lambda response, events, tokens: tokens.__setitem__(1, 9),
    "tokens from 2 on": lambda response, events, tokens: tokens.append(9),
    "usage and tokens": lambda response, events, tokens: tokens.pop(),
    "frames seen from 5 on": lambda response, events, tokens: events[5].update(delta="h"),
    "text of the events": lambda response, events, tokens: events[6].update(delta="e"),
    "last event": lambda response, events, tokens: events[-1]["response"].update(status="completed"),
    "number of response.output_text.done": lambda response, events, tokens: events[7].update(type="response.other"),
    "log:": lambda response, events, tokens: events[8].update(sequence_number=9),
    "log: [": lambda response, events, tokens: events[7].update(type="response.failed"),
}


@pytest.mark.parametrize("what", CHANGES)
def test_a_difference_is_seen(what: str) -> None:
    """Each of them turns a kill red."""
    found = compared(CHANGES[what])
    assert any(line.startswith(what) for line in found), found
