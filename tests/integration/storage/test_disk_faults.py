"""Disks that are full or broken: whoever was refused is told, nothing of his is kept, and it ends with the trouble.

The loops make the n-th operation of the disk fail for n = 1, 2, 3 ... until a whole call goes through untouched, so
that every place where a call touches the disk has failed once.
"""

import asyncio
import itertools
import random
import resource
import shutil
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import apsw
import pytest

from perdure.domain.errors import StorageFailed, StorageFull, Unavailable
from perdure.ports.storage import Change, StaleTask, Store, TaskRecord
from perdure.storage.sqlite import log
from perdure.storage.sqlite.store import SqliteStore
from perdure.testing.faulty_vfs import Fault, FaultyDisk, registered
from perdure.testing.store_steps import (
    QUEUE_MAX,
    add_client,
    all_events,
    end,
    finished,
    found,
    grow,
    moved,
    new_task,
    running,
)

TOLD: dict[Fault, type[Unavailable]] = {Fault.FULL: StorageFull, Fault.IO: StorageFailed}
LOOPS_MAX = 200
"""No call touches the disk more often."""


class Case:
    """A call, what must be true when it was refused, and what when it was made."""

    def __init__(self, store: Store, client: int) -> None:
        self.store, self.client = store, client
        self.numbers = itertools.count()

    async def submit(self) -> tuple[Callable[[], Awaitable[None]], Callable[[], Awaitable[bool]]]:
        """A new task is there whole or not at all."""
        name = f"t{next(self.numbers)}"

        async def made() -> bool:
            task = await self.store.task(name)
            return task is not None and len(await all_events(self.store, task)) == 2

        return lambda: self.store.submit(new_task(name, self.client), QUEUE_MAX), made

    async def apply(self) -> tuple[Callable[[], Awaitable[None]], Callable[[], Awaitable[bool]]]:
        """Status and events are the old ones or the new ones."""
        before = await running(self.store, f"t{next(self.numbers)}", self.client)

        async def made() -> bool:
            task = await found(self.store, before.ident)
            await all_events(self.store, task)
            assert task == before or task.status == "completed"
            return task != before

        return lambda: self.store.apply(end(before)), made

    async def purge(self) -> tuple[Callable[[], Awaitable[None]], Callable[[], Awaitable[bool]]]:
        """All of it is there or nothing."""
        before = await finished(self.store, f"t{next(self.numbers)}", self.client)

        async def made() -> bool:
            events = await self.store.events(before.id, -1, 100)
            assert len(events) in (0, before.next_seq)
            assert (await self.store.task(before.ident) is None) == (not events)
            return not events

        return lambda: self.store.purge(before.id), made


@pytest.mark.proves("P3", "P4")
@pytest.mark.parametrize("lasting", [False, True], ids=["once", "lasting"])
@pytest.mark.parametrize("fault", Fault, ids=lambda fault: fault.name)
@pytest.mark.parametrize("call", ["submit", "apply", "purge"])
def test_every_refusal_is_told_and_leaves_nothing(tmp_path: Path, call: str, fault: Fault, lasting: bool) -> None:
    """At each place where the call touches the disk; and the same store then makes the same call."""

    async def play() -> None:
        disk = FaultyDisk(f"faulty-{tmp_path.name}")
        with registered(disk):
            store = await SqliteStore.open(tmp_path / "perdure.db", vfs=f"faulty-{tmp_path.name}")
            case = Case(store, await add_client(store))
            nth = 0
            while True:
                nth += 1
                assert nth < LOOPS_MAX
                action, made = await getattr(case, call)()
                refused = disk.refused
                (disk.fail_from if lasting else disk.fail_once)(fault, nth)
                (result,) = await asyncio.gather(action(), return_exceptions=True)
                if disk.refused == refused:
                    break
                if call == "purge" and result is None:  # refused was the cut of the log, which has time
                    assert await made()
                    disk.mend()
                    continue
                assert type(result) is TOLD[fault]
                assert not await made()
                disk.mend()
                await action()
                assert await made()
            assert nth > 5
            assert result is None
            await store.close()
        _check_whole(tmp_path / "perdure.db")

    asyncio.run(play())


@pytest.mark.proves("P3")
@pytest.mark.parametrize("fault", Fault, ids=lambda fault: fault.name)
def test_of_callers_who_share_a_commit_each_is_told_the_truth(tmp_path: Path, fault: Fault) -> None:
    """Kept if and only if not refused, wherever the disk fails, in the middle of checkpoints too."""

    async def play() -> None:
        disk = FaultyDisk(f"shared-{fault.name}")
        with registered(disk):
            store = await SqliteStore.open(tmp_path / "perdure.db", vfs=f"shared-{fault.name}")
            client = await add_client(store)
            kept: list[str] = []
            nth = 0
            while True:
                nth += 1
                assert nth < LOOPS_MAX
                names = [f"t{nth}-{n}" for n in range(5)]
                refused = disk.refused
                disk.fail_from(fault, nth)
                calls = [store.submit(new_task(name, client), QUEUE_MAX) for name in names]
                results = await asyncio.gather(*calls, return_exceptions=True)
                clean = disk.refused == refused
                disk.mend()
                assert {type(result) for result in results} <= {type(None), TOLD[fault]}
                for name, result in zip(names, results, strict=True):
                    assert (await store.task(name) is not None) == (result is None)
                    kept += [name] if result is None else []
                if clean:
                    break
            await store.close()
        store = await SqliteStore.open(tmp_path / "perdure.db")
        assert [task.ident for task in await store.unfinished(0, 10_000)] == kept
        await store.close()

    asyncio.run(play())


@pytest.mark.proves("P3", "P4")
@pytest.mark.parametrize("fault", Fault, ids=lambda fault: fault.name)
def test_what_was_refused_does_not_come_back_after_a_crash(tmp_path: Path, fault: Fault) -> None:
    """A commit that failed at its sync lies whole in the log; it must not rise when the log is read again."""

    async def play() -> None:
        disk = FaultyDisk(f"risen-{fault.name}")
        with registered(disk):
            store = await SqliteStore.open(tmp_path / "perdure.db", vfs=f"risen-{fault.name}")
            client = await add_client(store)
            nth = 0
            while True:
                nth += 1
                assert nth < LOOPS_MAX
                refused = disk.refused
                disk.fail_once(fault, nth)
                name = f"t{nth}"
                (result,) = await asyncio.gather(
                    store.submit(new_task(name, client), QUEUE_MAX), return_exceptions=True
                )
                if disk.refused == refused:
                    break
                assert result is not None
                after = await _after_a_crash(tmp_path)
                assert await after.task(name) is None
                await after.close()
            assert result is None
            await store.close()

    asyncio.run(play())


@pytest.mark.parametrize("fault", Fault, ids=lambda fault: fault.name)
def test_a_log_that_cannot_be_moved_costs_nobody_his_work(
    tmp_path: Path, fault: Fault, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The commit stands and its caller is told so; the operator is told the other thing; the log is moved later."""
    monkeypatch.setattr(log, "LOG_MAX_PAGES", 1)
    chance = random.Random(1)

    async def play() -> None:
        disk = FaultyDisk(f"log-{fault.name}")
        with registered(disk):
            store = await SqliteStore.open(tmp_path / "perdure.db", vfs=f"log-{fault.name}")
            task = await running(store, "a", await add_client(store))
            for _ in range(200):
                disk.fail_once(fault, chance.randrange(1, 20))
                try:
                    await store.apply(grow(task))
                except (StorageFull, StorageFailed):
                    assert await found(store, "a") == task
                except StaleTask:
                    raise AssertionError("a refused step was kept") from None
                else:
                    assert await found(store, "a") != task
                task = await found(store, "a")
            disk.mend()
            assert disk.refused > 50
            await all_events(store, task)
            await store.close()
        _check_whole(tmp_path / "perdure.db")

    asyncio.run(play())
    assert "could not be moved into the database" in caplog.text


@pytest.mark.proves("P3")
def test_a_disk_that_is_really_full_holds_up_only_while_it_is(tmp_path: Path) -> None:
    """With a limit that the operating system enforces: refused, readable, and at work again when there is room."""
    done = subprocess.run(
        [sys.executable, __file__, str(tmp_path)], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout) == (0, "refused, then kept\n"), done.stderr
    _check_whole(tmp_path / "perdure.db")


async def _fill(folder: Path) -> None:
    """Run against a limit of file sizes, then lift it. A process of its own: the limit is the whole process's."""
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    store = await SqliteStore.open(folder / "perdure.db")
    task = await running(store, "a", await add_client(store))
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, hard))
    last = await _until_full(store, task)
    refused = 0
    while refused < 3:  # the first refusal moves the log into the file, which may give room for a while
        assert await found(store, "a") == last
        (again,) = await asyncio.gather(store.apply(_large(last)), return_exceptions=True)
        refused = refused + 1 if isinstance(again, StorageFull) else 0
        assert again is None or refused
        last = await found(store, "a")
    resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    last = await moved(store, last, _large, end)
    await all_events(store, last)
    await store.close()
    sys.stdout.write("refused, then kept\n")


async def _until_full(store: Store, task: TaskRecord) -> TaskRecord:
    while True:
        try:
            task = await moved(store, task, _large)
        except StorageFull:
            return await found(store, task.ident)


def _large(task: TaskRecord) -> Change:
    return grow(task, "x" * 50_000)


async def _after_a_crash(folder: Path) -> Store:
    """The store as a new process would find it: the file and its log as they are now."""
    crashed = folder / "crashed"
    shutil.rmtree(crashed, ignore_errors=True)
    crashed.mkdir()
    for name in ("perdure.db", "perdure.db-wal"):
        shutil.copy(folder / name, crashed / name)
    return await SqliteStore.open(crashed / "perdure.db")


def _check_whole(path: Path) -> None:
    connection = apsw.Connection(str(path))
    assert connection.pragma("integrity_check") == "ok"
    assert connection.pragma("foreign_key_check") is None
    connection.close()


if __name__ == "__main__":
    asyncio.run(_fill(Path(sys.argv[1])))
