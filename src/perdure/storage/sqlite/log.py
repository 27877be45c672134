"""Keeping the write-ahead log short, and free of what was purged.

SQLite would shorten it by itself inside a commit (`wal_autocheckpoint`), and keep silent when the disk refuses. Here
it is done as often and the same way, by the writer between two of its commits, but after the callers were answered;
and a refusal is told. From a connection that runs beside the writer it would not bound the log: a commit that lands
meanwhile keeps the next one from starting the log anew.

A log that starts anew is written over from its beginning, and behind that the old pages can still be read in the
file. So before a purge the log is moved, and the limit of its size is set to nothing: the purge's commit starts the
log anew, and SQLite cuts the file behind it. What a purge itself writes are pages that were wiped; they are moved
into the database at once. No reader and no writer is made to wait. A reader that needs the old pages keeps them as
long as it needs them, and the commits after it try again; while nobody commits, the minute's look makes one
(`upkeep`).
"""

import logging
from pathlib import Path

import apsw

from perdure.storage.sqlite.connection import LOG_SIZE_MAX_BYTES
from perdure.storage.sqlite.query import rows

HEADER_BYTES = 32
FRAME_HEADER_BYTES = 24
LOG_MAX_PAGES = 1_000
"""At this length the log is moved into the file. The next commit then starts it anew, unless a reader needs it."""

_log = logging.getLogger(__name__)


class Log:
    """The log of the writer's connection, whose length SQLite tells after every commit.

    One that a crash has left may hold what was purged since: the first commit cuts it off.
    """

    def __init__(self, connection: apsw.Connection) -> None:
        self.commits = 0
        self.pages = 0
        self._connection = connection
        self._page_bytes = int(str(connection.pragma("page_size")))
        self._cutting = False
        self._moving = False
        self._refused = False
        connection.set_wal_hook(self._note)
        self._have_cut()

    @property
    def owes_cut(self) -> bool:
        """Whether what was purged may still stand in the log, since a reader needed it or the disk refused."""
        return self._cutting

    @property
    def is_due(self) -> bool:
        """Whether it is time to shorten it."""
        return self._cutting or self._moving or self.pages >= LOG_MAX_PAGES

    def shorten(self, in_trouble: bool = False) -> None:
        """Move what no reader needs into the file. Never waits for anybody; on the writer's thread only. A refusal is
        told once, and not while the disk is known to be `in_trouble`."""
        try:
            ((_, pages, moved),) = rows(self._connection, "PRAGMA wal_checkpoint(PASSIVE)")
        except apsw.Error as error:
            # Nothing is lost: the log holds it all, and the next commit brings the next attempt.
            if not self._refused and not in_trouble:
                which = f"the log of {self.pages} pages" if self.pages else "the log"
                _log.warning("%s could not be moved into the database: %s", which, error)
            self._refused = True
        else:
            self._refused = False
            self.pages, self._moving = pages, moved < pages and self._moving

    def cut(self) -> None:
        """The next commit purges: have it cut the log. On the writer's thread only."""
        self._have_cut()
        self._moving = True

    def _have_cut(self) -> None:
        """Have the commit that starts the log anew cut off the rest of its file: the very next one, if no reader
        needs the log."""
        self.shorten()
        if self.pages or self._refused:  # refused at a start, its length is not known
            self._cutting = True
            self._connection.pragma("journal_size_limit", 0)

    def _note(self, _connection: apsw.Connection, _database: str, pages: int) -> int:
        self.commits += 1
        begun_anew, self.pages = pages <= self.pages, pages  # otherwise it has grown by this commit
        if self._cutting and begun_anew and self._is_cut():
            self._cutting = False
            self._connection.pragma("journal_size_limit", LOG_SIZE_MAX_BYTES)
        return apsw.SQLITE_OK

    def _is_cut(self) -> bool:
        """Whether nothing stands in the file behind the log. SQLite does not tell when the disk refuses the cut."""
        try:
            size = Path(self._connection.filename_wal).stat().st_size
        except OSError:
            return False
        return size <= HEADER_BYTES + self.pages * (FRAME_HEADER_BYTES + self._page_bytes)
