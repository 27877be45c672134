"""The size of the database from which on nothing new is accepted, where there is such a bound.

It is a bound of admission. What was accepted before goes on to its end, whatever the size: were the file itself
bounded, texts under way would have nothing to end with, and a start could not settle what was left. The log beside
the file is not counted; it is moved into the file as it goes.
"""

import logging

import apsw

from perdure.domain.errors import StorageFull

AT_THE_BOUND = (
    "The database has reached database_max_bytes. New work is refused until responses are deleted or go by their "
    "age; what was accepted goes on."
)

_log = logging.getLogger(__name__)


class Room:
    """Asks a connection that reads. `bytes_max` is the bound; None is none."""

    def __init__(self, reader: apsw.Connection, bytes_max: int | None) -> None:
        self._reader = reader
        self._bytes_max = bytes_max
        self._told_full = False

    @property
    def is_full(self) -> bool:
        """Whether there is as much in the database as there may be. Free pages do not count: they are used again."""
        if self._bytes_max is None:
            return False
        try:
            pages = self._ask("page_count") - self._ask("freelist_count")
            return pages * self._ask("page_size") >= self._bytes_max
        except apsw.Error:  # a database that cannot be asked has worse to tell, and does so elsewhere
            return False

    def require(self) -> None:
        """Raise `StorageFull` where there is none. When that begins and when it ends it is told, once each."""
        full = self.is_full
        if full != self._told_full:
            self._told_full = full
            _log.warning(
                AT_THE_BOUND if full else "The database is below database_max_bytes again; new work is accepted."
            )
        if full:
            raise StorageFull(AT_THE_BOUND)

    def _ask(self, pragma: str) -> int:
        return int(str(self._reader.pragma(pragma)))
