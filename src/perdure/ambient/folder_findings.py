"""What can be said of a data folder and its files from outside: by names, modes and sizes alone."""

import json
import logging
import os
import shlex
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path

from perdure.ambient import file_system
from perdure.ambient.folder import LOCK_NAME, OPEN_TO_OTHERS
from perdure.domain.finding import Finding, note, ok, problem

FREE_MIN_BYTES = 256 * 1024 * 1024
FULL_BYTES = 1024 * 1024
"""With less the next write, or the one after it, is refused."""
PARTS = (".part", ".restoring", ".new")
"""What the names of files end with that are being written."""
SMALL_BYTES = 4096
"""None of the files that are text is longer."""
OWNERS_FILE = "owner.token"
SERVER_NAME = "server.json"

_RESTORE = "move the data folder away and keep it, then bring a backup back with `perdure restore FILE`"
_LOOKS = 2
_log = logging.getLogger(__name__)


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
        *_files(folder, database, status.st_uid),
        *_left_over(folder),
        _kind(folder),
        _room(folder),
    ]


def holder(folder: Path) -> int | None:
    """The process that wrote itself into the lock file last; whether it lives is another question."""
    try:
        return int(text_of(folder / LOCK_NAME))
    except (OSError, ValueError):
        return None


def named_in(server_file: Path) -> int | None:
    """The process that says it serves; None where none does. Raises `OSError`, `ValueError`."""
    try:
        return int(json.loads(text_of(server_file))["pid"])
    except FileNotFoundError:
        return None
    except (KeyError, TypeError, OverflowError, RecursionError) as error:
        raise ValueError(str(error)) from None


def text_of(path: Path) -> str:
    """What a small file of the data folder says. Raises `OSError`, and `ValueError` for what cannot be one: a pipe
    would keep one waiting, and a file of any size would be read whole."""
    if kind := _other_kind(path.lstat()):
        raise ValueError(f"it is {kind}")
    # What has taken its place since neither leads elsewhere nor keeps one waiting.
    with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NOFOLLOW | os.O_NONBLOCK)) as file:
        said = file.read(SMALL_BYTES + 1)
    if len(said) > SMALL_BYTES:
        raise ValueError(f"it is longer than {SMALL_BYTES:,} bytes")
    return said.decode()


def lost(folder: Path, database: str, *, served: bool = False) -> Finding | None:
    """What was there and is gone, of the database or its log; None where nothing shows that.

    What stands in these files was in the database first, so they are looked for before it.
    """
    signs = [name for name in (OWNERS_FILE, SERVER_NAME, f"{database}-wal") if (folder / name).exists()]
    size = _size(folder / database)
    if size is None and signs:
        what = f"there is no {database}, and {', '.join(signs)} beside it: it was deleted or moved away"
    elif size == 0 and (signs or not served):
        what = f"{database} is empty: what it held was lost, unless its very first start was cut short"
    else:
        return _lost_log(folder, database, served) if size else None
    is_refused = _size(folder / f"{database}-wal")
    without = "A start is refused until then." if is_refused else "A start without it begins from nothing."
    remedy = (
        f"While the service runs, bring it back where it was. Else stop the service, {_RESTORE}."
        if served
        else f"Bring it back before a start, or else {_RESTORE}. {without}"
    )
    return problem("database", f"{what}{' while it was in use' if served else ''}", remedy)


def warn_of_loss(folder: Path, database: str) -> None:
    """A line in the log for what `lost` finds. The caller holds the folder and has not opened the database."""
    if not _size(folder / database) and _size(folder / f"{database}-wal"):
        return  # such a start is refused
    if found := lost(folder, database):
        _log.warning(
            "%s; this start goes on without it. To have a backup in its place: stop the service, %s",
            found.message,
            _RESTORE,
        )


def _lost_log(folder: Path, database: str, served: bool) -> Finding | None:
    """SQLite makes the log before its index, `-shm`, and takes the index away first. So an index without a log means
    that somebody has taken the log, unless two commands come and go between the looks.

    A service has both from before it tells its address until after it has taken that back.
    """
    log, index = folder / f"{database}-wal", folder / f"{database}-shm"
    if served:
        before = _told(folder)
        gone = _size(log) is None
        if gone and before is not None and _told(folder) == before == holder(folder):
            return problem(
                "log",
                f"{log.name} was deleted or moved away while it was in use",
                "Bring it back where it was, or stop the service in order: it still has it open, and moves it into "
                "the database then. Do not kill it.",
            )
        return None
    if all(_size(log) is None and _size(index) is not None for _ in range(_LOOKS)):
        return problem(
            "log",
            f"{log.name} is gone and {index.name} is there: something removed the log, or copied the folder without "
            "it; what only it held is lost",
            f"Bring it back before the next start, which goes on with what {database} holds, and never after it.",
        )
    return None


def _told(folder: Path) -> int | None:
    try:
        return named_in(folder / SERVER_NAME)
    except (OSError, ValueError):
        return None


def _size(path: Path) -> int | None:
    try:
        return path.stat().st_size
    except OSError:
        return None


def _private_folder(folder: Path, status: os.stat_result) -> Finding:
    mode = stat.S_IMODE(status.st_mode)
    if status.st_uid != os.geteuid():
        return problem(
            "folder", f"{folder} belongs to another user ({status.st_uid})", "Run the command as that user."
        )
    if mode & OPEN_TO_OTHERS:
        return problem(
            "folder", f"{folder} is open to other users (mode {mode:04o})", f"chmod 700 {shlex.quote(str(folder))}"
        )
    return ok("folder", f"{folder} is its owner's alone")


def _files(folder: Path, database: str, owner: int) -> Iterator[Finding]:
    """Each has to be of the folder's owner, for nobody else."""
    foreign: dict[str, int] = {}
    open_ones: dict[str, int] = {}
    others: dict[str, str] = {}
    for name in (database, f"{database}-wal", f"{database}-shm", LOCK_NAME, OWNERS_FILE, SERVER_NAME):
        try:
            status = (folder / name).lstat()
        except OSError:
            continue
        if kind := _other_kind(status):
            others[name] = kind
            continue
        if status.st_uid != owner:
            foreign[name] = status.st_uid
        if stat.S_IMODE(status.st_mode) & OPEN_TO_OTHERS:
            open_ones[name] = stat.S_IMODE(status.st_mode)
    if foreign:
        told = ", ".join(f"{name} (user {user})" for name, user in foreign.items())
        command = f"chown {owner} {_quoted(folder, foreign)}"
        yield problem("files", f"another user than the folder's owner owns {told}", f"As root: {command}")
    if open_ones:
        told = ", ".join(f"{name} (mode {mode:04o})" for name, mode in open_ones.items())
        yield problem("files", f"other users may read {told}", f"chmod 600 {_quoted(folder, open_ones)}")
    if others:
        told = ", ".join(f"{name} is {kind}" for name, kind in others.items())
        yield problem("files", f"{told}, and not a file", "Stop the service, then move away what is not its own.")
    if not foreign and not open_ones and not others:
        yield ok("files", "the files are their owner's alone")


def _other_kind(status: os.stat_result) -> str | None:
    """What it is if it is no file. A mode or an owner of such a thing is not what is wrong."""
    if stat.S_ISREG(status.st_mode):
        return None
    if stat.S_ISLNK(status.st_mode):
        return "a symbolic link"
    return "a folder" if stat.S_ISDIR(status.st_mode) else "a pipe, a socket or a device"


def _quoted(folder: Path, names: Iterable[str]) -> str:
    return " ".join(shlex.quote(str(folder / each)) for each in names)


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
    if free < FULL_BYTES:
        return problem(
            "room", f"its disk is full: {free:,} bytes are free", "Free some: writes are refused until then."
        )
    if free < FREE_MIN_BYTES:
        return note("room", f"{free:,} bytes are free on its disk", "Free some: writes are refused when it is full.")
    return ok("room", f"{free:,} bytes are free on its disk")
