"""Disks that fail, for SQLite.

A VFS is SQLite's door to the operating system. The two here stand before the real one and are chosen by name, so that
a whole store, or a whole server, runs on them unchanged:

* `FaultyDisk` refuses writes and syncs when it is told to: the n-th only, or from the n-th on until it is mended.
* `RecordingDisk` notes every write, cut, sync and removal. `image_after_cut` then says what a power cut at a given
  moment could have left of each file: everything that was synced, and of the rest what chance decides.

The wal-index (`-shm`) is shared memory and passes by both: it does not outlive its process anyway.
"""

import errno
import random
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

import apsw

SECTOR_BYTES = 512
"""What a disk writes whole or not at all."""


class Fault(Enum):
    """How a refused operation fails."""

    FULL = errno.ENOSPC
    IO = errno.EIO


class LockedFile(apsw.VFSFile):
    """A file of a disk that stands before the real one."""

    def xLock(self, level: int) -> None:  # noqa: N802 -- SQLite's name
        """Lock it, as far as it can be."""
        try:
            super().xLock(level)
        except apsw.IOError as error:
            # A file that is open for reading only cannot be locked for writing. SQLite tries when it closes, and does
            # not mind, but an exception other than this one would be raised to whoever closes.
            raise apsw.BusyError("this file is open for reading only") from error


class FaultyDisk(apsw.VFS):
    """A disk that can be told to refuse.

    `operations` counts the writes, syncs and truncations that were asked for; `refused` those that were refused.
    """

    def __init__(self, name: str) -> None:
        self.operations = 0
        self.refused = 0
        self._fault: Fault | None = None
        self._first = self._last = 0
        super().__init__(name, "")

    def fail_once(self, fault: Fault, nth: int) -> None:
        """Refuse the `nth` operation from now (1 is the next)."""
        self._plan(fault, nth, nth)

    def fail_from(self, fault: Fault, nth: int) -> None:
        """Refuse the `nth` operation from now and all that follow, until `mend`."""
        self._plan(fault, nth, None)

    def mend(self) -> None:
        """Work again."""
        self._fault = None

    def attempt(self, io_error: int) -> None:
        """Count an operation, and raise if it is to be refused; `io_error` is SQLite's code for its kind."""
        self.operations += 1
        if self._fault is None or self.operations < self._first or self.operations > self._last:
            return
        self.refused += 1
        if self._fault is Fault.FULL:
            raise apsw.FullError("no space left on the faulty disk")
        error = apsw.IOError("the faulty disk does not work")
        error.extendedresult = io_error  # pyright: ignore[reportAttributeAccessIssue] -- apsw hands it to SQLite
        raise error

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> apsw.VFSFile:  # noqa: N802 -- SQLite's name
        """Open a file behind the gate."""
        return _FaultyFile(self, name, flags)

    def excepthook(self, *_: object, **__: object) -> bool:
        """Refusals that SQLite does not pass on are meant, and no news."""
        return True

    def _plan(self, fault: Fault, first: int, last: int | None) -> None:
        self._fault = fault
        self._first = self.operations + first
        self._last = 2**63 if last is None else self.operations + last


class _FaultyFile(LockedFile):
    def __init__(self, disk: FaultyDisk, name: str | apsw.URIFilename | None, flags: list[int]) -> None:
        self._disk = disk
        self._is_log = str(name.filename() if isinstance(name, apsw.URIFilename) else name).endswith("-wal")
        super().__init__("", name, flags)

    def xWrite(self, data: bytes, offset: int) -> None:  # noqa: N802 -- SQLite's name
        self._disk.attempt(apsw.SQLITE_IOERR_WRITE)
        super().xWrite(data, offset)

    def xSync(self, flags: int) -> None:  # noqa: N802 -- SQLite's name
        self._disk.attempt(apsw.SQLITE_IOERR_FSYNC)
        super().xSync(flags)

    def xTruncate(self, newsize: int) -> None:  # noqa: N802 -- SQLite's name
        try:
            self._disk.attempt(apsw.SQLITE_IOERR_TRUNCATE)
        except apsw.Error:
            # SQLite does not mind a log that stays long, but apsw would raise what it was told after all.
            if self._is_log:
                return
            raise
        super().xTruncate(newsize)

    def excepthook(self, *_: object, **__: object) -> bool:
        return True


class Kind(Enum):
    """What was done to a file."""

    WRITE = "write"
    TRUNCATE = "truncate"
    SYNC = "sync"
    REMOVE = "remove"


@dataclass(frozen=True)
class Operation:
    """One thing done to one file. `at` is the offset of a write, or the size after a truncation."""

    file: str
    kind: Kind
    at: int = 0
    data: bytes = b""


class RecordingDisk(apsw.VFS):
    """A disk that notes what is done to it, in order."""

    def __init__(self, name: str) -> None:
        self.log: list[Operation] = []
        super().__init__(name, "")

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> apsw.VFSFile:  # noqa: N802 -- SQLite's name
        """Open a file and watch it."""
        return _RecordedFile(self, name, flags)

    def xDelete(self, filename: str, syncdir: bool) -> None:  # noqa: N802 -- SQLite's name
        """Remove a file."""
        super().xDelete(filename, syncdir)
        self.log.append(Operation(Path(filename).name, Kind.REMOVE))


class _RecordedFile(LockedFile):
    def __init__(self, disk: RecordingDisk, name: str | apsw.URIFilename | None, flags: list[int]) -> None:
        self._log = disk.log
        path = name.filename() if isinstance(name, apsw.URIFilename) else name
        self._name = Path(path or "temporary").name
        super().__init__("", name, flags)

    def xWrite(self, data: bytes, offset: int) -> None:  # noqa: N802 -- SQLite's name
        # Noted before it is made: a cut may fall in the middle of it.
        self._log.append(Operation(self._name, Kind.WRITE, offset, bytes(data)))
        super().xWrite(data, offset)

    def xTruncate(self, newsize: int) -> None:  # noqa: N802 -- SQLite's name
        self._log.append(Operation(self._name, Kind.TRUNCATE, newsize))
        super().xTruncate(newsize)

    def xSync(self, flags: int) -> None:  # noqa: N802 -- SQLite's name
        # Noted after it is made: before that it promises nothing.
        super().xSync(flags)
        self._log.append(Operation(self._name, Kind.SYNC))


def image_after_cut(log: Sequence[Operation], cut: int, chance: random.Random) -> dict[str, bytes]:
    """The files as they could stand after the power went when `cut` operations had been made.

    What a sync has covered is there. Of each later write, chance decides whether it is there, missing, or there up to
    some sector: a disk with a cache promises no order.
    """
    found: dict[str, bytes] = {}
    for name in sorted({operation.file for operation in log[:cut]}):
        operations = [operation for operation in log[:cut] if operation.file == name]
        if operations[-1].kind is not Kind.REMOVE:
            found[name] = _content(operations, chance)
    return found


def _content(operations: Sequence[Operation], chance: random.Random) -> bytes:
    synced = max((index for index, operation in enumerate(operations) if operation.kind is Kind.SYNC), default=-1)
    content = bytearray()
    for index, operation in enumerate(operations):
        if operation.kind is Kind.REMOVE:
            content.clear()
        elif operation.kind is Kind.TRUNCATE:
            if index < synced or chance.random() < 0.5:
                del content[operation.at :]
        elif operation.kind is Kind.WRITE:
            overwrite(content, operation.at, operation.data if index < synced else remains(operation.data, chance))
    return bytes(content)


def remains(data: bytes, chance: random.Random) -> bytes:
    """What may be on the disk of a write that was not synced: all, nothing, or all up to some sector."""
    fate = chance.random()
    if fate < 0.4:
        return b""
    if fate < 0.55 and len(data) > SECTOR_BYTES:
        return data[: chance.randrange(SECTOR_BYTES, len(data), SECTOR_BYTES)]
    return data


def overwrite(content: bytearray, at: int, data: bytes) -> None:
    """Write into a file that is kept in memory."""
    if data and len(content) < at:
        content.extend(bytes(at - len(content)))
    content[at : at + len(data)] = data


@contextmanager
def registered(disk: apsw.VFS) -> Generator[None]:
    """Take a disk out of SQLite's list when it is no longer used."""
    try:
        yield
    finally:
        disk.unregister()
