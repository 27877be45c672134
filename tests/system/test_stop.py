"""The drained stop."""

import json
import random
import signal
from pathlib import Path

import httpx
import psutil
import pytest

from tests.system.caller import Caller
from tests.system.server import Server, check_log, freeze, still_alive, text_of, thaw, until


def log_files(server: Server) -> list[str]:
    """What lies beside the database."""
    return sorted(path.name for path in server.data.iterdir() if path.name.startswith("perdure.db-"))


@pytest.mark.proves("C-30", "D1")
@pytest.mark.parametrize("half", [0, 1])
def test_stopped_at_random_moments_it_ends_in_order(
    tmp_path: Path, tiny_model: Path, half: int, pytestconfig: pytest.Config
) -> None:
    """SIGTERM at random moments of real work: exit code 0, no log left, unfinished work goes on at the next start."""
    rng = random.Random(13 + half)
    ids: list[str] = []
    with Server(tmp_path / "data", tiny_model, drain_seconds=0.05) as server:
        for n in range(int(pytestconfig.getoption("--stops") or 0) // 2):
            server.start()
            ids.append(server.create(max_output_tokens=1000, seed=n)["id"])
            with server.stream(rng.choice(ids)) as frames:
                for _, _ in zip(range(rng.randrange(12)), frames, strict=False):
                    pass
                assert server.terminate() == 0
            assert log_files(server) == []
        server.start()
        for each in ids:
            assert server.ended(each)["status"] == "incomplete"
            check_log(server.frames(each))
            assert server.task(each)["attempt"] == 1


@pytest.mark.proves("C-30")
def test_a_stop_cancels_nothing(tmp_path: Path, tiny_model: Path) -> None:
    """Running work follows its policy at the next start, queued work is still queued; nothing is called cancelled."""
    with Server(tmp_path / "data", tiny_model, slots=2, drain_seconds=0).start() as server:
        freeze(child := server.engine_child())
        policies = ["fail", "resume", "resume", "retry", "fail"]
        ids = [server.create(max_output_tokens=1500, on_restart=policy, seed=1)["id"] for policy in policies]
        for each in ids[:2]:
            server.reaches(each, "running")
        assert server.terminate(child) == 0
        server.start()
        ended = [server.ended(each) for each in ids]
        assert [each["status"] for each in ended] == ["failed", "incomplete", "incomplete", "incomplete", "failed"]
        assert ended[0]["error"]["code"] == "server_restarted"
        assert text_of(ended[1]) == text_of(ended[2])


def test_work_that_ends_within_the_time_is_finished_first(tmp_path: Path, tiny_model: Path) -> None:
    """Those who wait for foreground work get it; viewers of background work are let go at once, without an end."""
    with Server(tmp_path / "data", tiny_model, drain_seconds=50).start() as server:
        freeze(child := server.engine_child())
        watched = server.create(max_output_tokens=1800)["id"]
        body = {"model": server.model_name, "input": "Hello.", "max_output_tokens": 1500, "stream": True}
        with server.http.stream("POST", "/v1/responses", json=body) as answer, server.stream(watched) as view:
            lines = answer.iter_lines()
            next(lines)
            next(view)
            assert server.process is not None
            server.process.send_signal(signal.SIGTERM)
            assert not any("[DONE]" in frame for frame in view)
            thaw(child)
            assert "event: response.incomplete" in list(lines)
            assert server.wait() == 0
        assert log_files(server) == []


@pytest.mark.proves("D3", "D5")
def test_a_stop_that_hangs_says_where_and_leaves_the_database_alone(tmp_path: Path, tiny_model: Path) -> None:
    """When the time runs out the exit code is 3, the line names the stage, and nothing is lost."""
    with Server(tmp_path / "data", tiny_model, drain_seconds=0, stop_work_seconds=0.5).start() as server:
        freeze(child := server.engine_child())
        found = server.create(max_output_tokens=1000)["id"]
        server.reaches(found, "running")
        assert server.terminate() == 3
        child.kill()
        assert "work under way" in server.errors.read_text()
        assert "perdure.db-wal" in log_files(server)
        server.start()
        assert server.ended(found)["status"] == "incomplete"


def test_a_stopping_service_takes_no_new_work(tmp_path: Path, tiny_model: Path) -> None:
    """The door is closed while the last callers are served."""
    with Server(tmp_path / "data", tiny_model, drain_seconds=50).start() as server:
        freeze(child := server.engine_child())
        found = server.create(max_output_tokens=1800)["id"]
        server.reaches(found, "running")
        assert server.http.get("/readyz").status_code == 200
        assert server.process is not None
        server.process.send_signal(signal.SIGTERM)

        def door() -> bool | None:
            try:
                return None if server.http.get("/readyz").status_code in (200, 503) else False
            except httpx.TransportError:  # the kept connection is closed, or a new one is refused
                return True

        assert until(door, "the door to close")
        thaw(child)
        assert server.wait() == 0
        psutil.wait_procs([child], timeout=1)


def test_a_stop_while_it_starts_is_heard(tmp_path: Path) -> None:
    """A start that waits for the model, to settle what was left, can be ended in order, and loses nothing."""
    with Server(tmp_path / "data").start() as server:
        found = server.create(max_output_tokens=500)["id"]
        server.reaches(found, "running")
        server.kill()
        server.spawn()
        freeze(child := server.engine_child())
        until(lambda: True if (server.data / "perdure.db-wal").exists() else None, "the database to be opened")
        assert server.terminate() == 0
        assert log_files(server) == []
        assert still_alive([child], seconds=30) == []
        server.start()
        server.reaches(found, "running")


def test_a_stop_does_not_wait_for_a_request_that_never_ends(tmp_path: Path, tiny_model: Path) -> None:
    """Half a body: whoever sends it is cut off in time, and the stop is in order."""
    with Server(tmp_path / "data", tiny_model, drain_seconds=0, stop_callers_seconds=3).start() as server:
        caller = Caller(server, tail_bytes=10)
        assert server.http.get("/readyz").status_code == 200
        assert server.terminate() == 0
        assert log_files(server) == []
        caller.hangs_up()


def test_a_log_that_cannot_be_written_stops_nothing(tmp_path: Path, tiny_model: Path) -> None:
    """Standard error on a full disk: the work goes on, an engine that dies is replaced, the stop is in order."""
    with Server(tmp_path / "data", tiny_model) as server:
        server.errors = Path("/dev/full")
        server.start()
        freeze(child := server.engine_child())
        found = server.create(max_output_tokens=1500)["id"]
        server.reaches(found, "running")
        child.kill()
        assert server.ended(found)["status"] == "incomplete"
        assert server.terminate() == 0
        assert log_files(server) == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_to_all_processes_at_once_is_the_services_to_hear(
    tmp_path: Path, tiny_model: Path, number: signal.Signals
) -> None:
    """As terminals and service managers send it: the children leave it to their parent, which stops in order."""
    with Server(tmp_path / "data", tiny_model, drain_seconds=20).start() as server:
        found = server.create(max_output_tokens=1900)["id"]
        server.reaches(found, "running")
        for child in server.children():
            child.send_signal(number)
        assert server.ended(found)["status"] == "incomplete"
        assert [model["starts"] for model in server.get("/v1/service")["models"]] == [1]
        assert server.process is not None
        server.process.send_signal(number)
        assert server.wait() == 0


def test_closed_standard_streams_do_no_harm(tmp_path: Path, tiny_model: Path) -> None:
    """Started with nothing to read from or to print to, it serves, and stops in order."""
    with Server(tmp_path / "data", tiny_model) as server:
        server.spawn("sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh")
        told = server.data / "server.json"
        until(lambda: True if told.exists() else None, "server.json")
        server.url = json.loads(told.read_text())["address"]
        assert server.ended(server.create(max_output_tokens=5)["id"])["status"] == "incomplete"
        assert server.terminate() == 0
