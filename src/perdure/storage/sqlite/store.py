"""The store itself: `ports.storage.Store` on one SQLite file.

Writes go to the one writer thread (`writer`). Reads are made where they are asked for, on the event loop, over a
connection that cannot write: they are short (a page at most), and a trip to a thread would cost ten times the read.
"""

import asyncio
from collections.abc import Callable, Collection, Sequence
from functools import partial
from pathlib import Path
from typing import Concatenate, ParamSpec, TypeVar

import apsw

from perdure.domain.errors import Unavailable
from perdure.domain.events import Event
from perdure.domain.lifecycle import Status
from perdure.domain.model import ModelCard
from perdure.domain.principal import Principal, Scope
from perdure.ports.storage import Attempt, Change, NewTask, TaskRecord
from perdure.storage.sqlite import events, lists, service, tasks
from perdure.storage.sqlite.connection import enforce_references, open_reader, open_writer
from perdure.storage.sqlite.faults import refusal, translated
from perdure.storage.sqlite.migrate import Migration, migrate, refuse_unfit, shipped
from perdure.storage.sqlite.version import refuse_faulty
from perdure.storage.sqlite.writer import Writer

T = TypeVar("T")
P = ParamSpec("P")


class SqliteStore:
    """Everything that is kept, in one file. The contract of each method stands at `Store`."""

    def __init__(self, writer: Writer, reader: apsw.Connection) -> None:
        self._writer = writer
        self._reader = reader
        self._closing: asyncio.Task[None] | None = None

    @classmethod
    async def open(
        cls, path: Path, *, vfs: str | None = None, migrations: Sequence[Migration] | None = None
    ) -> "SqliteStore":
        """Open or make the database and bring its schema up to date.

        Raises `RefusedToStart` where that cannot be done; a file that is not fit is left as it is. `vfs` names one
        of SQLite's doors to the operating system, for tests that make the disk fail. One process at a time: the
        caller holds the lock of the data folder.
        """
        refuse_faulty()
        writer = Writer()
        try:
            await writer.start(partial(_prepare, path, vfs, shipped() if migrations is None else migrations))
            return cls(writer, open_reader(path, vfs))
        except apsw.Error as error:
            await writer.close()
            raise refusal(error, path) from error
        except BaseException:
            await writer.close()
            raise

    async def close(self) -> None:
        """Finish what was handed over, then close: the reader first, since only a writer that closes last removes
        the log files. May be called again."""
        if self._closing is None:
            self._closing = asyncio.create_task(self._close())
        # Whoever is cancelled while he waits must not stop it half way.
        await asyncio.shield(self._closing)

    # Tasks.

    async def submit(self, new: NewTask, queue_max: int) -> None:
        """Keep a new task."""
        await self._write(tasks.submit, new, queue_max)

    async def apply(self, change: Change) -> None:
        """Make one step."""
        await self._write(tasks.apply, change)

    async def purge(self, task_id: int) -> None:
        """Remove a finished task."""
        await self._writer.write(partial(tasks.purge, task_id=task_id), purges=True)

    async def task(self, ident: str) -> TaskRecord | None:
        """The task of that name."""
        return self._read(tasks.by_ident, ident)

    async def ended(self, ident: str) -> bool:
        """Whether no event can come any more."""
        return self._read(tasks.ended, ident)

    async def unfinished(self, after_id: int, limit: int) -> Sequence[TaskRecord]:
        """Tasks in no terminal state."""
        return self._read(tasks.unfinished, after_id, limit)

    async def next_runnable(self, boot: str, live: Collection[int], models: Collection[str]) -> TaskRecord | None:
        """What a free slot should take."""
        return self._read(tasks.next_runnable, boot, live, models)

    async def queue_position(self, task_id: int) -> int | None:
        """How many queued tasks come first."""
        return self._read(tasks.queue_position, task_id)

    async def tasks(
        self, client_id: int, *, status: Status | None, limit: int, after: str | None, ascending: bool
    ) -> Sequence[TaskRecord]:
        """A page of a client's own tasks."""
        return self._read(lists.page, client_id, status, limit, after, ascending)

    async def purgeable(self, now: int, limit: int) -> Sequence[TaskRecord]:
        """Finished tasks whose time has come."""
        return self._read(lists.purgeable, now, limit)

    async def next_purge_at(self) -> int | None:
        """When the next one's time comes."""
        return self._read(lists.next_purge_at)

    async def attempts(self, task_id: int) -> Sequence[Attempt]:
        """The history of a task."""
        return self._read(tasks.attempts, task_id)

    # What hangs on a task.

    async def events(self, task_id: int, after: int, limit: int) -> Sequence[Event]:
        """Events with numbers above `after`."""
        return self._read(events.page, task_id, after, limit)

    async def snapshot(self, task_id: int) -> bytes | None:
        """The response object of the last lifecycle event."""
        return self._read(events.snapshot, task_id)

    async def prompt(self, task_id: int) -> tuple[int, ...]:
        """The token ids to read."""
        return self._read(tasks.prompt, task_id)

    # Clients, models, the service itself.

    async def add_client(
        self, name: str, token_hash: bytes, token_prefix: str, scopes: frozenset[Scope], at: int
    ) -> int:
        """Keep a client."""
        return await self._write(service.keep_client, name, token_hash, token_prefix, scopes, at)

    async def principal(self, token_hash: bytes, now: int) -> Principal | None:
        """The client of a token that works."""
        return self._read(service.principal, token_hash, now)

    async def keep_model(self, card: ModelCard, path: str) -> None:
        """Keep what is known of a model."""
        await self._write(service.keep_model, card, path)

    async def boot(self, boot_id: str, at: int) -> str:
        """Note who serves now."""
        return await self._write(service.boot, boot_id, at)

    # How.

    async def _write(
        self, operation: Callable[Concatenate[apsw.Connection, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        return await self._writer.write(lambda connection: operation(connection, *args, **kwargs))

    def _read(self, question: Callable[Concatenate[apsw.Connection, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        if self._closing is not None:
            raise Unavailable("The store is closed.")
        try:
            return question(self._reader, *args, **kwargs)
        except apsw.Error as error:
            raise translated(error, self._reader) from error

    async def _close(self) -> None:
        self._reader.close()
        await self._writer.close()


def _prepare(path: Path, vfs: str | None, migrations: Sequence[Migration]) -> apsw.Connection:
    """The writer's connection to a database whose schema is this program's."""
    refuse_unfit(path, migrations, vfs)
    connection = open_writer(path, vfs)
    try:
        migrate(connection, migrations)
        enforce_references(connection)
    except BaseException:
        connection.close()
        raise
    return connection
