"""A disk whose cache is lost with its process, for SQLite: to kill the process is to pull the plug.

`VolatileDisk` is a VFS, SQLite's door to the operating system. It answers reads from memory and keeps every write,
truncation and removal there until the file is synced. A disk with a cache promises no order, so chance lets some of
them through early, whole or up to some sector. The files in the folder are therefore, at every moment, what a power
cut would leave. Production code does not know: the disk is made SQLite's default, or chosen by name.

A removed name is really gone once its folder is synced: with the first sync of a file made after it, or by
`sync_names`. The name of a new file is there at once, and locks and the wal-index (`-shm`) pass by.
"""

import mmap
import os
import random
import signal
import struct
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import apsw

from perdure.testing.faulty_vfs import Kind, LockedFile, Operation, overwrite, remains

EARLY_CUTS = 0.5
"""How many truncations and removals reach the disk by themselves."""


class Tally:
    """Counters in a file, which outlive the process that counts.

    `operations` were begun, `held` of them have not reached the disk, `syncs` were completed.
    """

    _FORM = struct.Struct("<3Q")

    def __init__(self, path: Path) -> None:
        path.write_bytes(bytes(self._FORM.size))
        self.operations = self.held = self.syncs = 0
        with path.open("r+b") as file:
            self._kept = mmap.mmap(file.fileno(), self._FORM.size)

    def keep(self) -> None:
        """Make the counters of now those that are found later."""
        self._FORM.pack_into(self._kept, 0, self.operations, self.held, self.syncs)

    @classmethod
    def read(cls, path: Path) -> tuple[int, int, int]:
        """The counters as a process that is gone has left them."""
        operations, held, syncs = cls._FORM.unpack(path.read_bytes())
        return operations, held, syncs


@dataclass
class _Cached:
    """A file as its process sees it, and what its disk lacks of that."""

    name: str
    content: bytearray
    held: list[Operation] = field(default_factory=list[Operation])
    there: bool = True
    fresh: bool = False


class VolatileDisk(apsw.VFS):
    """See the module. `sync_seconds` is what a sync takes, `cut_at` the operation at which the power goes."""

    def __init__(
        self, name: str, chance: random.Random, tally: Tally, *, sync_seconds: float = 0, cut_at: int | None = None
    ) -> None:
        self.lock = threading.RLock()
        self.chance = chance
        self.sync_seconds = sync_seconds
        self._tally = tally
        self._cut_at = cut_at
        self._files: dict[str, _Cached] = {}
        self.base = apsw.vfs_names()[0]  # by its name: this disk may become the default itself
        super().__init__(name, self.base)

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> apsw.VFSFile:  # noqa: N802 -- SQLite's name
        """Open a file behind the cache. Temporary files have no name and outlive nothing."""
        if name is None:
            return super().xOpen(name, flags)
        return _VolatileFile(self, name.filename() if isinstance(name, apsw.URIFilename) else name, name, flags)

    def xDelete(self, filename: str, syncdir: bool) -> None:  # noqa: N802 -- SQLite's name
        """Remove a file, for the time being perhaps only for those who ask here."""
        with self.lock:
            self.begin()
            cached = self._files.get(filename)
            if cached is None or syncdir or self.chance.random() < EARLY_CUTS:
                super().xDelete(filename, syncdir)
                self._files.pop(filename, None)
            else:
                cached.content.clear()
                cached.there = False
                self.hold(cached, Operation(filename, Kind.TRUNCATE))
            self._count()
        if syncdir:
            self.sync_names()

    def xAccess(self, pathname: str, flags: int) -> bool:  # noqa: N802 -- SQLite's name
        """Whether there is such a file for this process."""
        cached = self._files.get(pathname)
        return super().xAccess(pathname, flags) if cached is None else cached.there

    def sync_names(self) -> None:
        """The folder was synced: what was removed stays so."""
        with self.lock:
            for name in [name for name, cached in self._files.items() if not cached.there]:
                super().xDelete(name, False)
                del self._files[name]
            self._count()

    def cached(self, name: str, stored: Callable[[], bytes]) -> _Cached:
        """The file of that name; `stored` reads what the disk has of it."""
        with self.lock:
            if name not in self._files:
                content = stored()
                self._files[name] = _Cached(name, bytearray(content), fresh=not content)
            found = self._files[name]
            found.there = True
            return found

    def begin(self) -> None:
        """One more operation, or part of a sync, is about to be made."""
        self._tally.operations += 1
        if self._tally.operations == self._cut_at:
            self._tally.keep()
            os.kill(os.getpid(), signal.SIGKILL)

    def hold(self, cached: _Cached, operation: Operation) -> None:
        """Keep an operation until the next sync."""
        cached.held.append(operation)
        self._count()

    def synced(self, cached: _Cached) -> None:
        """All of a file is on the disk, and where the file was new, its folder too."""
        self._tally.syncs += 1
        cached.held.clear()
        if cached.fresh:
            cached.fresh = False
            self.sync_names()
        self._count()

    def _count(self) -> None:
        self._tally.held = sum(len(cached.held) for cached in self._files.values())
        self._tally.keep()


class _VolatileFile(LockedFile):
    def __init__(self, disk: VolatileDisk, path: str, name: str | apsw.URIFilename, flags: list[int]) -> None:
        super().__init__(disk.base, name, flags)
        self._disk = disk
        self._path = path
        self._cached = disk.cached(path, self._stored)

    def _stored(self) -> bytes:
        return super().xRead(super().xFileSize(), 0)

    def xRead(self, amount: int, offset: int) -> bytes:  # noqa: N802 -- SQLite's name
        with self._disk.lock:
            return bytes(self._cached.content[offset : offset + amount])

    def xFileSize(self) -> int:  # noqa: N802 -- SQLite's name
        return len(self._cached.content)

    def xWrite(self, data: bytes, offset: int) -> None:  # noqa: N802 -- SQLite's name
        with self._disk.lock:
            self._disk.begin()
            written = bytes(data)
            overwrite(self._cached.content, offset, written)
            if early := remains(written, self._disk.chance):
                super().xWrite(early, offset)
            self._disk.hold(self._cached, Operation(self._path, Kind.WRITE, offset, written))

    def xTruncate(self, newsize: int) -> None:  # noqa: N802 -- SQLite's name
        with self._disk.lock:
            self._disk.begin()
            del self._cached.content[newsize:]
            if self._disk.chance.random() < EARLY_CUTS:
                super().xTruncate(newsize)
            self._disk.hold(self._cached, Operation(self._path, Kind.TRUNCATE, newsize))

    def xSync(self, flags: int) -> None:  # noqa: N802, ARG002 -- SQLite's name and its arguments
        time.sleep(self._disk.sync_seconds)
        with self._disk.lock:
            for operation in self._cached.held:
                self._disk.begin()
                if operation.kind is Kind.WRITE:
                    super().xWrite(operation.data, operation.at)
                else:
                    super().xTruncate(operation.at)
            self._disk.synced(self._cached)
