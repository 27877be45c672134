"""The order of start and stop: what was left is settled before anybody looks, and work ends before its database."""

import asyncio
from pathlib import Path

import pytest

from perdure.domain.recovery import OnRestart
from tests.system.server import Server, freeze
from tests.unit.engine.stage import opened

LEFT = 500
"""So many that settling them takes far longer than to begin to listen."""


async def leave(folder: Path) -> None:
    """Work that is to fail at a restart, accepted and never begun."""
    async with opened(folder) as stage:
        await asyncio.gather(*(stage.submit(on_restart=OnRestart.FAIL) for _ in range(LEFT)))


@pytest.mark.proves("P8")
def test_nothing_is_seen_before_it_is_settled(tmp_path: Path, tiny_model: Path) -> None:
    """The very first look finds none of it queued."""
    data = tmp_path / "data"
    data.mkdir()
    asyncio.run(leave(data))
    with Server(data, tiny_model).start() as server:
        assert server.get("/v1/tasks?status=queued")["data"] == []
        assert server.http.get("/readyz").status_code == 200
        assert len(server.get("/v1/tasks?status=failed&limit=100")["data"]) == 100
        assert server.terminate() == 0


@pytest.mark.proves("D1")
def test_work_under_way_leaves_before_its_database_is_closed(tmp_path: Path, tiny_model: Path) -> None:
    """It is left in order, so that the next start does not count a crash, and nothing fails on the way out."""
    with Server(tmp_path / "data", tiny_model, slots=2, drain_seconds=0).start() as server:
        freeze(child := server.engine_child())
        ids = [server.create(max_output_tokens=1500, seed=1)["id"] for _ in range(2)]
        for each in ids:
            server.reaches(each, "running")
        assert server.terminate(child) == 0
        told = server.errors.read_text()
        assert "stopped" in told
        assert '"level": "warning"' not in told
        assert '"level": "error"' not in told
        server.start()
        for each in ids:
            notes = [step["note"] for step in server.task(each)["history"]]
            assert "left at the stop of the service" in notes
