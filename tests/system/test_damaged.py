"""A damaged database and the real process: one clear refusal, or a service that says so and stays up."""

import asyncio
import subprocess
from pathlib import Path

import msgspec
import pytest

from perdure.ambient.clock import SystemClock
from perdure.cli.failures import EXIT_DAMAGED
from perdure.domain.errors import StorageDamaged
from perdure.storage.sqlite.store import SqliteStore
from perdure.storage.sqlite.whole import CHECKED_MAX_BYTES
from perdure.testing.damage import leaves_of, overwrite_page
from perdure.testing.store_steps import end, grow, moved, new_task, running
from tests.system.server import COMMAND, START_SECONDS, Server

OWNER = 1
TEXT = "x" * 1_000_000


def refused(data: Path) -> list[str]:
    """What a start says that is refused."""
    command = [str(COMMAND), "serve", "--data", str(data), "--port", "0"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=START_SECONDS, check=False)
    assert (done.returncode, done.stdout) == (EXIT_DAMAGED, ""), done.stderr
    return done.stderr.splitlines()


def fill(path: Path, texts: int, unfinished: int) -> None:
    """Give the owner some long finished responses and some that wait."""

    now = SystemClock().now()  # or retention would remove them, and meet the damage before the test does

    async def play() -> None:
        store = await SqliteStore.open(path)
        for number in range(texts):
            task = await running(store, f"t{number}", OWNER)
            task = await moved(store, task, lambda task: grow(task, TEXT))
            await moved(store, task, lambda task: msgspec.structs.replace(end(task), finished_at=now))
        for number in range(unfinished):
            await store.submit(new_task(f"u{number}", OWNER), 1_000)
        await store.close()

    asyncio.run(play())


@pytest.fixture
def data(tmp_path: Path, tiny_model: Path) -> Path:
    """A folder that a service has used."""
    with Server(tmp_path / "data", tiny_model).start() as server:
        server.ended(server.create(max_output_tokens=5)["id"])
        assert server.terminate() == 0
    return tmp_path / "data"


@pytest.mark.proves("E-17")
def test_a_small_damaged_file_is_refused_once(data: Path) -> None:
    """With an exit code of its own, and one line that names file, finding and remedy; each time alike."""
    path = data / "perdure.db"
    overwrite_page(path, leaves_of(path, "task_events")[0])
    before = path.read_bytes()
    for _ in range(2):
        (line,) = refused(data)
        assert path.read_bytes() == before
        assert line.startswith(f"perdure: {path} is damaged or not a database (")
        assert "perdure doctor" in line
        assert "perdure restore" in line


@pytest.mark.proves("E-17")
def test_damage_that_the_recovery_meets_ends_the_start(data: Path) -> None:
    """In a file too large to be looked through: the row of a task that waits cannot be read. No loop, no port."""
    path = data / "perdure.db"
    fill(path, 18, 200)
    assert path.stat().st_size > CHECKED_MAX_BYTES
    overwrite_page(path, leaves_of(path, "tasks")[-1])
    line = refused(data)[-1]
    assert line.startswith(f"perdure: {path} is damaged or not a database (")
    assert "perdure restore" in line


@pytest.mark.proves("E-17")
@pytest.mark.made_up_rows
def test_a_large_damaged_file_is_served_as_far_as_it_can_be_read(data: Path, tiny_model: Path) -> None:
    """Whoever asks for what is spoilt is told, readiness says what to do, nothing more is accepted, the rest can be
    read, one line says so; and it stops in order."""
    path = data / "perdure.db"
    fill(path, 18, 0)
    sound = path.read_bytes()
    assert len(sound) > CHECKED_MAX_BYTES
    overwrite_page(path, len(sound) // 4096 // 2)
    with Server(data, tiny_model).start() as server:
        assert server.http.get("/readyz").status_code == 200
        answers = [server.http.get(f"/v1/tasks/task_t{n}/events").status_code for n in range(18)]
        assert answers.count(503) == 1
        assert answers.count(200) == 17
        spoilt = server.http.get(f"/v1/tasks/task_t{answers.index(503)}/events")
        assert spoilt.json()["error"]["code"] == StorageDamaged.code
        assert spoilt.headers["x-should-retry"] == "false"
        state = server.http.get("/readyz")
        assert state.status_code == 503
        assert "perdure restore" in state.json()["reason"]
        body = {"model": server.model_name, "input": "new", "background": True}
        assert server.http.post("/v1/responses", json=body).json()["error"]["code"] == StorageDamaged.code
        assert [server.http.get(f"/v1/tasks/task_t{n}/events").status_code for n in range(18)] == answers
        assert server.http.get("/healthz").status_code == 200
        (line,) = [line for line in server.errors.read_text().splitlines() if "storage_damaged" in line]
        assert str(path) in line
        assert server.terminate() == 0
