"""A helper: tasks into the queue of another library, by the call that its documentation shows. It runs in `.peers`.

`dbos`: a client enqueues a workflow; the system database is SQLite, as the library itself sets it up. `huey`: a task
is called, with the library's own setting for durability, `fsync=True`. Nobody takes anything out. What SQLite
answers about durability is asked over the library's own connection.
"""

import sys
from functools import partial
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarks.callers import threaded
from benchmarks.processes import heard, say

BUSY_MAX_SECONDS = 60
"""How long a caller of huey waits for the lock; DBOS waits 30 s by itself. Nobody must be refused."""


class Dbos:
    """DBOS, with a client as an application's other processes have one."""

    name = "dbos"
    kept = "SELECT count(*) FROM workflow_status WHERE status = 'ENQUEUED'"

    def __init__(self, path: Path) -> None:
        dbos = import_module("dbos")
        url = f"sqlite:///{path}"
        dbos.DBOS(
            config={"name": "bench", "system_database_url": url, "run_admin_server": False, "log_level": "ERROR"}
        )
        dbos.DBOS.launch()  # makes the tables, which a client does not
        dbos.DBOS.destroy()
        self._client = dbos.DBOSClient(system_database_url=url)
        self._client.register_queue("bench")

    def enqueue(self, body: dict[str, Any]) -> None:
        """A workflow, to be run by whoever serves the queue."""
        self._client.enqueue({"workflow_name": "answer", "queue_name": "bench"}, body)

    def asked(self, sql: str) -> Any:
        """Over a connection of the client's pool."""
        with self._client._sys_db.engine.connect() as connection:
            return connection.exec_driver_sql(sql).fetchone()[0]

    def close(self) -> None:
        """Close the pool."""
        self._client.destroy()


class Huey:
    """huey."""

    name = "huey"
    kept = "SELECT count(*) FROM task"

    def __init__(self, path: Path) -> None:
        huey = import_module("huey")
        self._huey = huey.SqliteHuey(filename=str(path), fsync=True, timeout=BUSY_MAX_SECONDS)

        def answer(body: dict[str, Any]) -> None:
            raise AssertionError(body)  # nobody takes it out

        self._answer = self._huey.task()(answer)

    def enqueue(self, body: dict[str, Any]) -> None:
        """A call of the task."""
        self._answer(body)

    def asked(self, sql: str) -> Any:
        """Over the one connection that there is."""
        return self._huey.storage.sql(sql, results=True)[0][0]

    def close(self) -> None:
        """Close it."""
        self._huey.storage.close()


PEERS = {kind.name: kind for kind in (Dbos, Huey)}


def main() -> None:
    """Answer questions until there are no more. A library that prints must not be taken for an answer."""
    name = sys.argv[1]
    kind = PEERS[name]
    say({"version": version(name)})
    while question := heard():
        peer = kind(Path(question["path"]))
        found = threaded(question["callers"], question["total"], partial(peer.enqueue, question["body"]))
        settings = {pragma: peer.asked(f"PRAGMA {pragma}") for pragma in ("journal_mode", "synchronous")}
        say({**found, "kept": peer.asked(kind.kept), **settings, "sqlite": peer.asked("SELECT sqlite_version()")})
        peer.close()


if __name__ == "__main__":
    main()
