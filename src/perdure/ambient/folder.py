"""The data folder: made, checked and held by one process at a time."""

import contextlib
import fcntl
import logging
import os
import stat
from pathlib import Path
from types import TracebackType
from typing import Self

from perdure.domain.errors import RefusedToStart

LOCK_NAME = "perdure.lock"
OPEN_TO_OTHERS = 0o077
_PRIVATE = 0o700
_log = logging.getLogger(__name__)


def warn_of_others(path: Path) -> None:
    """A line in the log for a folder that others than its owner may look into or change."""
    if (mode := stat.S_IMODE(path.stat().st_mode)) & OPEN_TO_OTHERS:
        _log.warning("the data folder %s is open to other users (mode %04o): chmod 700 %s", path, mode, path)


class DataFolder:
    """A folder held for as long as this object is open.

    The lock is on a file of its own: closing any descriptor of the database would drop SQLite's locks in the whole
    process. The system frees it when the process ends, however it ends.
    """

    def __init__(self, path: Path, in_use: str = "Stop that one, or choose another folder with --data.") -> None:
        """Make the folder and take it. Raises `RefusedToStart` when it cannot be used or is in use; `in_use` is what
        helps then."""
        self.path = path
        self._in_use = in_use
        try:
            path.mkdir(mode=_PRIVATE, parents=True, exist_ok=True)
            # A link that somebody has put there must not have another file emptied. Not every system can refuse one.
            flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | getattr(os, "O_NOFOLLOW", 0)
            self._lock = os.open(path / LOCK_NAME, flags, 0o600)
        except FileExistsError:
            raise RefusedToStart(f"{path} is not a folder; choose another with --data.") from None
        except OSError as error:
            why = f"{LOCK_NAME} in it is a link" if (path / LOCK_NAME).is_symlink() else error.strerror
            raise RefusedToStart(
                f"The data folder {path} cannot be used: {why}. Choose another with --data."
            ) from None
        self._take()

    def close(self) -> None:
        """Let the folder go."""
        os.close(self._lock)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _take(self) -> None:
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(self._lock, 32, 0).decode("ascii", "replace").strip() or "unknown"
            os.close(self._lock)
            raise RefusedToStart(
                f"The data folder {self.path} is in use by another Perdure (process {holder}). {self._in_use}"
            ) from None
        except OSError as error:
            os.close(self._lock)
            raise RefusedToStart(
                f"The data folder {self.path} is on a file system without locks ({error.strerror}). "
                "Choose a local folder with --data."
            ) from None
        with contextlib.suppress(OSError):  # only there to tell the next one who holds it; a full disk may refuse
            os.ftruncate(self._lock, 0)
            os.pwrite(self._lock, f"{os.getpid()}\n".encode(), 0)


def write_private(path: Path, text: str) -> None:
    """Put `text` into a file that only its owner can read, whole or not at all, durable on return."""
    fresh = path.with_name(path.name + ".new")
    fresh.unlink(missing_ok=True)  # of a kill, or put there by somebody
    # O_EXCL: a new file, never through a link.
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(text)
        file.flush()
        os.fsync(descriptor)
    fresh.replace(path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
