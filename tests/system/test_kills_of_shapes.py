"""Kills in the middle of answers that have a shape: the items, and what the events add up to, are the undisturbed
ones.

The tiny model writes noise, and where a grammar leads it, noise of the right shape: here a long JSON text, and calls.
"""

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.system.server import Server, check_log, shown_by, until

KILLS = 6
WAIT_SECONDS = 60.0
FIVE = {"type": "string", "minLength": 5, "maxLength": 5}
LETTERS = {"type": "array", "minItems": 120, "maxItems": 120, "items": FIVE}
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


def frames_so_far(server: Server, response_id: str) -> list[str]:
    """What somebody has read up to now."""
    last = server.get(f"/v1/tasks/{response_id.replace('resp_', 'task_')}/events")["last_seq"]
    with server.stream(response_id) as frames:
        return [next(frames) for _ in range(last + 1)]


def kills(server: Server, response_id: str, whole: int, rng: random.Random) -> Iterator[list[str]]:
    """What is seen of an answer before each kill, of the service and the process that draws in turn."""
    for n, part in enumerate(sorted(rng.uniform(0.02, 0.8) for _ in range(KILLS))):
        engine = server.holds(response_id, round(part * whole))
        yield frames_so_far(server, response_id)
        if n % 2:
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
        for now in kills(server, found, len(shown_by(expected)), random.Random(shape)):
            assert now[: len(seen)] == seen
            seen = now
        response = server.ended(found)
        events = check_log(frames := server.frames(found))
        assert frames[: len(seen)] == seen
        assert events[-1]["response"] == response
        assert written(response) == written(expected)
        assert deltas(events) == texts(expected)
        assert (response["status"], response["usage"]) == ("completed", expected["usage"])
        assert response["perdure"]["resume"] == "exact"
