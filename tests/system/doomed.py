"""A service that meets its fate at a named point: `doomed.py FATE TOKENS perdure serve ...`, with one thing changed.

A fate strikes only work whose `max_output_tokens` is TOKENS; all else is served as ever.
"""

import os
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

import apsw

from perdure import bootstrap
from perdure.ambient import log
from perdure.cli.main import main
from perdure.engine import record, recover
from perdure.engine.recover import Recover
from perdure.ports.runtime import Generation, Job, Piece
from perdure.ports.storage import Change
from perdure.runtime.llamacpp.supervisor import LlamaRuntime
from perdure.storage.sqlite import connection, store
from perdure.storage.sqlite.store import SqliteStore
from perdure.testing.faulty_vfs import Fault, FaultyDisk

SHORT_KEEP_SECONDS = 3
DISK = "doomed"

D = TypeVar("D", bound=FaultyDisk)


def doomed(fate: Callable[[int], None], tokens: int = 0) -> list[str]:
    """What to put before the command of a server that is to meet this fate."""
    return [sys.executable, __file__, fate.__name__, str(tokens)]


def die() -> None:
    """As an accident does it: nothing is closed, nobody is told."""
    os.kill(os.getpid(), signal.SIGKILL)


class LastToken:
    """Implements `Generation`: the last token is given without the end, and there is no next time."""

    def __init__(self, real: Generation) -> None:
        self._real = real
        self._given = False

    async def take(self) -> Sequence[Piece]:
        """What was drawn."""
        if self._given:
            die()
        pieces = await self._real.take()
        if pieces[-1].end is None:
            return pieces
        self._given = True
        return [*pieces[:-1], Piece(pieces[-1].parts, pieces[-1].tokens)]

    async def stop(self) -> None:
        """Stop drawing."""
        await self._real.stop()


class Closing:
    """Implements `Generation`: once the end was taken, the next write to the disk is the last act of the process."""

    def __init__(self, real: Generation, disk: "LastDisk") -> None:
        self._real = real
        self._disk = disk

    async def take(self) -> Sequence[Piece]:
        """What was drawn."""
        pieces = await self._real.take()
        self._disk.armed = pieces[-1].end is not None
        return pieces

    async def stop(self) -> None:
        """Stop drawing."""
        await self._real.stop()


class LastDisk(FaultyDisk):
    """A disk at which the process ends: once it is armed, before the first operation of a kind is made."""

    def __init__(self, kind: int) -> None:
        super().__init__(DISK)
        self.armed = False
        self._kind = kind

    def attempt(self, io_error: int) -> None:
        """Meet the fate, if it is time."""
        if self.armed and io_error == self._kind:
            die()


class SeventhDisk(FaultyDisk):
    """A disk that refuses every seventh sync, for as long as it is armed."""

    def __init__(self) -> None:
        super().__init__(DISK)
        self.armed = False
        self._syncs = 0

    def attempt(self, io_error: int) -> None:
        """Refuse when it is time."""
        if self.armed and io_error == apsw.SQLITE_IOERR_FSYNC:
            self._syncs += 1
            self.fail_from(Fault.IO, 1) if self._syncs % 7 == 0 else self.mend()
            super().attempt(io_error)
            self.mend()


def at_the_claim(tokens: int) -> None:
    """The process is gone as soon as the claim is kept, before the model is asked for anything."""

    class Store(SqliteStore):
        async def apply(self, change: Change) -> None:
            await super().apply(change)
            if change.note == "claimed":
                (task,) = await self.unfinished(change.task_id - 1, 1)
                if task.tokens_max == tokens:
                    die()

    bootstrap.SqliteStore = Store


def at_the_draw(tokens: int) -> None:
    """The process is gone as soon as the model is asked for the text."""

    def wrapped(real: Generation) -> Generation:
        die()
        return real

    _with_generations(tokens, wrapped)


def after_the_last_token(tokens: int) -> None:
    """The last token is kept, and the process is gone before the end is written."""
    _with_generations(tokens, LastToken)


def within_the_closing_commit(tokens: int) -> None:
    """The process is gone when the first page of the end is to be written."""
    disk = _serve_on(LastDisk(apsw.SQLITE_IOERR_WRITE))
    _with_generations(tokens, lambda real: Closing(real, disk))


def after_the_closing_commit(tokens: int) -> None:
    """The end is written, but the process is gone before it is forced to the disk, or anybody is told."""
    disk = _serve_on(LastDisk(apsw.SQLITE_IOERR_FSYNC))
    _with_generations(tokens, lambda real: Closing(real, disk))


def every_seventh_sync(_tokens: int) -> None:
    """While the start settles what was left, the disk refuses again and again."""
    disk, settle = _serve_on(SeventhDisk()), Recover.__call__
    recover.STORAGE_RETRY_SECONDS = 0.05

    async def armed(self: Recover, at: int) -> int:
        disk.armed = True
        try:
            return await settle(self, at)
        finally:
            disk.armed = False
            log.event("settled", refused=disk.refused)

    Recover.__call__ = armed


def short_keep(_tokens: int) -> None:
    """What is not to be stored goes after some seconds instead of a minute."""
    record.EPHEMERAL_KEEP_SECONDS = SHORT_KEEP_SECONDS


FATES: dict[str, Callable[[int], None]] = {
    fate.__name__: fate
    for fate in (
        at_the_claim,
        at_the_draw,
        after_the_last_token,
        within_the_closing_commit,
        after_the_closing_commit,
        every_seventh_sync,
        short_keep,
    )
}


def _with_generations(tokens: int, wrapped: Callable[[Generation], Generation]) -> None:
    generate = LlamaRuntime.generate

    async def doomed_generate(self: LlamaRuntime, job: Job) -> Generation:
        real = await generate(self, job)
        return wrapped(real) if job.tokens_max == tokens else real

    LlamaRuntime.generate = doomed_generate


def _serve_on(disk: D) -> D:
    """Write to this disk; what is only read is read past it."""

    def open_doomed(path: Path, _vfs: str | None = None) -> apsw.Connection:
        return connection.open_writer(path, DISK)

    store.open_writer = open_doomed
    return disk


if __name__ == "__main__":
    FATES[sys.argv[1]](int(sys.argv[2]))
    sys.argv[:] = sys.argv[3:]
    main()
