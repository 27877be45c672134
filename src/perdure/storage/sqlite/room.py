"""The largest size of the database file, where there is a bound.

SQLite refuses what would need a page beyond it, as a full disk does: whoever writes is told `storage_full`, texts
under way are held, and pages that a purge frees are used again. The log beside the file is not counted; it is moved
into the file as it goes.
"""

import apsw

ROOM_MIN_BYTES = 1024 * 1024
"""A database that has refused a write is called full until it has so much room again."""


def limit(connection: apsw.Connection, bytes_max: int | None) -> None:
    """Let the file grow so far and no further. One that is larger stays as it is: only what is free in it is used."""
    if bytes_max is not None:
        connection.pragma("max_page_count", max(1, bytes_max // _page_bytes(connection)))


def has_room(connection: apsw.Connection, bytes_max: int | None) -> bool:
    """Whether there is room for more than a few small writes."""
    if bytes_max is None:
        return True
    try:
        used = int(str(connection.pragma("page_count"))) - int(str(connection.pragma("freelist_count")))
        return used * _page_bytes(connection) + ROOM_MIN_BYTES <= bytes_max
    except apsw.Error:  # it was asked after a write that went well, and that is what counts
        return True


def _page_bytes(connection: apsw.Connection) -> int:
    return int(str(connection.pragma("page_size")))
