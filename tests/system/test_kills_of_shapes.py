"""Kills in the middle of answers that have a shape: the items, and what the events add up to, are the undisturbed
ones.

The tiny model writes noise, and where a grammar leads it, noise of the right shape: here a long JSON text, and calls.
"""

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.system.server import Server, check_log, data_of, until

KILLS = 6
WAIT_SECONDS = 60.0
FIVE = {"type": "string", "minLength": 5, "maxLength": 5}
LETTERS = {"type": "array", "minItems": 60, "maxItems": 60, "items": FIVE}
LONG = {"type": "object", "properties": {"letters": LETTERS}, "required": ["letters"], "additionalProperties": False}
TOOL = {"type": "function", "name": "note", "description": "Notes.", "parameters": LONG, "strict": True}
SHAPES: dict[str, dict[str, Any]] = {
    "json_schema": {"text": {"format": {"type": "json_schema", "name": "letters", "schema": LONG, "strict": True}}},
    "tool_choice": {"tools": [TOOL], "tool_choice": "required", "parallel_tool_calls": False},
}
SETTINGS: dict[str, Any] = {"crashes_max": 1000, "window_tokens": 4096}


def create(server: Server, shape: str) -> str:
    """Ask for an answer of this shape; the response's id."""
    asked = {"model": server.model_name, "input": "Go.", "background": True, "seed": 4, "max_output_tokens": 3_000}
    answer = server.http.post("/v1/responses", json=asked | SHAPES[shape])
    assert answer.status_code == 202, answer.text
    return answer.json()["id"]


def deltas(events: list[dict[str, Any]]) -> list[str]:
    """What the deltas of each item add up to."""
    found: dict[int, str] = {}
    for event in events:
        if event["type"].endswith(".delta"):
            found[event["output_index"]] = found.get(event["output_index"], "") + event["delta"]
    return list(found.values())


def written(response: dict[str, Any]) -> list[dict[str, Any]]:
    """The items without their names, which each response has of its own."""
    own = ("id", "call_id")
    return [{key: value for key, value in item.items() if key not in own} for item in response["output"]]


def texts(response: dict[str, Any]) -> list[str]:
    """The text or the arguments of each item."""
    return [item.get("arguments") or "".join(part["text"] for part in item["content"]) for item in response["output"]]


def seen_up_to(server: Server, response_id: str, characters: int) -> list[str]:
    """The frames that somebody has read who saw so much of an answer, or its end."""
    seen: list[str] = []
    with server.stream(response_id) as frames:
        for frame in frames:
            seen.append(frame)
            characters -= len(data_of(frame)["delta"]) if ".delta\n" in frame else 0
            if characters <= 0:
                break
    return seen


def kills(server: Server, whole: int, rng: random.Random) -> Iterator[int]:
    """How much of an answer is to be seen before each kill, the service and the process that draws in turn."""
    for n, part in enumerate(sorted(rng.uniform(0.02, 0.9) for _ in range(KILLS))):
        yield round(part * whole)
        if n % 2:
            engine = server.engine_child()
            engine.kill()
            until(lambda pid=engine.pid: server.engine_child().pid != pid or None, "another engine", WAIT_SECONDS)
        else:
            server.kill()
            server.start()


@pytest.mark.proves("R3")
@pytest.mark.parametrize("shape", SHAPES)
def test_answers_of_a_shape_survive_kills(tmp_path: Path, tiny_model: Path, shape: str) -> None:
    """Six kills of one answer, at random places: item by item, delta by delta, and token by token as undisturbed."""
    with Server(tmp_path / "data", tiny_model, **SETTINGS).start() as server:
        expected = server.ended(create(server, shape))
        assert expected["status"] == "completed", expected
        found = create(server, shape)
        seen: list[str] = []
        for characters in kills(server, sum(map(len, texts(expected))), random.Random(shape)):
            now = seen_up_to(server, found, characters)
            assert now[: len(seen)] == seen
            assert "data: [DONE]" not in now, "it has ended before the kill"
            seen = now
        response = server.ended(found)
        events = check_log(frames := server.frames(found))
        assert frames[: len(seen)] == seen
        assert events[-1]["response"] == response
        assert written(response) == written(expected)
        assert deltas(events) == texts(expected)
        assert (response["status"], response["usage"]) == ("completed", expected["usage"])
        assert response["perdure"]["resume"] == "exact"
