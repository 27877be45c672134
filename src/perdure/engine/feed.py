"""Feed: the events of a response from a cursor on, from rows alone, live and later alike."""

import asyncio
from collections.abc import AsyncGenerator

from perdure.domain.events import TERMINAL_TYPES, Event
from perdure.domain.limits import FEED_PAGE_EVENTS, FEED_POLL_SECONDS, KEEPALIVE_SECONDS
from perdure.engine.wakeups import Wakeups, wait_for
from perdure.ports.ambient import Clock
from perdure.ports.storage import Store, TaskRecord


class Feed:
    """Reads logs for followers."""

    def __init__(self, store: Store, wakeups: Wakeups, clock: Clock) -> None:
        self._store = store
        self._wakeups = wakeups
        self._clock = clock

    async def follow(self, record: TaskRecord, after: int, stop: asyncio.Event) -> AsyncGenerator[Event | None]:
        """Events above `after`, then None after each `KEEPALIVE_SECONDS` of silence; ends at the end of the log,
        or before it once `stop` is set: the reader comes back with his cursor.
        """
        cursor, quiet_since = after, self._clock.monotonic()
        ended = False
        with self._wakeups.listen(record.ident) as hint:
            while True:
                hint.clear()
                page = await self._store.events(record.id, cursor, FEED_PAGE_EVENTS)
                for event in page.events:
                    yield event
                    cursor, quiet_since = event.seq, self._clock.monotonic()
                if page.events and page.events[-1].type in TERMINAL_TYPES:
                    return
                if not page.events and ended:
                    return  # nothing came after the end was seen, and nothing can
                ended = not page.events and await self._store.ended(record.ident)
                if ended or page.more:
                    continue
                if stop.is_set():
                    return
                await wait_for(hint, FEED_POLL_SECONDS)
                if self._clock.monotonic() - quiet_since >= KEEPALIVE_SECONDS:
                    quiet_since = self._clock.monotonic()
                    yield None
