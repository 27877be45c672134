"""Copies of a database as files: private from the first byte, forced to the disk, never in the place of another file.

None of these may be used on a database that a connection of this process has open: closing any descriptor of it drops
SQLite's locks. So they stand around a connection's life, not within it.
"""

import ctypes
import errno
import fcntl
import hashlib
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from perdure.storage.sqlite.connection import sync_folder

Progress = Callable[[int, int], None]
"""How many bytes of how many are done."""

PIECE_BYTES = 4 * 1024 * 1024

_HERE = -100  # AT_FDCWD: the paths are looked up as any other call looks them up
_NO_REPLACE_LINUX = 1
_NO_REPLACE_MACOS = 4
_NOT_KNOWN = frozenset({errno.EINVAL, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP})
_NOT_ALLOWED = _NOT_KNOWN | {errno.EACCES, errno.EPERM}


def make_private(path: Path) -> None:
    """Make an empty file that only its owner can read. Raises `FileExistsError`."""
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))


def force(path: Path) -> None:
    """Have the whole file on the disk."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
        if (whole := getattr(fcntl, "F_FULLFSYNC", None)) is not None:  # macOS: past the cache of the drive
            fcntl.fcntl(descriptor, whole)
    finally:
        os.close(descriptor)


def names_forced(folder: Path) -> bool:
    """Have the names in a folder on the disk; False where the folder or its file system does not allow that."""
    try:
        sync_folder(folder)
    except OSError as error:
        if error.errno not in _NOT_ALLOWED:
            raise
        return False
    return True


def publish(part: Path, target: Path) -> bool:
    """Give a finished file its name, unless the name is taken. Raises `FileExistsError`, `OSError`; then it has not
    got it. Returns whether the name is known to be on the disk.

    Whoever ends half way leaves no file of that name or a whole one, also where there are no hard links, as on FAT.
    """
    if not renamed(part, target):
        linked(part, target)
    with suppress(OSError):  # the file is there, whatever comes now
        return names_forced(target.parent)
    return False


def renamed(part: Path, target: Path) -> bool:
    """Rename unless the new name is taken; False where the system or the file system cannot."""
    system = ctypes.CDLL(None, use_errno=True)
    old, new = os.fsencode(part), os.fsencode(target)
    if hasattr(system, "renameat2"):
        failed = system.renameat2(_HERE, old, _HERE, new, _NO_REPLACE_LINUX)
    elif hasattr(system, "renamex_np"):
        failed = system.renamex_np(old, new, _NO_REPLACE_MACOS)
    else:
        return False
    if not failed:
        return True
    if (code := ctypes.get_errno()) in _NOT_KNOWN:
        return False
    raise OSError(code, os.strerror(code), str(target))


def linked(part: Path, target: Path) -> None:
    """The same by way of a second name."""
    target.hardlink_to(part)
    part.unlink()


def digest(path: Path) -> str:
    """SHA-256 of a file, in hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def copy(source: Path, part: Path, told: Progress) -> None:
    """Copy a file into one that `make_private` has made."""
    size = source.stat().st_size
    with source.open("rb") as old, part.open("r+b") as new:
        while piece := old.read(PIECE_BYTES):
            new.write(piece)
            told(new.tell(), size)


def room(folder: Path) -> int:
    """How many bytes one may still write there."""
    there = os.statvfs(folder)
    return there.f_bavail * there.f_frsize
