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

import pytest
from tests.integration.storage.workload import ask_for_end
from tests.soundness import damage

from perdure.domain.errors import RefusedToStart, StorageFailed, StorageFull, Unavailable
from perdure.domain.lifecycle import Status
from perdure.ports.storage import Change, StaleTask, Store, TaskRecord
from perdure.storage.sqlite import log, writer
from perdure.storage.sqlite.store import SqliteStore
from perdure.testing.faulty_vfs import Fault, FaultyDisk, registered
from perdure.testing.store_steps import (
    QUEUE_MAX,
    add_client,
    all_events,
    end,
    found,
    grow,
    moved,
    new_task,
    running,
    submitted,
)

ROOT = Path(__file__).parents[3]
TOLD: dict[Fault, type[Unavailable]] = {Fault.FULL: StorageFull, Fault.IO: StorageFailed}
LOOPS_MAX = 200
"""No call touches the disk more often."""


Call = Callable[[], Awaitable[object]]
Made = Callable[[], Awaitable[bool]]


class Case:
    """A call, and a question that says whether it was made and fails where it was made in part."""

    def __init__(self, store: Store, client: int) -> None:
        self.store, self.client = store, client
        self.numbers = itertools.count()

    async def submit(self) -> tuple[Call, Made]:
        """A new task is there whole or not at all."""
        name = f"t{next(self.numbers)}"

        async def made() -> bool:
            task = await self.store.task(name)
            return task is not None and len(await all_events(self.store, task)) == 2

        return lambda: self.store.submit(new_task(name, self.client), QUEUE_MAX), made

    async def append(self) -> tuple[Call, Made]:
        """More text, some of it so long that it stands apart from its event."""
        return await self._step(lambda task: grow(task, "word " * 500))

    async def finish(self) -> tuple[Call, Made]:
        """An end with its event."""
        return await self._step(end)

    async def cancel(self) -> tuple[Call, Made]:
        """running -> cancelling, which writes no event."""
        return await self._step(ask_for_end)

    async def cancel_queued(self) -> tuple[Call, Made]:
        """queued -> cancelled; the queue is as long as it was, or one shorter."""
        before = await submitted(self.store, f"t{next(self.numbers)}", self.client)
        return self._from(before, lambda task: end(task, Status.CANCELLED))

    async def purge(self) -> tuple[Call, Made]:
        """All of it is there or nothing."""
        return await self._purge(1, None)

    async def purge_page(self) -> tuple[Call, Made]:
        """All of a page is there and no name, or all the names and nothing else; what is unfinished stays."""
        return await self._purge(2, 9_000)

    async def forget(self) -> tuple[Call, Made]:
        """All of the names or none."""
        tasks = [await self._ended() for _ in range(2)]
        await self.store.purge([task.id for task in tasks], 1)

        async def made() -> bool:
            names = [await self.store.expired(task.ident) for task in tasks]
            assert names in ([None] * 2, [self.client] * 2)
            return names == [None] * 2

        return lambda: self.store.forget(1, 2), made

    async def _step(self, step: Callable[[TaskRecord], Change]) -> tuple[Call, Made]:
        return self._from(await running(self.store, f"t{next(self.numbers)}", self.client), step)

    def _from(self, before: TaskRecord, step: Callable[[TaskRecord], Change]) -> tuple[Call, Made]:
        """Status, events and counts are the old ones or the new ones."""
        change = step(before)
        after = before.next_seq + len(change.events)

        async def made() -> bool:
            task = await found(self.store, before.ident)
            await all_events(self.store, task)
            assert task == before or (task.status, task.next_seq) == (change.status, after)
            return task != before

        return lambda: self.store.apply(change), made

    async def _ended(self) -> TaskRecord:
        return await moved(self.store, await submitted(self.store, f"t{next(self.numbers)}", self.client), end)

    async def _purge(self, count: int, remembered_until: int | None) -> tuple[Call, Made]:
        unfinished = await submitted(self.store, f"t{next(self.numbers)}", self.client)
        tasks = [await self._ended() for _ in range(count)]
        asked = [unfinished.id, *(task.id for task in tasks)]

        async def made() -> bool:
            assert await self.store.task(unfinished.ident) == unfinished
            kept = [task for task in tasks if await self.store.task(task.ident) is not None]
            assert kept in ([], tasks)
            for task in tasks:
                assert len((await self.store.events(task.id, -1, 100)).events) == (task.next_seq if kept else 0)
                named = self.client if remembered_until and not kept else None
                assert await self.store.expired(task.ident) == named
            return not kept

        return lambda: self.store.purge(asked, remembered_until), made


CALLS = ("submit", "append", "finish", "cancel", "cancel_queued", "purge", "purge_page", "forget")
LOG_IS_CUT = ("purge", "purge_page", "forget")
"""Calls beside which the log is cut."""


@pytest.mark.proves("P3", "P4")
@pytest.mark.parametrize("lasting", [False, True], ids=["once", "lasting"])
@pytest.mark.parametrize("fault", Fault, ids=lambda fault: fault.name)
@pytest.mark.parametrize("call", CALLS)
def test_every_refusal_is_told_and_leaves_nothing(
    tmp_path: Path, call: str, fault: Fault, lasting: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At each place where the call touches the disk; and the same store then makes the same call."""
    monkeypatch.setattr(writer, "CUT_SECONDS", 0.0)  # with each purge the log is cut as well

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
                if call in LOG_IS_CUT and not isinstance(
                    result, BaseException
                ):  # refused was the cut, which has time
                    assert await made()
                    disk.mend()
                    continue
                assert type(result) is TOLD[fault]
                assert not await made()
                disk.mend()
                await action()
                assert await made()
            assert nth > 5
            assert not isinstance(result, BaseException)
            await store.close()
        assert damage(tmp_path / "perdure.db") == []

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


@pytest.mark.proves("P3")
@pytest.mark.parametrize("left", [False, True], ids=["new", "after a crash"])
@pytest.mark.parametrize("fault", Fault, ids=lambda fault: fault.name)
def test_a_start_on_a_disk_that_refuses_leaves_all_to_the_next_one(tmp_path: Path, fault: Fault, left: bool) -> None:
    """It is refused with one line, or the store is open; what was there is there, whole, at the next start."""

    async def play() -> None:
        disk = FaultyDisk(f"start-{fault.name}")
        before = await SqliteStore.open(tmp_path / "perdure.db")
        task = await running(before, "a", await add_client(before))
        path = tmp_path / "started" / "perdure.db"
        outcomes = set[type]()
        refused, nth = -1, 0
        with registered(disk):
            while disk.refused != refused:
                refused, nth = disk.refused, nth + 1
                assert nth < LOOPS_MAX
                shutil.rmtree(path.parent, ignore_errors=True)
                path.parent.mkdir()
                for name in ("perdure.db", "perdure.db-wal") if left else ():
                    shutil.copy(tmp_path / name, path.parent / name)
                disk.fail_from(fault, nth)
                (found_open,) = await asyncio.gather(
                    SqliteStore.open(path, vfs=f"start-{fault.name}"), return_exceptions=True
                )
                disk.mend()
                outcomes.add(type(found_open))
                if isinstance(found_open, SqliteStore):
                    await found_open.close()
                after = await SqliteStore.open(path)
                assert await after.task("a") == (task if left else None)
                await all_events(after, task) if left else await add_client(after)
                await after.close()
                assert damage(path) == []
        await before.close()
        assert nth > 5
        assert outcomes == ({SqliteStore} if left else {SqliteStore, RefusedToStart})

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
            for nth in range(50, 0, -1):  # from the end: the first that meets a refusal is the moving of the log
                disk.fail_once(fault, nth)
                task = await moved(store, task, grow)
                await store.forget(0, 1)  # whatever the writer does after a commit comes before this
                if disk.refused:
                    break
            assert "could not be moved into the database" in caplog.text
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
        assert damage(tmp_path / "perdure.db") == []

    asyncio.run(play())


@pytest.mark.proves("P3")
def test_a_disk_that_is_really_full_holds_up_only_while_it_is(tmp_path: Path) -> None:
    """With a limit that the operating system enforces: refused, readable, and at work again when there is room."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.integration.storage.test_disk_faults", str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        cwd=ROOT,
    )
    assert (done.returncode, done.stdout) == (0, "refused, then kept\n"), done.stderr
    assert damage(tmp_path / "perdure.db") == []


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


if __name__ == "__main__":
    asyncio.run(_fill(Path(sys.argv[1])))
