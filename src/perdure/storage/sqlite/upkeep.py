"""Once a minute: move the log into the database, look how it stands, and tell the owner when something is wrong.

The writer shortens the log by itself after so many pages (`log`), and that is what bounds it. The minute adds what
commits cannot do: a quiet service moves its log too, a log that somebody holds is noticed, and a file that was once
above its limit, or that still has what was purged while a reader held it, is cut although nobody writes.

Each look runs on the writer's thread, so that it never runs beside a commit, and over a connection of its own, so
that it can be interrupted. Only PASSIVE, which makes nobody wait: the other modes wait for readers and writers, and
TRUNCATE moves the version of the store.
"""

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

import apsw

from perdure.domain.errors import Unavailable
from perdure.engine.wakeups import wait_for
from perdure.ports.ambient import Clock
from perdure.ports.storage import WalCondition
from perdure.storage.sqlite.connection import LOG_SIZE_MAX_BYTES, open_checkpointer
from perdure.storage.sqlite.log_watch import LogWatch
from perdure.storage.sqlite.query import rows
from perdure.storage.sqlite.writer import Writer

UPKEEP_SECONDS = 60.0
INTERRUPT_SECONDS = 0.05
"""An interrupt that comes in the instant before SQLite begins is lost, so it is sent until it is heeded."""

Pause = Callable[[asyncio.Event, float], Awaitable[bool]]
"""Wait for a hint, at most so long; whether it came."""

_log = logging.getLogger(__name__)


class Checkpoint:
    """Moves the log over a connection of its own: `run` and `close` on the writer's thread, `interrupt` on any."""

    def __init__(self, path: Path, vfs: str | None) -> None:
        self._connection = open_checkpointer(path, vfs)
        found = self._connection.pragma("page_size")
        self.page_bytes = found if isinstance(found, int) and found > 0 else None
        self._lock = threading.Lock()
        self._running = False
        self._stopped = False

    def run(self) -> tuple[int, int, int] | None:
        """Move what no reader needs. SQLite's answer: busy, pages in the log, pages moved; None after the stop."""
        with self._lock:
            if self._stopped:
                return None
            self._running = True
        try:
            ((busy, pages, moved),) = rows(self._connection, "PRAGMA wal_checkpoint(PASSIVE)")
        except apsw.InterruptError:
            if self._stopped:
                return None
            raise
        finally:
            with self._lock:
                self._running = False
        return busy, pages, moved

    def interrupt(self) -> None:
        """Begin no more; one that is under way ends at its next page. What it has moved is no loss: it is moved."""
        with self._lock:
            self._stopped = True
            if self._running:
                self._connection.interrupt()

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()


class Upkeep:
    """The loop. `clock` says when a look was made; without one that stays untold. `pause` is how it waits."""

    def __init__(self, writer: Writer, clock: Clock | None = None, pause: Pause = wait_for) -> None:
        self._writer = writer
        self._clock = clock
        self._pause = pause
        self._stopping = asyncio.Event()
        self._checkpoint: Checkpoint | None = None
        self._loop: asyncio.Task[None] | None = None
        self._file = Path()
        self._watch = LogWatch(None, LOG_SIZE_MAX_BYTES)
        self._checked_at: int | None = None
        self._checks = self._failed = 0

    async def start(self, path: Path, vfs: str | None = None) -> None:
        """Open the connection and begin; the first look is a minute away."""
        self._file = path.with_name(path.name + "-wal")
        self._checkpoint = await self._writer.aside(partial(Checkpoint, path, vfs))
        self._watch = LogWatch(self._checkpoint.page_bytes, LOG_SIZE_MAX_BYTES)
        self._loop = asyncio.create_task(self._serve(self._checkpoint), name="upkeep")

    async def close(self) -> None:
        """Begin nothing more, interrupt a checkpoint under way, and close the connection when the loop has ended."""
        self._stopping.set()
        checkpoint, self._checkpoint = self._checkpoint, None
        if checkpoint is None:
            return
        while self._loop is not None and not self._loop.done():
            checkpoint.interrupt()
            await asyncio.wait((self._loop,), timeout=INTERRUPT_SECONDS)
        await self._writer.aside(checkpoint.close)

    def condition(self) -> WalCondition:
        """How the log stands."""
        watch = self._watch
        return WalCondition(
            state=watch.state,
            pages=watch.pages,
            checkpointed_pages=watch.moved,
            limit_pages=watch.limit_pages,
            size_bytes=self._size(),
            size_limit_bytes=LOG_SIZE_MAX_BYTES,
            last_checkpoint_at=self._checked_at,
            checkpoints=self._checks,
            checkpoints_failed=self._failed,
            checkpoints_unmeasured=watch.unmeasured,
        )

    async def _serve(self, checkpoint: Checkpoint) -> None:
        try:
            while not await self._pause(self._stopping, UPKEEP_SECONDS):
                try:
                    await self._round(checkpoint)
                except Unavailable:  # the writer has told of it; the next minute tries again
                    pass
                except Exception as error:  # noqa: BLE001 -- whatever it is, the next minute tries again
                    self._checks, self._failed = self._checks + 1, self._failed + 1
                    _log.warning(
                        "the write-ahead log could not be moved into the database; the next try is in %g s: %s: %s",
                        UPKEEP_SECONDS,
                        type(error).__name__,
                        error,
                    )
        finally:
            checkpoint.interrupt()  # also when the loop is cancelled: nothing waits for its result any more

    async def _round(self, checkpoint: Checkpoint) -> None:
        if self._writer.trouble.is_damaged:
            return
        answer = await self._writer.aside(checkpoint.run)
        if answer is None:
            return
        self._checks += 1
        if self._clock is not None and min(answer) >= 0:
            self._checked_at = self._clock.now()
        for line in self._watch.look(*answer):
            _log.log(line.level, line.text)
        is_long = self._size() > LOG_SIZE_MAX_BYTES
        if min(answer) >= 0 and self._watch.is_whole and (is_long or self._writer.owes_cut):
            # The log stays as it was until the next write starts it anew, and on a quiet service there is none. So
            # one is made, which changes nothing; it moves the version, and therefore only in these states.
            await self._writer.touch()

    def _size(self) -> int:
        try:
            return self._file.stat().st_size
        except OSError:
            return 0
