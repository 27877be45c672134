"""Whether the files still lie where they were opened.

SQLite goes on to write to a file that was deleted, renamed or replaced while it was open. Everything would seem to
work, and the next start would find none of it. So each commit looks first, and is refused when the name leads
elsewhere. Reads go on from the file that was opened. When it is back under its name, writes work again.

What was written over in place is the same file, and is not noticed here.
"""

from pathlib import Path

import apsw

from perdure.storage.sqlite.faults import failed


def watch(connection: apsw.Connection) -> None:
    """Have every commit of a connection look first. Its log must exist."""
    known = {path: _identity(path) for path in (Path(connection.filename), Path(connection.filename_wal))}

    def check() -> bool:
        for path, identity in known.items():
            if _identity(path) != identity:
                raise failed() from FileNotFoundError(f"{path} was deleted, moved or replaced while it was in use")
        return False

    connection.set_commit_hook(check, id=__name__)


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino
