"""A store on a real file whose minutes pass when the test says so."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, cast

import pytest

from perdure.ports.storage import TaskRecord, WalCondition
from perdure.storage.sqlite import upkeep
from perdure.storage.sqlite.connection import open_reader
from perdure.storage.sqlite.store import SqliteStore
from perdure.storage.sqlite.upkeep import Checkpoint
from perdure.storage.sqlite.writer import Writer
from perdure.testing.manual_clock import ManualClock
from perdure.testing.manual_pause import ManualPause
from perdure.testing.store_steps import add_client, grow, moved, running

Answer = tuple[int, int, int]
SMALL_LIMIT_BYTES = 256 * 4096


class OpenStore(SqliteStore):
    """The real store, whose writer a test can see."""

    def __init__(self, *parts: Any) -> None:
        super().__init__(*parts)
        self.writer: Writer = parts[0]


@dataclass
class Upkept:
    """The store and what its upkeep stands on."""

    store: OpenStore
    path: Path
    clock: ManualClock
    pause: ManualPause
    _task: TaskRecord | None = field(default=None, init=False)

    @property
    def log_bytes(self) -> int:
        """How large the file of the log is."""
        return self.path.with_name(self.path.name + "-wal").stat().st_size

    @property
    def condition(self) -> WalCondition:
        """How the log stands."""
        found = self.store.condition().wal
        assert found is not None
        return found

    async def write(self, size: int = 20_000, times: int = 1) -> None:
        """Commit some text, as a running response does."""
        if self._task is None:
            self._task = await running(self.store, "writes", await add_client(self.store))
        for _ in range(times):
            self._task = await moved(self.store, self._task, partial(grow, text="x" * size))

    async def moved(self) -> None:
        """Have the log moved without a look at it, as the writer does after so many pages."""
        checkpoint = await self.store.writer.aside(partial(Checkpoint, self.path, None))
        await self.store.writer.aside(checkpoint.run)
        await self.store.writer.aside(checkpoint.close)

    async def minute(self) -> None:
        """Let a minute pass, with what is done in it."""
        await self.pause.round()


@asynccontextmanager
async def upkept(folder: Path, vfs: str | None = None) -> AsyncGenerator[Upkept]:
    """A store, closed at the end."""
    path, clock = folder / "perdure.db", ManualClock()
    pause = ManualPause(clock)
    store = cast("OpenStore", await OpenStore.open(path, vfs=vfs, clock=clock, pause=pause))
    try:
        async with asyncio.timeout(60):
            yield Upkept(store, path, clock, pause)
    finally:
        await store.close()


@contextmanager
def held(path: Path) -> Generator[None]:
    """A program that reads the database, and does not end its read."""
    reader = open_reader(path)
    reader.execute("BEGIN")
    reader.execute("SELECT count(*) FROM tasks").fetchall()
    try:
        yield
    finally:
        reader.close()


def answers(monkeypatch: pytest.MonkeyPatch) -> list[Answer | None]:
    """What SQLite answers to the looks from now on."""
    found: list[Answer | None] = []
    run = Checkpoint.run

    def noted(self: Checkpoint) -> Answer | None:
        found.append(run(self))
        return found[-1]

    monkeypatch.setattr(Checkpoint, "run", noted)
    return found


def small_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """A limit of 256 pages, so that a test need not write 64 MiB."""
    monkeypatch.setattr(upkeep, "LOG_SIZE_MAX_BYTES", SMALL_LIMIT_BYTES)


def told(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    """The lines about the log since the last question, by level and beginning."""
    lines = [
        (record.levelname, record.getMessage()) for record in caplog.records if "write-ahead" in record.getMessage()
    ]
    caplog.clear()
    return lines


@contextmanager
def listening(caplog: pytest.LogCaptureFixture) -> Generator[None]:
    """Hear what is told, recoveries included."""
    with caplog.at_level(logging.INFO, logger="perdure"):
        yield
