"""Signed reads against a process that commits as fast as the disk lets it."""

import asyncio
import multiprocessing
import random
from contextlib import closing
from multiprocessing.synchronize import Event
from pathlib import Path

import pytest

from perdure.engine.signed import Ask, Found, NotModified, Reading, Signed, Signer
from perdure.ports.storage import Change, TaskRecord
from perdure.storage.sqlite.connection import open_writer
from perdure.storage.sqlite.query import rows
from perdure.storage.sqlite.store import SqliteStore
from perdure.testing.store_steps import add_client, finished

READS = 100_000
OWN_READS = 10_000
READERS = 32
ASK = Ask(1, "/v1/tasks/task_a?", "1.0")


def write(path: Path, begun: Event, stop: Event) -> None:
    """Commit one number after the other into the row that is read."""
    with closing(open_writer(path)) as connection:
        connection.pragma("wal_autocheckpoint", 1_000)
        number = 0
        while not stop.is_set():
            number += 1
            rows(connection, "UPDATE tasks SET purge_at = ?", (number,))
            begun.set()


class Race:
    """The reading side. `marks` says for every mark which numbers were read under it."""

    def __init__(self, store: SqliteStore) -> None:
        self._store = store
        self._signer = Signer(store, lambda _what, error: pytest.fail(repr(error)))
        self.marks: dict[str, tuple[int, int]] = {}
        self.signed = self.unsigned = self.recognised = 0

    async def number(self) -> int:
        """The number that stands there now."""
        number = await self._store.next_purge_at()
        assert number is not None
        return number

    def reading(self) -> Reading[tuple[int, int]]:
        """Two looks at the row, with time between them."""

        async def find() -> Found[tuple[int, int]]:
            first = await self.number()

            async def render() -> tuple[int, int]:
                return first, await self.number()

            return Found(render)

        return Reading(find)

    async def run(self, reads: int) -> None:
        """So many reads, by readers some of whom come back at once and some with a mark of long ago."""
        held = list[str | None]([None] * READERS)
        for _ in range(reads):
            reader = random.randrange(READERS)
            held[reader] = await self.step(held[reader])
            await asyncio.sleep(0)

    async def step(self, mark: str | None) -> str | None:
        """One read by somebody who has `mark`; returns what he has then."""
        before = await self.number()
        known = frozenset[str]() if mark is None else frozenset({mark})
        answer = await self._signer(self.reading(), Ask(ASK.client_id, ASK.target, ASK.build, known))
        if isinstance(answer, NotModified):
            self._recognised(answer.mark, before, await self.number())
            return answer.mark
        return self._read(answer)

    def _recognised(self, mark: str, before: int, after: int) -> None:
        self.recognised += 1
        number, _ = self.marks[mark]
        assert before <= number <= after, "somebody was told that an answer still holds which does not"

    def _read(self, answer: Signed[tuple[int, int]]) -> str | None:
        if answer.mark is None:
            self.unsigned += 1
            return None
        self.signed += 1
        assert answer.value[0] == answer.value[1], "two states under one mark"
        assert self.marks.setdefault(answer.mark, answer.value) == answer.value, "two answers under one mark"
        return answer.mark


@pytest.mark.proves("S1", "S2", "V1")
def test_equal_marks_mean_equal_answers(tmp_path: Path) -> None:
    """No mark stands for two states, and nobody is told that an answer still holds which does not."""
    path = tmp_path / "perdure.db"
    processes = multiprocessing.get_context("spawn")
    begun, stop = processes.Event(), processes.Event()
    writer = processes.Process(target=write, args=(path, begun, stop))

    async def scenario() -> Race:
        store = await SqliteStore.open(path)
        await finished(store, "a", await add_client(store), purge_at=0)
        race = Race(store)
        writer.start()
        try:
            assert begun.wait(30)
            await race.run(READS)
        finally:
            stop.set()
            writer.join()
            await store.close()
        return race

    race = asyncio.run(scenario())
    assert race.signed + race.unsigned + race.recognised == READS
    assert race.signed > READS // 1_000
    assert race.unsigned > READS // 10_000
    assert race.recognised > READS // 10_000


@pytest.mark.proves("S1", "S2", "V1")
def test_the_stores_own_writer_is_seen_as_well(tmp_path: Path) -> None:
    """Its thread commits while the event loop reads."""

    async def scenario() -> Race:
        store = await SqliteStore.open(tmp_path / "perdure.db")
        task = await finished(store, "a", await add_client(store), purge_at=0)
        race = Race(store)
        reading = asyncio.create_task(race.run(OWN_READS))
        number = 0
        while not reading.done():
            number += 1
            await store.apply(postponed(task, number))
        await reading
        await store.close()
        return race

    race = asyncio.run(scenario())
    assert race.signed + race.unsigned + race.recognised == OWN_READS
    assert len(race.marks) > 10


def postponed(task: TaskRecord, number: int) -> Change:
    """A step that puts a number into the row that is read."""
    here = frozenset({task.status})
    return Change(task.id, here, task.next_seq, task.status, at=number, purge_at=number)
