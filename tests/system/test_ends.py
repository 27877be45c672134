"""Every process ends, with its exit code, and no thread keeps it (E-11)."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import apsw
import pytest

from perdure.cli.app import build_parser
from perdure.storage.sqlite.migrate import APPLICATION_ID
from tests.system.server import COMMAND, Server, still_alive

ROOT = Path(__file__).parents[2]
SEARCH = os.pathsep.join(filter(None, (os.environ.get("PYTHONPATH"), str(ROOT))))
ENDING = [sys.executable, "-m", "tests.system.ending"]
END_SECONDS = 60.0
"""Far more than it takes: a thread that is left would keep the process for ever."""

WITHOUT_SERVICE = {
    "serve": (["serve", "--port", "0", "--model", "missing.gguf"], 1),
    "ask": (["ask", "Hello.", "--wait", "0"], 1),
    "follow": (["follow", "resp_01", "--wait", "0"], 1),
    "tasks": (["tasks"], 1),
    "cancel": (["cancel", "resp_01"], 1),
    "backup": (["backup", "copy.db"], 1),
    "restore": (["restore", "missing.db"], 1),
    "doctor": (["doctor"], 1),
    "compact": (["compact"], 1),
    "version": (["version"], 0),
}
WITH_SERVICE = {
    "serve": (["serve", "--port", "0"], 1),
    "ask": (["ask", "Hello.", "--max-output-tokens", "2"], 4),
    "follow": (["follow", "{id}"], 4),
    "tasks": (["tasks"], 0),
    "cancel": (["cancel", "{id}"], 0),
    "backup": (["backup", "{copy}"], 0),
    "restore": (["restore", "{copy}"], 1),
    "doctor": (["doctor"], 0),
    "compact": (["compact"], 1),
    "version": (["version"], 0),
}


def ended(tmp_path: Path, *words: str, place: str = "nowhere") -> tuple[int, list[str]]:
    """The exit code of a command, and the threads that were left at its end."""
    note = tmp_path / "note"
    note.unlink(missing_ok=True)
    done = subprocess.run(
        [*ENDING, str(note), place, str(COMMAND), *words],
        timeout=END_SECONDS,
        check=False,
        capture_output=True,
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": SEARCH},
    )
    return done.returncode, json.loads(note.read_text())


def on(data: Path, words: list[str]) -> list[str]:
    """The words of a command for this folder."""
    return words if words == ["version"] else [*words, "--data", str(data)]


def test_all_commands_are_here() -> None:
    """A new one gets a line in both tables."""
    (kinds,) = [action for action in vars(build_parser())["_actions"] if action.dest == "command"]
    assert set(kinds.choices) == set(WITHOUT_SERVICE) == set(WITH_SERVICE)


@pytest.mark.proves("E-11")
@pytest.mark.parametrize("name", WITHOUT_SERVICE)
def test_a_command_without_a_service_ends(tmp_path: Path, name: str) -> None:
    """It has nothing to do, says so, and is gone."""
    words, code = WITHOUT_SERVICE[name]
    (tmp_path / "data").mkdir()
    assert ended(tmp_path, *on(tmp_path / "data", words)) == (code, [])


@pytest.mark.proves("E-11")
def test_every_command_beside_a_service_ends(tmp_path: Path, tiny_model: Path) -> None:
    """Whether it did something or was refused."""
    with Server(tmp_path / "data", tiny_model).start() as server:
        found = server.ended(server.create(max_output_tokens=2)["id"])["id"]
        given = {"id": found, "copy": str(tmp_path / "copy.db")}
        ends = {
            name: ended(tmp_path, *on(server.data, [word.format(**given) for word in words]))
            for name, (words, _) in WITH_SERVICE.items()
        }
        assert ends == {name: (code, []) for name, (_, code) in WITH_SERVICE.items()}
        assert server.terminate() == 0


@pytest.mark.proves("E-11")
@pytest.mark.parametrize("words", [[], ["nothing"], ["serve", "--nothing"]])
def test_a_command_line_that_is_not_understood_ends(tmp_path: Path, words: list[str]) -> None:
    """With 2."""
    assert ended(tmp_path, *words) == (2, [])


def newer(path: Path) -> None:
    """A database of a later program."""
    connection = apsw.Connection(str(path))
    connection.execute("CREATE TABLE later (n)")
    connection.pragma("application_id", APPLICATION_ID)
    connection.pragma("user_version", 999)
    connection.close()


def no_database(path: Path) -> None:
    """Something else."""
    path.write_text("no database" * 1_000)


def a_folder(path: Path) -> None:
    """Nothing that could be opened."""
    path.mkdir()


@pytest.mark.proves("E-11")
@pytest.mark.parametrize(("make", "code"), [(newer, 1), (no_database, 6), (a_folder, 1)])
def test_a_start_that_the_database_refuses_ends(tmp_path: Path, make: Callable[[Path], None], code: int) -> None:
    """With its thread, which had opened or tried to open it."""
    data = tmp_path / "data"
    data.mkdir()
    make(data / "perdure.db")
    assert ended(tmp_path, "serve", "--port", "0", "--data", str(data)) == (code, [])


@pytest.mark.proves("E-11")
def test_a_start_that_fails_in_the_middle_ends(tmp_path: Path, tiny_model: Path) -> None:
    """A fault of the program, when the database is open and the processes run: all of it is taken down again."""
    data = tmp_path / "data"
    words = ["serve", "--port", "0", "--data", str(data), "--model", str(tiny_model)]
    assert ended(tmp_path, *words, place="at_a_failing_start") == (1, [])
    assert sorted(each.name for each in data.iterdir() if each.name.startswith("perdure.db")) == ["perdure.db"]


@pytest.mark.proves("E-11", "D1")
def test_a_service_that_stops_leaves_no_thread_and_no_process(tmp_path: Path, tiny_model: Path) -> None:
    """With work under way, and right after it began to listen."""
    note = tmp_path / "note"
    with Server(tmp_path / "data", tiny_model, drain_seconds=0) as server:
        for busy in (True, False):
            server.start("env", f"PYTHONPATH={SEARCH}", *ENDING, str(note), "nowhere")
            children = server.children()
            if busy:
                server.reaches(server.create(max_output_tokens=1800)["id"], "running")
                children = server.children()
            assert server.terminate() == 0
            assert json.loads(note.read_text()) == []
            assert still_alive(children, seconds=10) == []
