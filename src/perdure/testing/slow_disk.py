"""A disk that can be told to take its time, for SQLite: what is written waits until the test lets it go on."""

import threading
from collections import Counter
from pathlib import Path

import apsw

WAIT_MAX_SECONDS = 30.0
"""A test that fails before it lets go comes to its end all the same."""


class SlowDisk(apsw.VFS):
    """A VFS, SQLite's door to the operating system. `writes` counts what was written, by the ending of the file's
    name (`.db`, `.db-wal`). `reached` is set while something waits."""

    def __init__(self, name: str) -> None:
        self.writes: Counter[str] = Counter()
        self.reached = threading.Event()
        self._ending: str | None = None
        self._go = threading.Event()
        self.base = apsw.vfs_names()[0]  # by its name: this disk may become the default itself
        super().__init__(name, self.base)

    def hold(self, ending: str) -> None:
        """Have the next write to a file that ends so wait, and all after it."""
        self.reached.clear()
        self._go.clear()
        self._ending = ending

    def let_go(self) -> None:
        """Nothing waits any more."""
        self._ending = None
        self._go.set()

    def write(self, ending: str) -> None:
        """Count a write, and wait if it has to."""
        if self._ending == ending:
            self.reached.set()
            if not self._go.wait(WAIT_MAX_SECONDS):
                self.let_go()
        self.writes[ending] += 1

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> apsw.VFSFile:  # noqa: N802 -- SQLite's name
        """Open a file behind the gate."""
        return _SlowFile(self, name, flags)


class _SlowFile(apsw.VFSFile):
    def __init__(self, disk: SlowDisk, name: str | apsw.URIFilename | None, flags: list[int]) -> None:
        self._disk = disk
        path = name.filename() if isinstance(name, apsw.URIFilename) else name
        self._ending = Path(path or "").suffix
        super().__init__(disk.base, name, flags)

    def xWrite(self, data: bytes, offset: int) -> None:  # noqa: N802 -- SQLite's name
        self._disk.write(self._ending)
        super().xWrite(data, offset)
