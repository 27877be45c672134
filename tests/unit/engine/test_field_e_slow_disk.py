"""E-21: a slow disk costs no tokens."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from perdure.domain.lifecycle import Status
from perdure.testing.faulty_vfs import registered
from perdure.testing.scripted_runtime import Script
from perdure.testing.slow_disk import SlowDisk

from .stage import StageStore, opened, said, scenario, undisturbed

STREAMS, TOKENS = 8, 200
DISK = "takes-its-time"


class SlowStore(StageStore):
    """The store on that disk."""

    @classmethod
    async def open(cls, path: Path, **options: Any) -> "SlowStore":
        return await super().open(path, vfs=DISK, **options)  # pyright: ignore[reportReturnType] -- it makes `cls`


@pytest.mark.proves("E-21")
@scenario
async def test_all_is_drawn_while_one_commit_takes_its_time_and_the_next_ones_take_it_together(
    tmp_path: Path,
) -> None:
    """Writes are off the event loop, and what was drawn meanwhile shares a few commits: synced, but not one each."""
    disk = SlowDisk(DISK)
    with registered(disk):
        async with opened(tmp_path, slots=STREAMS, kind=SlowStore) as stage:
            await stage.engine.start()
            go, more = asyncio.Event(), asyncio.Event()
            prompts = [f"stream {number}" for number in range(STREAMS)]
            for prompt in prompts:
                stage.runtime.play(prompt, Script(length=TOKENS, gates={1: go, 2: more}))
            idents = [await stage.submit(prompt) for prompt in prompts]
            for ident in idents:
                await stage.store.until(ident, lambda task: task.status is Status.RUNNING and task.tokens_kept == 1)
            before = stage.store.condition().commits
            disk.hold(".db-wal")
            try:
                go.set()
                assert await asyncio.to_thread(disk.reached.wait, 10)
                more.set()
                while stage.runtime.drawn < STREAMS * TOKENS:  # noqa: ASYNC110 -- the loop moves it; the scenario has a bound
                    await asyncio.sleep(0)
                assert stage.store.condition().commits == before
            finally:
                disk.let_go()
            for ident, prompt in zip(idents, prompts, strict=True):
                assert (await stage.ended(ident)).status is Status.COMPLETED
                assert said(await stage.log(ident)) == undisturbed(prompt, TOKENS - 1)
            assert stage.store.condition().commits - before <= 2 * STREAMS
            await stage.stop()
