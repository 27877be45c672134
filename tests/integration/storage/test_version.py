"""The version of a store: a probe that sees every commit, on real files."""

import asyncio
from collections.abc import Coroutine, Generator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import apsw
import pytest
from tests.integration.storage.reluctant_disk import Reluctant

from perdure.domain.errors import QueueFull, StorageFailed, Unavailable
from perdure.ports.storage import StaleTask
from perdure.storage.sqlite.connection import enforce_references, open_reader, open_writer
from perdure.storage.sqlite.migrate import migrate, shipped
from perdure.storage.sqlite.probe import Probe, open_probe
from perdure.storage.sqlite.query import rows
from perdure.storage.sqlite.store import SqliteStore
from perdure.testing.faulty_vfs import Fault, FaultyDisk, registered
from perdure.testing.store_steps import add_client, claim, finished, grow, new_task, running, submitted

READINGS = 300


def play(scenario: Coroutine[Any, Any, None]) -> None:
    """Run a scenario, bounded."""

    async def bounded() -> None:
        async with asyncio.timeout(30):
            await scenario

    asyncio.run(bounded())


def generation(version: str) -> str:
    return version.partition(".")[0]


def counter(version: str) -> str:
    return version.partition(".")[2]


def files(folder: Path) -> list[str]:
    return sorted(each.name for each in folder.iterdir())


@contextmanager
def database(folder: Path) -> Generator[apsw.Connection]:
    """A writer's connection without a store around it, whose log nobody moves."""
    connection = open_writer(folder / "perdure.db")
    migrate(connection, shipped())
    enforce_references(connection)
    with closing(connection):
        yield connection


def commit(connection: apsw.Connection, number: int) -> None:
    """Write something."""
    rows(connection, "UPDATE service_config SET service_id = ?", (f"{number:032x}",))


@pytest.mark.proves("V1", "V8")
def test_every_kind_of_commit_moves_the_version_and_nothing_else_does(tmp_path: Path) -> None:
    """Between two commits it stays, however often it is asked for and whatever is read."""

    async def scenario() -> None:
        store = await SqliteStore.open(tmp_path / "perdure.db")
        client = await add_client(store)
        seen = [await store.version()]

        async def moved() -> None:
            version = await store.version()
            assert version not in seen
            seen.append(version)
            await store.task("a")
            assert [await store.version() for _ in range(3)] == [version] * 3

        await store.boot("boot-1", 1)
        await moved()
        task = await submitted(store, "a", client)
        await moved()
        await store.apply(claim(task))
        await moved()
        ended = await finished(store, "b", client)
        await moved()
        await store.purge([ended.id])
        await moved()
        assert {generation(version) for version in seen} == {generation(seen[0])}
        await store.close()

    play(scenario())


@pytest.mark.proves("V1")
def test_what_was_refused_does_not_move_it(tmp_path: Path) -> None:
    """A stale step, a full queue, and a purge of what is unfinished."""

    async def scenario() -> None:
        store = await SqliteStore.open(tmp_path / "perdure.db")
        client = await add_client(store)
        task = await running(store, "a", client)
        await submitted(store, "waits", client)
        before = await store.version()
        with pytest.raises(StaleTask):
            await store.apply(claim(task))
        with pytest.raises(QueueFull):
            await store.submit(new_task("b", client, prompt=tuple(range(1_000_000))), 1)
        await store.purge([task.id])
        assert await store.version() == before
        await store.apply(grow(task))
        assert await store.version() != before
        await store.close()

    play(scenario())


@pytest.mark.proves("V1")
def test_a_large_transaction_that_is_rolled_back_leaves_no_trace_in_it(tmp_path: Path) -> None:
    """Larger than the writer's cache: what spills into the log would be counted."""
    with database(tmp_path) as writer, closing(open_probe(tmp_path / "perdure.db")) as probe:
        before = probe.version()
        rows(writer, "BEGIN IMMEDIATE")
        rows(
            writer,
            "WITH n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 4000)"
            " INSERT INTO clients (name, token_hash, token_prefix, scopes, created_at)"
            " SELECT 'c' || i || hex(zeroblob(1000)), randomblob(32), 'p', '[]', 1 FROM n",
        )
        assert probe.version() == before
        rows(writer, "ROLLBACK")
        assert probe.version() == before
        commit(writer, 1)
        assert probe.version() != before


@pytest.mark.proves("V1")
def test_a_disk_that_refuses_a_commit_does_not_move_it(tmp_path: Path) -> None:
    """What was not kept is no news; what is kept after the disk is mended is."""
    disk = FaultyDisk("refusing-the-version")

    async def scenario() -> None:
        store = await SqliteStore.open(tmp_path / "perdure.db", vfs="refusing-the-version")
        client = await add_client(store)
        before = await store.version()
        disk.fail_from(Fault.IO, 1)
        with pytest.raises(StorageFailed):
            await submitted(store, "a", client)
        assert await store.version() == before
        disk.mend()
        await submitted(store, "b", client)
        assert await store.version() != before
        await store.close()

    with registered(disk):
        play(scenario())


@pytest.mark.proves("V1")
def test_moving_the_log_into_the_database_does_not_move_it(tmp_path: Path) -> None:
    """Nothing is committed by that, whichever connection does it."""
    path = tmp_path / "perdure.db"
    with database(tmp_path) as writer, closing(open_probe(path)) as probe, closing(open_writer(path)) as other:
        for number, mover in enumerate((writer, other)):
            commit(writer, number)
            before = probe.version()
            rows(mover, "PRAGMA wal_checkpoint(PASSIVE)")
            assert probe.version() == before


@pytest.mark.proves("V2", "V5", "V8")
def test_no_version_comes_back_when_the_database_is_opened_again(tmp_path: Path) -> None:
    """The counter begins anew each time, and so would give an old mark to a new state; the generation does not."""

    async def scenario() -> None:
        seen: list[str] = []
        for number in range(10):
            store = await SqliteStore.open(tmp_path / "perdure.db")
            seen.append(await store.version())
            await store.boot(f"boot-{number}", number)
            seen.append(await store.version())
            await store.close()
        assert len(set(seen)) == len(seen)
        assert len({generation(version) for version in seen}) == 10
        assert len({counter(version) for version in seen}) < len(seen)  # it alone would have repeated itself

    play(scenario())


@pytest.mark.proves("V2", "V5")
def test_two_probes_of_one_state_agree_on_nothing(tmp_path: Path) -> None:
    """They may have the same counter for different states, and other counters for the same one."""
    with database(tmp_path) as writer, closing(open_probe(tmp_path / "perdure.db")) as first:
        old = first.version()
        for number in range(5):
            commit(writer, number)
            first.version()
        with closing(open_probe(tmp_path / "perdure.db")) as second:
            assert counter(second.version()) != counter(first.version())
            assert counter(second.version()) == counter(old)
            assert second.version() not in (first.version(), old)


@pytest.mark.proves("V4", "V8")
def test_many_readings_hold_nothing_back(tmp_path: Path) -> None:
    """With no other reader, the log is moved whole afterwards, and starts anew at the next commit."""
    path = tmp_path / "perdure.db"
    with database(tmp_path) as writer, closing(open_probe(path)) as probe:
        for number in range(READINGS):
            commit(writer, number)
            probe.version()
            probe.version()
        with closing(open_writer(path)) as other:
            ((busy, logged, moved),) = rows(other, "PRAGMA wal_checkpoint(PASSIVE)")
        assert (busy, moved) == (0, logged)
        assert logged > READINGS
        commit(writer, 0)
        ((_, logged, _),) = rows(writer, "PRAGMA wal_checkpoint(PASSIVE)")
        assert logged < 10


@pytest.mark.proves("V6", "V8")
def test_a_closed_connection_is_replaced_within_the_same_question(tmp_path: Path) -> None:
    """The answer is a new generation and no error; it stays until the next such accident."""
    made: list[apsw.Connection] = []

    def connect() -> apsw.Connection:
        made.append(open_reader(tmp_path / "perdure.db"))
        return made[-1]

    with database(tmp_path) as writer:
        probe = Probe(connect)
        versions = [probe.version()]
        for number in range(5):
            made[-1].close()
            versions.append(probe.version())
            assert probe.version() == versions[-1]
            commit(writer, number)
            assert probe.version() != versions[-1]
        probe.close()
        assert len(made) == 6
        assert len({generation(version) for version in versions}) == 6


@pytest.mark.proves("V6")
def test_a_connection_that_cannot_be_replaced_is_tried_again_at_the_next_question(tmp_path: Path) -> None:
    """The failure is one of the storage; it ends with its cause, by a new generation."""
    refuse = False
    made: list[apsw.Connection] = []

    def connect() -> apsw.Connection:
        if refuse:
            raise apsw.CantOpenError("no more files")
        made.append(open_reader(tmp_path / "perdure.db"))
        return made[-1]

    with database(tmp_path):
        probe = Probe(connect)
        first = probe.version()
        made[-1].close()
        refuse = True
        for _ in range(2):
            with pytest.raises(StorageFailed):
                probe.version()
        refuse = False
        assert generation(probe.version()) != generation(first)
        probe.close()


@pytest.mark.proves("V6", "V8")
@pytest.mark.parametrize("lasting", [True, False])
@pytest.mark.parametrize("kind", [apsw.BusyError, apsw.IOError, apsw.LockedError, apsw.NoMemError])
def test_trouble_passes_and_leaves_the_generation(tmp_path: Path, kind: type[apsw.Error], lasting: bool) -> None:
    """A busy database and a disk that cannot be read are told as they are, and void nobody's marks."""
    disk = Reluctant("reluctant", lasting=lasting)

    async def scenario() -> None:
        store = await SqliteStore.open(tmp_path / "perdure.db", vfs="reluctant")
        before = await store.version()
        await store.boot("boot-2", 2)  # so that the probe has to look
        disk.error = lambda: kind("refused")
        with pytest.raises(StorageFailed):
            await store.version()
        disk.error = None
        after = await store.version()
        assert (generation(after), after != before) == (generation(before), True)
        await store.close()

    try:
        play(scenario())
    finally:
        disk.unregister()


@pytest.mark.proves("V6", "V8")
def test_somebody_elses_lock_is_no_reason_for_a_new_generation(tmp_path: Path) -> None:
    """It does not even fail: who looks at the version waits for no writer."""

    async def scenario() -> None:
        store = await SqliteStore.open(tmp_path / "perdure.db")
        before = await store.version()
        with closing(apsw.Connection(str(tmp_path / "perdure.db"))) as foreign:
            rows(foreign, "BEGIN EXCLUSIVE")
            assert await store.version() == before
            rows(foreign, "ROLLBACK")
            assert await store.version() == before
        await store.close()

    play(scenario())


@pytest.mark.proves("V6", "V8")
@pytest.mark.parametrize("turns", range(4))
def test_a_caller_who_leaves_does_not_change_it(tmp_path: Path, turns: int) -> None:
    """Cancelled before the question was begun, or after."""

    async def scenario() -> None:
        store = await SqliteStore.open(tmp_path / "perdure.db")
        before = await store.version()
        left = asyncio.create_task(store.version())
        for _ in range(turns):
            await asyncio.sleep(0)
        left.cancel()
        await asyncio.gather(left, return_exceptions=True)
        assert await store.version() == before
        await store.close()

    play(scenario())


@pytest.mark.proves("V7", "V8")
def test_a_closed_store_has_no_version_and_opens_nothing_to_find_one(tmp_path: Path) -> None:
    """The one file that is left can be moved alone."""

    async def scenario() -> None:
        store = await SqliteStore.open(tmp_path / "perdure.db")
        await add_client(store)
        await store.version()
        await store.close()
        left = len(apsw.connections())
        for _ in range(2):
            with pytest.raises(Unavailable):
                await store.version()
            assert files(tmp_path) == ["perdure.db"]
            assert len(apsw.connections()) == left

    play(scenario())


@pytest.mark.proves("V7")
def test_the_probe_is_the_first_to_be_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While every other connection is still open; and the writer, still at work, is the last."""
    open_then: list[int] = []
    closed = asyncio.Event()
    close = Probe.close

    def noted(probe: Probe) -> None:
        open_then.append(len(apsw.connections()))
        close(probe)
        closed.set()

    monkeypatch.setattr(Probe, "close", noted)

    async def scenario() -> None:
        store = await SqliteStore.open(tmp_path / "perdure.db")
        client = await add_client(store)
        everything = len(apsw.connections())
        late = asyncio.create_task(store.submit(new_task("late", client), 10))
        await asyncio.sleep(0)
        closing_down = asyncio.create_task(store.close())
        await closed.wait()
        with pytest.raises(Unavailable):
            await store.version()
        await late
        await closing_down
        assert open_then == [everything]
        assert files(tmp_path) == ["perdure.db"]

    play(scenario())
