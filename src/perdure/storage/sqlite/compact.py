"""Give the free pages of a database back to the disk.

`VACUUM` in place, not a rebuilt copy that is renamed over the old file: another process may be reading the database,
as a backup does, and SQLite's own locks then keep the two apart. A file that is swapped under a reader is not
noticed, and the last to leave the old one would delete the log of the new one.

What is written goes to a temporary file without a name, then to the log, and with one commit it counts. A kill before
that commit leaves the database as it was, one after it leaves the new one.
"""

import os
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import apsw

from perdure.domain.errors import StorageDamaged
from perdure.storage.sqlite import files
from perdure.storage.sqlite.checked import (
    Unfit,
    contents,
    refuse_foreign,
    require_file,
    require_full_check,
    telling,
)
from perdure.storage.sqlite.connection import COMPACTOR, look, open_beside
from perdure.storage.sqlite.log import FRAME_HEADER_BYTES
from perdure.storage.sqlite.query import rows
from perdure.storage.sqlite.statements import load

SPARE_BYTES = 1024 * 1024

_COMPACT = load("care")["compact"]
_REMEDY = "`perdure doctor` tells more; `perdure restore` brings a backup back."


@dataclass(frozen=True)
class Compacted:
    """The size of the database before and after."""

    before_bytes: int
    after_bytes: int
    later: bool
    """Whether the new one is still in the log, so that the file has its old size."""


def compact(path: Path) -> Compacted:
    """Rebuild the database without its free pages. Raises `Unfit`, `StorageDamaged`; then it is as it was.

    The caller holds the lock of the data folder.
    """
    # Read by SQLite when it makes a temporary file. In the folder of the database there is room, as was checked, and
    # nobody else looks into it.
    os.environ["SQLITE_TMPDIR"] = str(path.absolute().parent)
    require_file(path)
    with telling(path, _REMEDY):
        # Before it is opened for writing: that alone would set the journal mode of what is not ours.
        look(path, lambda connection: refuse_foreign(connection, path))
    with telling(path, _REMEDY), closing(open_beside(path, COMPACTOR)) as connection:
        refuse_foreign(connection, path)
        require_full_check(connection, path, _REMEDY)
        _refuse_full(connection, path)
        held = contents(connection)
        before = _size(connection)
        _rebuild(connection, path)
        if (found := contents(connection)) != held:
            raise StorageDamaged(f"{path} holds {found} and held {held}. {_REMEDY}")
        after = _size(connection)
    # Whoever closes last moves the log into the file and takes it away. A backup or a doctor may be open still.
    return Compacted(before, after, path.with_name(path.name + "-wal").exists())


def needed_bytes(connection: apsw.Connection) -> int:
    """What a rebuild writes at most, before the old pages are given back: what is kept twice, once for the temporary
    file and once for the log with a header to each page."""
    page_bytes = _pages(connection, "page_size")
    kept = _pages(connection, "page_count") - _pages(connection, "freelist_count")
    return kept * (2 * page_bytes + FRAME_HEADER_BYTES) + SPARE_BYTES


def _refuse_full(connection: apsw.Connection, path: Path) -> None:
    if (there := files.room(path.parent)) < (needed := needed_bytes(connection)):
        raise Unfit(
            f"To compact {path} takes {needed:,} bytes and its disk has {there:,} free; nothing was done. Free some "
            "space there first. The service does not need this: it fills the free pages again."
        )


def _rebuild(connection: apsw.Connection, path: Path) -> None:
    try:
        rows(connection, _COMPACT)
    except apsw.FullError:
        raise Unfit(
            f"The disk of {path.parent} filled up; the database is as it was. Free some space there first."
        ) from None
    except apsw.BusyError:
        raise Unfit(f"Another program has {path} open; the database is as it was. End that one first.") from None


def _size(connection: apsw.Connection) -> int:
    return _pages(connection, "page_count") * _pages(connection, "page_size")


def _pages(connection: apsw.Connection, name: str) -> int:
    return int(str(connection.pragma(name)))
