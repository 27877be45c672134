"""Whether the database is whole, as far as a start can afford to look.

Every page is read, and the structure of every tree is checked. A larger file would make each start slower than a user
wants to wait: there, damage is met where a page is read.
"""

from pathlib import Path

import apsw

from perdure.storage.sqlite.faults import damaged_at_start
from perdure.storage.sqlite.query import rows

CHECKED_MAX_BYTES = 16 * 1024 * 1024
"""A check of so much takes about 0.1 s of processor time."""


def require_quick_check(connection: apsw.Connection) -> None:
    """Raise `StorageDamaged` for a database that is not whole, if it is small enough to be checked."""
    size = int(str(connection.pragma("page_count"))) * int(str(connection.pragma("page_size")))
    if size > CHECKED_MAX_BYTES:
        return
    found = " ".join(str(line) for (line,) in rows(connection, "PRAGMA quick_check(1)"))
    if found != "ok":
        raise damaged_at_start(Path(connection.filename), " ".join(found.split()))
