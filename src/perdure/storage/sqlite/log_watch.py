"""What the looks at the write-ahead log add up to, and which of it is told.

Pure: numbers in, lines out. Two signs of trouble, each with its own line and its own patience:

* `held`: there is more in the log than its limit holds, and not all of it could be moved into the database.
* `growing`: all of it was moved, and yet it is above the limit and larger than when all was moved the last time. Each
  look by itself is fine then; only the length tells.

A sign is told when it comes, and again only when the log has doubled since. That it is over is told once, and only
when the log was moved whole: a log that is small but not whole is still held.

What SQLite calls `busy` says nothing about this: with a reader that holds the log it is 0. A negative number means
that nothing was measured, and changes nothing.
"""

import logging
from dataclasses import dataclass

MARKED_GROWTH = 2
"""So many times as long as when it was last told, and it is told again."""


@dataclass(frozen=True)
class Line:
    """Something to tell the owner, at a level of `logging`."""

    level: int
    text: str


class LogWatch:
    """The state between the looks. Without the database's page size nothing is told: the limit is one of bytes."""

    def __init__(self, page_bytes: int | None, limit_bytes: int) -> None:
        self.limit_pages = limit_bytes // page_bytes if page_bytes else None
        self.pages: int | None = None
        self.moved: int | None = None
        self.unmeasured = 0
        self._page_bytes = page_bytes or 0
        self._held_told = 0
        self._growing_told = 0
        self._last_whole: int | None = None

    @property
    def state(self) -> str:
        """`held`, `growing` or `ok`."""
        if self._held_told:
            return "held"
        return "growing" if self._growing_told else "ok"

    @property
    def is_whole(self) -> bool:
        """Whether the last look that measured found all of the log moved."""
        return self.pages is not None and self.pages == self.moved

    def look(self, busy: int, pages: int, moved: int) -> tuple[Line, ...]:
        """Take in what a checkpoint has answered; returns what is to be told."""
        if min(busy, pages, moved) < 0:
            self.unmeasured += 1
            return ()
        self.pages, self.moved = pages, min(moved, pages)
        if self.limit_pages is None:
            return ()
        return self._whole(pages, self.limit_pages) if self.is_whole else self._held(pages, self.limit_pages)

    def _held(self, pages: int, limit: int) -> tuple[Line, ...]:
        if pages <= limit or pages < MARKED_GROWTH * self._held_told:
            return ()
        self._held_told = pages
        return (Line(logging.WARNING, self._held_text(pages, self.moved or 0, limit)),)

    def _whole(self, pages: int, limit: int) -> tuple[Line, ...]:
        last, self._last_whole = self._last_whole, pages
        if self._held_told:  # what has gathered behind the reader is no sign of its own
            self._held_told = 0
            self._growing_told = self._growing_told if pages > limit else 0
            return (self._recovery(pages),)
        if pages <= limit:
            recovered, self._growing_told = bool(self._growing_told), 0
            return (self._recovery(pages),) if recovered else ()
        if last is None or pages <= last or pages < MARKED_GROWTH * self._growing_told:
            return ()
        self._growing_told = pages
        return (Line(logging.WARNING, self._growing_text(last, pages, limit)),)

    def _held_text(self, pages: int, moved: int, limit: int) -> str:
        return (
            f"the write-ahead log has {self._size(pages)}, above its limit of {self._size(limit)}; "
            f"{self._size(pages - moved)} of that could not be moved into the database and keep it from starting "
            "anew. Nothing is lost, but the file beside the database grows. What usually holds it is a program that "
            "reads the database and does not end its read: look for one (backup tool, database browser) and end it"
        )

    def _growing_text(self, last: int, pages: int, limit: int) -> str:
        return (
            f"the write-ahead log has {self._size(pages)}, above its limit of {self._size(limit)}, up from "
            f"{self._size(last)}, although all of it was moved into the database each time. Nothing is lost, but the "
            "file beside the database grows. What usually keeps it from starting anew are programs that read the "
            "database one after the other without a pause: look for them (backup tools, database browsers) and "
            "have them read less often"
        )

    def _recovery(self, pages: int) -> Line:
        return Line(
            logging.INFO,
            f"the write-ahead log was moved into the database whole: {self._size(pages)}; the next write starts it "
            "anew, unless somebody reads from it",
        )

    def _size(self, pages: int) -> str:
        return f"{pages} pages ({pages * self._page_bytes / 2**20:.1f} MiB)"
