"""Keeping the write-ahead log short.

SQLite would do this by itself inside a commit (`wal_autocheckpoint`), and keep silent when the disk refuses. Here it
is done as often and the same way, by the writer between two of its commits, but after the callers were answered; and
a refusal is told. From a connection that runs beside the writer it would not bound the log: a commit that lands
meanwhile keeps the next one from starting the log anew.
"""

import logging

import apsw

LOG_MAX_PAGES = 1_000
"""At this length the log is moved into the file. The next commit then starts it anew, unless a reader needs it."""

_log = logging.getLogger(__name__)


class Log:
    """The log of the writer's connection, whose length SQLite tells after every commit."""

    def __init__(self, connection: apsw.Connection) -> None:
        self.pages = 0
        self._connection = connection
        connection.set_wal_hook(self._note)

    @property
    def is_long(self) -> bool:
        """Whether it is time."""
        return self.pages >= LOG_MAX_PAGES

    def shorten(self) -> None:
        """Move what no reader needs into the file. Never waits for anybody; on the writer's thread only."""
        try:
            self._connection.pragma("wal_checkpoint", "passive")
        except apsw.Error as error:
            # Nothing is lost: the log holds it all, and the next commit brings the next attempt.
            _log.warning("the log of %d pages could not be moved into the database: %s", self.pages, error)

    def _note(self, _connection: apsw.Connection, _database: str, pages: int) -> int:
        self.pages = pages
        return apsw.SQLITE_OK
