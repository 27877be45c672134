"""A damaged file: refused at the start where it is seen, told where a page is read, and never touched."""

import asyncio
from pathlib import Path

import pytest
from tests.integration.upkept import held, upkept

from perdure.domain.errors import StorageDamaged
from perdure.ports.storage import Store, TaskRecord
from perdure.storage.sqlite import whole
from perdure.storage.sqlite.store import SqliteStore
from perdure.testing.damage import PAGE_BYTES, leaves_of, overwrite_page
from perdure.testing.store_steps import add_client, all_events, end, found, grow, moved, new_task, running

TASKS = 12
TEXT = "words " * 200


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A closed database with some finished tasks of several pages each."""
    path = tmp_path / "perdure.db"

    async def fill() -> None:
        store = await SqliteStore.open(path)
        client = await add_client(store)
        for number in range(TASKS):
            task = await running(store, f"t{number}", client)
            for _ in range(8):
                task = await moved(store, task, lambda task: grow(task, TEXT))
            await moved(store, task, end)
        await store.close()

    asyncio.run(fill())
    return path


@pytest.fixture
def large(path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The same, just above the size up to which a start looks it through."""
    monkeypatch.setattr(whole, "CHECKED_MAX_BYTES", path.stat().st_size - 1)
    return path


def refusal(path: Path) -> str:
    """The line with which a start is refused; not a byte may change, and nothing may be left."""
    before = bytes_of(path)
    with pytest.raises(StorageDamaged) as caught:
        asyncio.run(SqliteStore.open(path))
    assert bytes_of(path) == before
    return caught.value.message


def bytes_of(path: Path) -> dict[str, bytes]:
    """What lies in the folder. The index of a log is not part of what is kept."""
    files = sorted(each for each in path.parent.iterdir() if each.name != f"{path.name}-shm")
    return {each.name: each.read_bytes() for each in files}


@pytest.mark.proves("E-17")
def test_whichever_page_is_spoilt_the_start_is_refused(path: Path) -> None:
    """Of a database that is small enough to be looked through. The line names the file, what was found, and the way
    back."""
    sound = path.read_bytes()
    pages = len(sound) // PAGE_BYTES
    assert pages > 50
    for page in range(1, pages + 1):
        path.write_bytes(sound)
        overwrite_page(path, page)
        line = refusal(path)
        assert line.startswith(f"{path} is damaged or not a database (")
        assert "perdure doctor" in line
        assert "perdure restore" in line
        assert "\n" not in line
    path.write_bytes(sound)
    store = asyncio.run(opened_and_closed(path))
    assert store.condition().trouble is None


async def opened_and_closed(path: Path) -> Store:
    """A start that is not refused."""
    store = await SqliteStore.open(path)
    await store.close()
    return store


@pytest.mark.proves("E-17")
def test_a_large_file_is_found_damaged_where_it_is_read(
    large: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Whoever reads it is told; from then on nothing is written, everything else stays readable, and one line said
    so, until the next start."""
    leaves = leaves_of(large, "event_bodies")
    overwrite_page(large, leaves[len(leaves) // 2])

    async def play() -> None:
        store = await SqliteStore.open(large)
        tasks = [await found(store, f"t{number}") for number in range(TASKS)]
        await store.submit(new_task("before", tasks[0].client_id), 10)
        assert store.condition().trouble is None
        readable = [task for task in tasks if await reads(store, task)]
        assert 0 < len(readable) < TASKS
        condition = store.condition()
        assert (condition.trouble, condition.writes_refused) == ("storage_damaged", 0)
        assert condition.reason is not None
        assert str(large) not in condition.reason
        with pytest.raises(StorageDamaged):
            await store.submit(new_task("after", tasks[0].client_id), 10)
        assert await store.task("after") is None
        assert [task for task in tasks if await reads(store, task)] == readable
        assert store.condition().trouble == "storage_damaged"
        await store.close()

    asyncio.run(play())
    (line,) = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    assert str(large) in line
    assert "perdure restore" in line
    monkeypatch.setattr(whole, "CHECKED_MAX_BYTES", large.stat().st_size)
    refusal(large)


@pytest.mark.proves("E-17")
def test_once_damage_was_found_not_a_byte_is_written(
    large: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither by the minute's look nor at the stop, although the log holds commits that were not moved and a cut is
    owed; the next start does not touch it either, and the log is there for who saves what can be saved."""
    leaves = leaves_of(large, "event_bodies")
    overwrite_page(large, leaves[len(leaves) // 2])

    async def play() -> dict[str, bytes]:
        async with upkept(tmp_path) as it:
            tasks = [await found(it.store, f"t{number}") for number in range(TASKS)]
            with held(it.path):
                await it.store.purge([tasks[0].id])
                await it.store.submit(new_task("acknowledged", tasks[0].client_id), 10)
                await it.store.writer.aside(lambda: None)  # behind whatever is done after a commit
            for task in tasks[1:]:
                await reads(it.store, task)
            assert it.store.condition().trouble == "storage_damaged"
            before = bytes_of(large)
            for _ in range(2):
                await it.minute()
            with pytest.raises(StorageDamaged):
                await it.store.submit(new_task("after", tasks[0].client_id), 10)
            assert bytes_of(large) == before
        return before

    before = asyncio.run(play())
    assert before[f"{large.name}-wal"]
    assert bytes_of(large) == before
    monkeypatch.setattr(whole, "CHECKED_MAX_BYTES", large.stat().st_size)
    refusal(large)


async def reads(store: Store, task: TaskRecord) -> bool:
    """Whether a task can be read: all of it, or none."""
    try:
        assert len(await all_events(store, task)) == task.next_seq
        assert await store.snapshot(task.id) is not None
    except StorageDamaged:
        return False
    return True


def test_damage_that_a_write_meets_ends_the_writing(large: Path) -> None:
    """The caller is told of damage, not of a refusal that would end; nothing of his is kept."""
    overwrite_page(large, leaves_of(large, "task_events")[-1])

    async def play() -> None:
        store = await SqliteStore.open(large)
        client = (await found(store, "t0")).client_id
        assert store.condition().trouble is None
        for _ in range(2):
            with pytest.raises(StorageDamaged):
                await store.submit(new_task("new", client), 10)
        assert await store.task("new") is None
        assert (store.condition().trouble, store.condition().writes_refused) == ("storage_damaged", 1)
        await store.close()

    asyncio.run(play())
