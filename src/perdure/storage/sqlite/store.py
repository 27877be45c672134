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

from perdure.domain.errors import StorageFailed, StorageFull, Unavailable
from perdure.domain.lifecycle import Status
from perdure.domain.model import ModelCard
from perdure.domain.principal import Principal, Scope
from perdure.engine.wakeups import wait_for
from perdure.ports.ambient import Clock
from perdure.ports.storage import Attempt, Change, Condition, EventsPage, NewTask, TaskRecord
from perdure.storage.sqlite import events, lists, service, tasks
from perdure.storage.sqlite.connection import enforce_references, open_reader, open_writer
from perdure.storage.sqlite.faults import full, is_damage, refusal, unread
from perdure.storage.sqlite.migrate import Migration, migrate, refuse_unfit, shipped
from perdure.storage.sqlite.outside import refuse_from_outside
from perdure.storage.sqlite.place import watch
from perdure.storage.sqlite.probe import Probe, open_probe
from perdure.storage.sqlite.room import AT_THE_BOUND, Room
from perdure.storage.sqlite.upkeep import Pause, Upkeep
from perdure.storage.sqlite.version import refuse_faulty
from perdure.storage.sqlite.whole import require_quick_check
from perdure.storage.sqlite.writer import Writer, close

T = TypeVar("T")
P = ParamSpec("P")


class SqliteStore:
    """Everything that is kept, in one file. The contract of each method stands at `Store`."""

    def __init__(self, writer: Writer, reader: apsw.Connection, probe: Probe, upkeep: Upkeep, room: Room) -> None:
        self._writer = writer
        self._reader = reader
        self._probe = probe
        self._upkeep = upkeep
        self._room = room
        self._closing: asyncio.Task[None] | None = None

    @classmethod
    async def open(
        cls,
        path: Path,
        *,
        vfs: str | None = None,
        migrations: Sequence[Migration] | None = None,
        clock: Clock | None = None,
        pause: Pause = wait_for,
        bytes_max: int | None = None,
    ) -> "SqliteStore":
        """Open or make the database, bring its schema up to date, and begin its upkeep.

        Raises `RefusedToStart` where that cannot be done, `StorageDamaged` for a file that is not whole; one that is
        not fit is left as it is. From `bytes_max` on no new task is accepted. `vfs` names one of SQLite's doors to
        the operating system, for tests that make the disk fail; `clock` and `pause` are the upkeep's. One process at
        a time: the caller holds the lock of the data folder.
        """
        refuse_faulty()
        writer = Writer()
        upkeep = Upkeep(writer, clock, pause)
        try:
            schema = shipped() if migrations is None else migrations
            await writer.start(partial(_prepare, path, vfs, schema))
            await upkeep.start(path, vfs)
            reader, probe = _readers(path, vfs)
            return cls(writer, reader, probe, upkeep, Room(reader, bytes_max))
        except BaseException as error:
            await upkeep.close()
            await writer.close()
            if isinstance(error, apsw.Error):
                raise refusal(error, path) from error
            raise

    async def close(self) -> None:
        """Finish what was handed over, then close: the probe and the reader first, then the upkeep, since only a
        writer that closes last removes the log files. May be called again."""
        if self._closing is None:
            self._closing = asyncio.create_task(self._close())
        # Whoever is cancelled while he waits must not stop it half way.
        await asyncio.shield(self._closing)

    # Tasks.

    async def submit(self, new: NewTask, queue_max: int) -> None:
        """Keep a new task."""
        self._room.require()
        await self._write(tasks.submit, new, queue_max)

    async def apply(self, change: Change) -> None:
        """Make one step."""
        await self._write(tasks.apply, change)

    async def purge(self, task_ids: Sequence[int], remembered_until: int | None = None) -> None:
        """Remove finished tasks."""
        await self._writer.write(lambda connection: tasks.purge(connection, task_ids, remembered_until), purges=True)

    async def expired(self, ident: str) -> int | None:
        """The client of a task that its age has removed."""
        return self._read(tasks.expired, ident)

    async def forget(self, now: int, limit: int) -> int:
        """Remove names whose time is over."""
        return await self._write(tasks.forget, now, limit)

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

    async def responses(
        self, client_id: int, *, limit: int, after: str | None, ascending: bool
    ) -> Sequence[TaskRecord]:
        """A page of a client's own stored responses."""
        return self._read(lists.stored, client_id, limit, after, ascending)

    async def purgeable(self, now: int, limit: int) -> Sequence[TaskRecord]:
        """Finished tasks whose time has come."""
        return self._read(lists.purgeable, now, limit)

    async def outlived(self, finished_before: int, limit: int) -> Sequence[TaskRecord]:
        """Finished tasks that only their age removes."""
        return self._read(lists.outlived, finished_before, limit)

    async def next_purge_at(self) -> int | None:
        """When the next one's time comes."""
        return self._read(lists.next_purge_at)

    async def attempts(self, task_id: int) -> Sequence[Attempt]:
        """The history of a task."""
        return self._read(tasks.attempts, task_id)

    # What hangs on a task.

    async def events(self, task_id: int, after: int, limit: int) -> EventsPage:
        """Events with numbers above `after`."""
        return self._read(events.page, task_id, after, limit)

    async def snapshot(self, task_id: int) -> bytes | None:
        """The response object of the last lifecycle event."""
        return self._read(events.snapshot, task_id)

    async def received(self, task_id: int) -> bytes:
        """The items that the response answers."""
        return self._read(tasks.received, task_id)

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

    async def queued(self) -> int:
        """How many tasks wait for a slot."""
        return self._read(service.queued)

    async def version(self) -> str:
        """A mark of everything that is kept."""
        return self._probe.version()

    def condition(self) -> Condition:
        """How the store stands."""
        writer = self._writer
        trouble, reason = writer.trouble.code, writer.trouble.reason
        if trouble is None and self._room.is_full:
            trouble, reason = StorageFull.code, AT_THE_BOUND
        return Condition(
            engine=f"SQLite {apsw.sqlite_lib_version()}",
            trouble=trouble,
            reason=reason,
            commits=writer.commits,
            writes=writer.tally.writes,
            writes_refused=writer.tally.refused,
            write_waits=writer.tally.waits,
            write_wait_seconds_sum=writer.tally.waited_seconds,
            wal=self._upkeep.condition(),
        )

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
            failure = unread(error, self._reader)
            if isinstance(failure, StorageFailed):
                self._writer.trouble.unread(failure)
            raise failure from error

    async def _close(self) -> None:
        self._probe.close()
        self._reader.close()
        await self._upkeep.close()
        await self._writer.close()


def _readers(path: Path, vfs: str | None) -> tuple[apsw.Connection, Probe]:
    """The connections that cannot write: the one that reads, and the one that tells the version."""
    reader = open_reader(path, vfs)
    try:
        return reader, open_probe(path, vfs)
    except BaseException:
        reader.close()
        raise


def _prepare(path: Path, vfs: str | None, migrations: Sequence[Migration]) -> apsw.Connection:
    """The writer's connection to a database whose schema is this program's."""
    refuse_from_outside(path)
    refuse_unfit(path, migrations, vfs)
    connection = open_writer(path, vfs)
    try:
        require_quick_check(connection)
        migrate(connection, migrations)
        enforce_references(connection)
        watch(connection)
    except BaseException as error:
        no_room = full(error, connection)
        close(connection, as_it_is=is_damage(error))
        if no_room:
            raise apsw.FullError(str(error)) from error
        raise
    return connection
