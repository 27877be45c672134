"""A read of a response that ends while it is made."""

import asyncio
from pathlib import Path

import pytest
from tests.unit.engine.stage import scenario, started

from perdure.ports.storage import EventsPage
from perdure.testing.scripted_runtime import Script


@pytest.mark.proves("C-17")
@scenario
async def test_status_and_items_are_of_one_moment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The row says that it runs, and the log that is read after it has the end: then the end is what is told."""
    async with started(tmp_path) as stage:
        script = stage.runtime.play("runs", Script(gates={3: asyncio.Event()}))
        ident = await stage.submit("runs")
        await stage.store.until(ident, lambda task: task.tokens_kept == 3)
        events = stage.store.events

        async def late(task_id: int, after: int, limit: int) -> EventsPage:
            script.gates[3].set()
            await stage.ended(ident)
            return await events(task_id, after, limit)

        monkeypatch.setattr(stage.store, "events", late)
        found = await stage.response(ident)
        assert (found["status"], found["output"][0]["status"]) == ("completed", "completed")
