"""What can be said of a data folder and its files from outside: by names, modes and sizes alone."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

from perdure.ambient import file_system
from perdure.ambient.folder import LOCK_NAME
from perdure.domain.finding import Finding, note, ok, problem

FREE_MIN_BYTES = 256 * 1024 * 1024
OPEN_TO_OTHERS = 0o077
PARTS = (".part", ".restoring", ".new")
"""What the names of files end with that are being written."""


def examine(folder: Path, database: str) -> list[Finding]:
    """The folder, its file system, its room, its files."""
    try:
        status = folder.stat()
    except OSError as error:
        return [problem("folder", f"{folder} cannot be used: {error.strerror}", "Name the data folder with --data.")]
    if not stat.S_ISDIR(status.st_mode):
        return [problem("folder", f"{folder} is not a folder", "Name the data folder with --data.")]
    return [
        _private_folder(folder, status),
        _files(folder, database),
        *_left_over(folder),
        _kind(folder),
        _room(folder),
    ]


def holder(folder: Path) -> int | None:
    """The process that wrote itself into the lock file last; whether it lives is another question."""
    try:
        return int((folder / LOCK_NAME).read_text("ascii")[:32])
    except (OSError, ValueError):
        return None


def _private_folder(folder: Path, status: os.stat_result) -> Finding:
    mode = stat.S_IMODE(status.st_mode)
    if status.st_uid != os.geteuid():
        return problem(
            "folder", f"{folder} belongs to another user ({status.st_uid})", "Run the command as that user."
        )
    if mode & OPEN_TO_OTHERS:
        return problem("folder", f"{folder} is open to other users (mode {mode:04o})", f"chmod 700 {folder}")
    return ok("folder", f"{folder} is its owner's alone")


def _files(folder: Path, database: str) -> Finding:
    open_ones: list[str] = []
    for name in (database, f"{database}-wal", f"{database}-shm", LOCK_NAME, "owner.token", "server.json"):
        try:
            status = (folder / name).lstat()
        except OSError:
            continue
        if stat.S_IMODE(status.st_mode) & OPEN_TO_OTHERS or status.st_uid != os.geteuid():
            open_ones.append(f"{name} (mode {stat.S_IMODE(status.st_mode):04o}, user {status.st_uid})")
    if not open_ones:
        return ok("files", "the files are their owner's alone")
    return problem(
        "files",
        f"other users may read or own {', '.join(open_ones)}",
        f"chmod 600 {' '.join(str(folder / each.split(' ')[0]) for each in open_ones)}",
    )


def _left_over(folder: Path) -> Iterator[Finding]:
    if parts := sorted(each.name for each in folder.iterdir() if each.name.endswith(PARTS)):
        yield note(
            "left over",
            f"unfinished files: {', '.join(parts)}",
            "If no backup or restore runs that writes them, delete them.",
        )


def _kind(folder: Path) -> Finding:
    found = file_system.kind(folder)
    if doubt := file_system.doubts(found):
        return problem("file system", f"the folder is on {doubt}", "Move the whole folder to a local disk.")
    return ok("file system", found or "not known on this system")


def _room(folder: Path) -> Finding:
    there = os.statvfs(folder)
    free = there.f_bavail * there.f_frsize
    if free < FREE_MIN_BYTES:
        return note("room", f"{free:,} bytes are free on its disk", "Free some: writes are refused when it is full.")
    return ok("room", f"{free:,} bytes are free on its disk")
