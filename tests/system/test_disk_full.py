"""The volume of the data folder fills while the service works: nothing is lost or half done; it ends by itself."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.system.server import TERMINAL, Server, check_log, deltas_of, freeze, text_of, thaw, until
from tests.system.volume import Volume, small_volume

VOLUME_BYTES = 12 * 1024 * 1024
TOKENS = 400
PROMPTS = ("one", "two", "three")
REFUSALS = 20


@pytest.fixture
def volume(tmp_path: Path) -> Iterator[Volume]:
    """A disk of 12 MiB, of which the service's log file is no part."""
    with small_volume(tmp_path / "data", VOLUME_BYTES) as made:
        yield made


def told(server: Server, word: str) -> list[dict[str, Any]]:
    """The lines of the service's log that speak of something."""
    return [json.loads(line) for line in server.errors.read_text().splitlines() if word in line]


def used_up(server: Server) -> httpx.Response:
    """The refusal of a create, when so many have been refused in a row that the smallest write has no room left: each
    refusal uses up a page of what the ones before have left."""
    body = {"model": server.model_name, "input": "late", "background": True, "max_output_tokens": 1}
    in_a_row, answer = 0, None
    while in_a_row < REFUSALS:
        answer = server.http.post("/v1/responses", json=body)
        in_a_row = 0 if answer.status_code == 202 else in_a_row + 1
    assert answer is not None
    return answer


def ready(server: Server, status: int) -> None:
    """Wait for a state of readiness."""
    until(lambda: server.http.get("/readyz").status_code == status or None, f"readyz to answer {status}")


@pytest.mark.proves("E-12")
def test_texts_under_way_are_held_and_end_whole(volume: Volume, tiny_model: Path) -> None:
    """While it lasts: new work is refused by its name, reads go on, one line says so. Then they end as if nothing had
    been, to the letter."""
    with Server(volume.folder, tiny_model).start() as server:
        names = [server.create(prompt, max_output_tokens=TOKENS, seed=5)["id"] for prompt in PROMPTS]
        for name in names:
            until(lambda name=name: server.task(name)["status"] == "running" or None, "the text to run")
        child = server.engine_child()
        freeze(child)
        volume.fill()
        thaw(child)
        ready(server, 503)
        _while_it_is_full(server, names, used_up(server))
        before = server.get("/v1/service")["storage"]["writes_refused"]
        until(lambda: server.get("/v1/service")["storage"]["writes_refused"] > before + 3 or None, "more refusals")
        assert len(told(server, "storage_full")) == 1
        assert not {server.task(name)["status"] for name in names} & TERMINAL
        volume.free()
        texts = [_whole_text(server, name) for name in names]
        ready(server, 200)
        assert texts == [
            _whole_text(server, server.create(p, max_output_tokens=TOKENS, seed=5)["id"]) for p in PROMPTS
        ]
        assert [line["level"] for line in told(server, "takes writes again")] == ["warning"]
        assert len(server.errors.read_text().splitlines()) == 2, server.errors.read_text()
        assert server.terminate() == 0


def _while_it_is_full(server: Server, names: list[str], answer: httpx.Response) -> None:
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "storage_full")
    assert int(answer.headers["retry-after"]) > 0
    state = server.http.get("/readyz").json()
    assert "full" in state["reason"]
    assert str(server.data) not in state["reason"]
    (line,) = told(server, "storage_full")
    assert str(server.data / "perdure.db") in line["event"]
    assert line["level"] == "error"
    for verb, path in (
        ("post", f"/v1/tasks/{names[0].replace('resp', 'task')}/cancel"),
        ("delete", f"/v1/responses/{names[1]}"),
    ):
        response = getattr(server.http, verb)(path)
        assert (response.status_code, response.json()["error"]["code"]) == (503, "storage_full")
    for name in names:
        assert server.get(f"/v1/responses/{name}")["status"] == "in_progress"
        task = name.replace("resp", "task")
        assert server.get(f"/v1/tasks/{task}/events")["data"]
    assert server.get("/v1/tasks")["data"]
    assert server.get("/v1/service")["storage"]["trouble"] == "storage_full"
    assert 'perdure_storage_trouble{code="storage_full"} 1.0' in server.http.get("/metrics").text


def _whole_text(server: Server, name: str) -> str:
    """The text of a response that ran to its limit."""
    events = check_log(server.frames(name))
    response = server.get(f"/v1/responses/{name}")
    assert response["status"] == "incomplete"
    assert response["usage"]["output_tokens"] == TOKENS
    assert deltas_of(events) == text_of(response)
    return text_of(response)


def test_a_log_that_cannot_be_written_stops_nothing(tmp_path: Path, tiny_model: Path) -> None:
    """Standard error leads to a full disk from the first line to the last."""
    server = Server(tmp_path / "data", tiny_model)
    server.errors = Path("/dev/full")
    with server.start():
        assert server.ended(server.create(max_output_tokens=5)["id"])["status"] == "incomplete"
        assert server.terminate() == 0
