"""A read that the disk refuses: told to whoever asked, and no reason to refuse writes."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import apsw
import pytest
from tests.integration.storage.reluctant_disk import Reluctant
from tests.unit.engine.stage import scenario

from perdure.domain.errors import StorageFailed, Unavailable
from perdure.storage.sqlite.store import SqliteStore
from perdure.testing.faulty_vfs import registered
from perdure.testing.store_steps import add_client, submitted


@asynccontextmanager
async def opened(disk: Reluctant, path: Path) -> AsyncGenerator[SqliteStore]:
    """A store on that disk."""
    with registered(disk):
        store = await SqliteStore.open(path, vfs="unread")
        try:
            yield store
        finally:
            disk.error = None
            await store.close()


async def refusal(store: SqliteStore) -> Unavailable:
    """What the one who reads is told."""
    with pytest.raises(Unavailable) as told:
        await store.task("a")
    return told.value


@pytest.mark.parametrize("kind", [apsw.IOError, apsw.BusyError, apsw.FullError])
@scenario
async def test_a_read_that_fails_is_told_as_a_read(
    tmp_path: Path, kind: type[apsw.Error], caplog: pytest.LogCaptureFixture
) -> None:
    """The state of the writes stays as it is, and many who ask make one line."""
    disk = Reluctant("unread", lasting=True)
    async with opened(disk, tmp_path / "perdure.db") as store:
        task = await submitted(store, "a", await add_client(store))
        await store.boot("b", 2)  # so that the reader has to look at the disk again
        disk.error = lambda: kind("its own words")
        told = [await refusal(store) for _ in range(20)]
        disk.error = None
        assert {type(each) for each in told} == {StorageFailed}
        assert all("could not be read" in each.message and "written" not in each.message for each in told)
        condition = store.condition()
        assert (condition.trouble, condition.reason, condition.writes_refused) == (None, None, 0)
        assert await store.task("a") == task
        await submitted(store, "b", task.client_id)
    (line,) = [record.getMessage() for record in caplog.records]
    assert "its own words" in line
    assert str(tmp_path / "perdure.db") in line
