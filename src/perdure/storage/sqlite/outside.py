"""What the kinds and sizes of the files say of a database, before anything opens it.

SQLite must not be asked first: it removes the log of a database that has no page, also where it only reads, and
begins anew over the log of one that is not there. What was committed and not yet moved into the file would be gone.
"""

import os
import stat
from pathlib import Path

from perdure.domain.errors import RefusedToStart, StorageDamaged


def refuse_from_outside(path: Path) -> None:
    """Raise `RefusedToStart` for what is no file, `StorageDamaged` for a log without its database. Opens nothing."""
    if found := irregular(path):
        raise RefusedToStart(found)
    refuse_orphaned_log(path)


def refuse_orphaned_log(path: Path) -> None:
    """Raise `StorageDamaged` for a log whose database is missing or empty."""
    if found := orphaned_log(path):
        raise StorageDamaged(found)


def orphaned_log(path: Path) -> str | None:
    """One line where a log that is not empty lies beside a database that is missing or empty, else None."""
    log = path.with_name(f"{path.name}-wal")
    if _size(path) or not (held := _size(log)):
        return None
    how = "is missing" if _size(path) is None else "is empty"
    return (
        f"{path} {how}, and {log} ({held:,} bytes) holds work that was committed to it; nothing was touched. Bring "
        f"{path.name} back beside its log. If that cannot be done, move the whole folder away and keep it; `perdure "
        "restore FILE` then makes it anew from a backup"
    )


def irregular(path: Path) -> str | None:
    """One line where the name leads to something else than a file of its own, else None."""
    try:
        mode = path.lstat().st_mode
    except OSError:
        return None
    if stat.S_ISREG(mode):
        return None
    if stat.S_ISLNK(mode):
        return (
            f"{path} is a symbolic link, and the log of a database has to lie beside its file; with --data, name the "
            f"folder where the file itself lies ({Path(os.path.realpath(path)).parent})"
        )
    kind = "a folder" if stat.S_ISDIR(mode) else "a pipe, a socket or a device"
    return f"{path} is {kind} and not a file; move it away, or name another data folder with --data"


def _size(path: Path) -> int | None:
    try:
        return path.stat().st_size
    except OSError:
        return None
