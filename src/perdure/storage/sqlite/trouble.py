"""Whether the disk takes writes: a state that begins and ends, and is told once each time.

    works --refused--> storage_full / storage_failed --writes work again--> works
    works, full, failed --damage found--> storage_damaged (until the service is started anew)

* A full disk still takes a small write here and there: where the log has room that a refused write has left. So the
  state ends only with a write that went well after a while without a refusal, and where the disk was full only when
  it shows room again. Otherwise it would come and go, and each time be told.
* While nobody writes, nobody would notice that the trouble is over. The store then makes a small write of its own.
* Once damage was found nothing is written any more: it could grow. The log is not moved either, not even at the stop.
  What can be read stays readable.
* A disk that refuses now with one error and now with another is in one trouble: the code follows, one line is told.
* A read that fails says nothing of writes. Only damage that it meets changes the state.

On the event loop only.
"""

import asyncio
import logging
import math
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

from perdure.domain.errors import StorageDamaged, StorageFailed, StorageFull
from perdure.storage.sqlite.faults import damaged

RETRY_SECONDS = 1.0
"""After so long without a write the store makes one of its own."""
ROOM_MIN_BYTES = 1024 * 1024
"""A disk that has refused a write is called full until it has so much room again."""
CALM_SECONDS = 1.5
"""So long there must have been no refusal; longer than the time after which held texts are offered again."""
UNREAD_SECONDS = 60.0
"""Reads that fail are told once in so long: callers ask again and again."""

Refusal = StorageFull | StorageFailed

_log = logging.getLogger(__name__)

_MEANWHILE = "Texts under way are held, reads go on, nothing is deleted, new work is refused"
_REASONS = {
    StorageFull.code: "The disk of the data folder is full. It ends by itself when there is room again.",
    StorageFailed.code: "The disk or the database refuses; the log says why. It ends by itself with the cause.",
    StorageDamaged.code: (
        "The database is damaged; nothing is written any more. Stop the service, run `perdure doctor`, and bring a "
        "backup back with `perdure restore`."
    ),
}
_REMEDIES = {
    StorageFull.code: f"{_MEANWHILE}. Free some space on that disk; work then goes on by itself",
    StorageFailed.code: f"{_MEANWHILE}. Remove the cause; work then goes on by itself",
    StorageDamaged.code: (
        "Nothing is written any more, texts under way are held, what can be read stays readable, nothing is deleted. "
        "Stop the service, run `perdure doctor`, and bring a backup back with `perdure restore`"
    ),
}


class Trouble:
    """The state of one database. `try_write` hands over a small write; what comes of it is told by `delivered`."""

    def __init__(self, try_write: Callable[[], object]) -> None:
        self.code: str | None = None
        self._loop = asyncio.get_running_loop()
        self._try_write = try_write
        self._path = Path()
        self._began_at = self._refused_at = 0.0
        self._refused = 0
        self._unread_at = -math.inf
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False

    def watch(self, path: Path) -> None:
        """Name the file."""
        self._path = path

    @property
    def reason(self) -> str | None:
        """The state in words, for people who may not see where things lie."""
        return None if self.code is None else _REASONS[self.code]

    @property
    def is_damaged(self) -> bool:
        """Whether nothing may be written any more."""
        return self.code == StorageDamaged.code

    def check(self) -> None:
        """Raise `StorageDamaged` where nothing may be written any more."""
        if self.is_damaged:
            raise damaged()

    def delivered(self, refusals: Sequence[Refusal], *, made: bool) -> None:
        """Note what became of writes: those that were refused, and whether any was made."""
        for error in refusals:
            self.met(error)
        if self.code is None:
            return
        if made and not refusals:
            self._passed()
        self._try_later()

    def met(self, error: Refusal) -> None:
        """Note a refusal of a write, or damage that was found."""
        if self.is_damaged:
            return
        self._refused_at = self._loop.time()
        self._refused += 1
        before, self.code = self.code, error.error_code
        if before is None:
            self._began_at, self._refused = self._refused_at, 1
        if before is None or self.is_damaged:
            _log.error("%s: %s (%s). %s", self.code, self._path, _why(error), _REMEDIES[self.code])
            self._try_later()

    def unread(self, error: StorageFailed) -> None:
        """Note a read that failed."""
        if isinstance(error, StorageDamaged):
            self.met(error)
        elif self._loop.time() - self._unread_at >= UNREAD_SECONDS:
            self._unread_at = self._loop.time()
            _log.error(
                "%s could not be read (%s); whoever asked was told so, and writes go on. While that lasts, this line "
                "comes at most once in %g s. If it stays, look at the disk, and run `perdure doctor`",
                self._path,
                _why(error),
                UNREAD_SECONDS,
            )

    def close(self) -> None:
        """Try nothing any more."""
        self._closed = True
        self._try_later()

    def _passed(self) -> None:
        """A write went well."""
        now = self._loop.time()
        if self.is_damaged or now - self._refused_at < CALM_SECONDS:
            return
        if self.code == StorageFull.code and not _has_room(self._path.parent):
            return
        seconds = now - self._began_at
        _log.warning("%s takes writes again after %.1f s; %d were refused", self._path, seconds, self._refused)
        self.code = None

    def _try_later(self) -> None:
        """Each write puts the store's own off."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self.code is not None and not self.is_damaged and not self._closed:
            self._timer = self._loop.call_later(RETRY_SECONDS, self._try_write)


def _why(error: Refusal) -> str:
    """SQLite's own words where there are some."""
    cause = error.__cause__
    return error.message if cause is None else f"{type(cause).__name__}: {cause}"


def _has_room(folder: Path) -> bool:
    try:
        return shutil.disk_usage(folder).free >= ROOM_MIN_BYTES
    except OSError:  # the write went well, and that is what counts
        return True
