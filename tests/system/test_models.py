"""Several models in one service, with memory for one of them at a time."""

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from typing import Any

import httpx
import pytest

from perdure.testing.tiny_gguf import write_tiny_model
from tests.system.server import Server, text_of, thaw, until

ROOM_FOR_ONE, ROOM_FOR_BOTH = 3_000_000, 5_000_000
NAMES = ("a", "b")


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two tiny models of different weights."""
    paths = [tmp_path_factory.mktemp("models") / f"{name}.gguf" for name in NAMES]
    for seed, path in enumerate(paths):
        write_tiny_model(path, seed)
    return paths


@contextmanager
def serving(data: Path, files: list[Path], room: int) -> Generator[Server]:
    """A service of the models."""
    with Server(data, *files, models_memory_max_bytes=room) as server:
        yield server.start()
        assert server.terminate() == 0


def models(server: Server) -> dict[str, dict[str, Any]]:
    """What the service tells of its models, by name."""
    return {each["model"]: each for each in server.get("/v1/service")["models"]}


def texts(server: Server, count: int) -> list[str]:
    """Texts of both models in turn, all asked for at once."""
    idents = [
        server.create(f"Number {n}", model=NAMES[n % 2], seed=n, max_output_tokens=40)["id"] for n in range(count)
    ]
    ended = [server.ended(ident) for ident in idents]
    assert {response["status"] for response in ended} == {"incomplete"}
    return [text_of(response) for response in ended]


@pytest.mark.proves("F-13")
def test_texts_of_models_that_take_turns_are_those_of_models_side_by_side(tmp_path: Path, files: list[Path]) -> None:
    """Fifty in turn, with room for one model: each is answered, and none is changed by it."""
    with serving(tmp_path / "both", files, ROOM_FOR_BOTH) as server:
        undisturbed = texts(server, 50)
        assert [each["loads"] for each in models(server).values()] == [1, 1]
        assert len(set(undisturbed)) == 50
    with serving(tmp_path / "one", files, ROOM_FOR_ONE) as server:
        assert texts(server, 50) == undisturbed
        told = models(server)
        assert sum(each["loaded"] for each in told.values()) == 1
        assert all(each["loads"] > 1 for each in told.values())
        assert {each["starts"] - each["loads"] for each in told.values()} == {0}
        assert "error" not in server.errors.read_text()


def test_a_killed_service_goes_on_with_both(tmp_path: Path, files: list[Path]) -> None:
    """One text under way, one that waits for its memory: both end as undisturbed."""
    with serving(tmp_path / "both", files, ROOM_FOR_BOTH) as server:
        undisturbed = [text_of(server.ended(long_text(server, name))) for name in NAMES]
    with serving(tmp_path / "one", files, ROOM_FOR_ONE) as server:
        idents = [long_text(server, name) for name in NAMES]
        server.holds(idents[0])
        server.reaches(idents[1], "loading")
        server.kill()
        server.start()
        assert [text_of(server.ended(ident)) for ident in idents] == undisturbed


def long_text(server: Server, name: str) -> str:
    return server.create("Go on.", model=name, seed=3, max_output_tokens=1_500)["id"]


@pytest.mark.proves("F-04")
def test_a_file_that_vanished_while_tasks_waited_for_it_is_told_to_each(tmp_path: Path, files: list[Path]) -> None:
    """Foreground work fails with the reason, background work waits until the file is back; the other model goes on,
    and the service says how things stand."""
    away = files[1].with_suffix(".away")
    with serving(tmp_path / "data", files, ROOM_FOR_ONE) as server:
        running = long_text(server, "a")
        child = server.holds(running)
        waiting = server.create("Wait.", model="b", max_output_tokens=20)["id"]
        server.reaches(waiting, "loading")
        answers: list[httpx.Response] = []
        body = {"model": "b", "input": "Now.", "max_output_tokens": 20}
        caller = server.caller()
        asking = Thread(target=lambda: answers.append(caller.post("/v1/responses", json=body)))
        asking.start()
        until(lambda: models(server)["b"]["waiting"] == 2 or None, "both to wait")
        assert (models(server)["a"]["loaded"], models(server)["b"]["loads"]) == (True, 0)
        assert server.task(waiting)["status"] == "loading"
        files[1].rename(away)
        thaw(child)
        asking.join()
        caller.close()
        (answer,) = answers
        failed = answer.json()
        assert (failed["status"], failed["error"]["code"]) == ("failed", "model_unavailable")
        assert "The model b cannot be used: its file cannot be read (No such file" in failed["error"]["message"]

        server.reaches(waiting, "queued")
        refused = server.http.post("/v1/responses", json=body)
        assert (refused.status_code, refused.json()["error"]["code"]) == (503, "model_unavailable")
        assert [model["id"] for model in server.get("/v1/models")["data"]] == ["a"]
        assert "No such file" in models(server)["b"]["fault"]
        assert 'perdure_model_usable{model="b"} 0.0' in server.http.get("/metrics").text
        assert server.http.get("/readyz").status_code == 200
        assert server.ended(running)["status"] == "incomplete"
        assert len(text_of(server.ended(server.create("Well?", model="a", max_output_tokens=20)["id"]))) > 0

        away.rename(files[1])
        assert server.ended(waiting)["status"] == "incomplete"
        assert models(server)["b"]["fault"] is None


def test_two_files_of_one_name_are_refused(tmp_path: Path, files: list[Path]) -> None:
    """Requests could not tell them apart."""
    other = tmp_path / "a.gguf"
    write_tiny_model(other)
    with Server(tmp_path / "data", *files, other) as server:
        server.spawn()
        assert server.wait() == 1
        assert "Two model files are called a;" in server.errors.read_text()


def test_of_several_models_each_has_to_work(tmp_path: Path, files: list[Path]) -> None:
    """Whoever named them is there to read which one does not, and why."""
    bad = tmp_path / "bad.gguf"
    bad.write_bytes(b"GGUF")
    with Server(tmp_path / "data", *files, bad) as server:
        server.spawn()
        assert server.wait() == 1
        told = server.errors.read_text()
        assert "The model bad cannot be used: its file cannot be loaded" in told
        assert str(bad) in told
