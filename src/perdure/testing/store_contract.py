"""What every store must do, as tests.

A database's tests derive a class from `StoreContract`, say how a store is opened in a folder, and run all of it:

    class TestSqliteStore(StoreContract):
        async def open_store(self, folder: Path) -> Store:
            return await SqliteStore.open(folder / "perdure.db")

The tests know a store by its port alone. They stand in `perdure.testing.contract`, by subject.
"""

from perdure.testing.contract.journals import Journals
from perdure.testing.contract.queues import Queues
from perdure.testing.contract.retention import Retention
from perdure.testing.contract.service import Service
from perdure.testing.contract.steps import Steps
from perdure.testing.contract.submits import Submits


class StoreContract(Submits, Journals, Steps, Queues, Retention, Service):
    """The whole contract."""
