"""SQLite is held to the contract, on real files."""

from pathlib import Path

from perdure.ports.storage import Store
from perdure.storage.sqlite.store import SqliteStore
from perdure.testing.store_contract import StoreContract


class TestSqliteStore(StoreContract):
    """All of `StoreContract`."""

    async def open_store(self, folder: Path) -> Store:
        return await SqliteStore.open(folder / "perdure.db")
