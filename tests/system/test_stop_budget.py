"""A stop that does not end in time, and one that meets a start or a checkpoint under way (D2, D3, D5, D6)."""

import asyncio
import json
import os
import signal
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import apsw
import pytest

from perdure.storage.sqlite.store import SqliteStore
from tests.system import hanging
from tests.system.hanging import let_go, there
from tests.system.server import STOP_SECONDS, Server, still_alive, until

SHORT_SECONDS = 0.5
STAGES: list[tuple[Callable[[Path], None], str, str]] = [
    (hanging.at_the_callers, "stop_callers_seconds", "callers"),
    (hanging.at_the_models, "stop_models_seconds", "model processes"),
    (hanging.at_the_database, "stop_database_seconds", "database"),
    (hanging.in_the_event_loop, "stop_database_seconds", "database"),
]


def lines(server: Server) -> list[dict[str, str]]:
    """What the service has logged."""
    return [json.loads(line) for line in server.errors.read_text().splitlines() if line.startswith("{")]


def log_of(data: Path) -> Path:
    """The log beside the database."""
    return data / "perdure.db-wal"


async def kept(path: Path, response_id: str) -> object:
    """What the next opening finds of a finished response."""
    store = await SqliteStore.open(path)
    try:
        task = await store.task(response_id.removeprefix("resp_"))
        assert task is not None
        return json.loads(await store.snapshot(task.id) or b"")["output"]
    finally:
        await store.close()


@pytest.mark.proves("D3", "D5", "D6")
@pytest.mark.parametrize(("place", "setting", "stage"), STAGES)
def test_a_stage_without_an_end_ends_the_process(
    tmp_path: Path, tiny_model: Path, place: Callable[[Path], None], setting: str, stage: str
) -> None:
    """With 3. The line names the stage and nobody who is at fault, the database is not closed, the log stays beside
    it, and the next opening finds everything."""
    seconds = {each: 3_600 for _, each, _ in STAGES} | {setting: SHORT_SECONDS}  # no other one would do
    with Server(tmp_path / "data", tiny_model, drain_seconds=0, **seconds) as server:
        server.start(*hanging.hanging(place, tmp_path / "hanging"))
        children = server.children()
        found = server.ended(server.create(max_output_tokens=20, seed=1)["id"])
        assert server.terminate() == 3
        *_, last = lines(server)
        assert last["event"] == f"the time to stop ran out in the stage '{stage}'; the database was not closed"
        assert last["level"] == "error"
        assert set(last) == {"at", "level", "event", "logger"}
        assert log_of(server.data).stat().st_size
        assert still_alive(children, seconds=10) == []
        assert asyncio.run(kept(server.data / "perdure.db", found["id"])) == found["output"]
        assert not log_of(server.data).exists()


@pytest.mark.proves("D3")
def test_the_last_line_is_not_waited_for(tmp_path: Path, tiny_model: Path) -> None:
    """Whoever should read standard error has gone to sleep: the process ends all the same."""
    read, write = os.pipe()
    try:
        os.set_blocking(write, False)
        with suppress(BlockingIOError):
            while True:
                os.write(write, b"x" * 4096)
        os.set_blocking(write, True)
        settings = {"drain_seconds": 0, "stop_models_seconds": SHORT_SECONDS, "log_level": "error"}
        with Server(tmp_path / "data", tiny_model, **settings) as server:
            server.errors = Path(f"/dev/fd/{write}")
            server.start(*hanging.hanging(hanging.at_the_models, tmp_path / "hanging"))
            assert server.terminate() == 3
    finally:
        os.close(read)
        os.close(write)


@pytest.mark.proves("D2", "D6")
def test_a_checkpoint_under_way_does_not_hold_up_the_stop(tmp_path: Path, tiny_model: Path) -> None:
    """It is interrupted, no line calls that a failure, and everything is in the one file that is left."""
    with Server(tmp_path / "data", tiny_model, drain_seconds=0) as server:
        folder = tmp_path / "hanging"
        server.start(*hanging.hanging(hanging.in_a_checkpoint, folder))
        found = server.ended(server.create(max_output_tokens=20, seed=1)["id"])
        (folder / "whole").unlink(missing_ok=True)
        until(lambda: there(folder / "whole"), "a log that was moved whole")
        (folder / "armed").touch()
        # Something to move that nobody in the service waits for: its own writes would stand behind the checkpoint.
        other = apsw.Connection(str(server.data / "perdure.db"))
        other.execute(
            "BEGIN; CREATE TABLE scratch (data BLOB); INSERT INTO scratch VALUES (zeroblob(100000)); COMMIT"
        )
        other.close()
        until(lambda: there(folder / "reached"), "a checkpoint")
        assert server.terminate() == 0
        assert (folder / "interrupted").exists()
        told = lines(server)
        assert [line for line in told if line["level"] in ("warning", "error")] == []
        assert [line for line in told if "write-ahead" in line["event"]] == []
        assert told[-1]["event"] == "stopped"
        assert not log_of(server.data).exists()
        server.start()
        assert server.get(f"/v1/responses/{found['id']}") == found


@pytest.mark.proves("D1", "D2")
def test_a_model_that_is_still_read_does_not_hold_up_the_stop(tmp_path: Path) -> None:
    """A stop right after the start, with a file of many gigabytes. The bundled model: one that is named is waited
    for before the service listens."""
    with Server(tmp_path / "data", drain_seconds=0, stop_work_seconds=STOP_SECONDS / 2) as server:
        server.start(*hanging.hanging(hanging.at_the_reading, tmp_path / "hanging"))
        assert server.terminate() == 0
        assert lines(server)[-1]["event"] == "stopped"
        assert not log_of(server.data).exists()


@pytest.mark.proves("D1")
@pytest.mark.parametrize("in_time", [True, False])
def test_a_stop_waits_for_the_opening_of_the_database(tmp_path: Path, tiny_model: Path, *, in_time: bool) -> None:
    """A schema that is being written is not left half way: either it gets done, or the process goes without closing
    anything, and the next start makes it anew."""
    seconds = 60 if in_time else SHORT_SECONDS
    with Server(tmp_path / "data", tiny_model, stop_database_seconds=seconds) as server:
        folder = tmp_path / "hanging"
        server.spawn(*hanging.hanging(hanging.at_the_opening, folder))
        until(lambda: there(folder / "reached"), "the first commit")
        assert server.process is not None
        server.process.send_signal(signal.SIGTERM)
        if in_time:
            let_go(folder)
        assert server.wait() == (0 if in_time else 3)
        assert ("opening of the database" in server.errors.read_text()) is not in_time
        if in_time:
            assert not log_of(server.data).exists()
        server.start()
        assert server.ended(server.create(max_output_tokens=5)["id"])["status"] == "incomplete"
        assert server.terminate() == 0
