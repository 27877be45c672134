"""Events on their way to a reader: a raw ASGI answer that copies stored events to the socket.

Each event is one write, in the bytes in which it is stored; one that repeats a very large request is several, so that
not every reader who stalls holds copies of it. The next write is made only after the socket has taken the last one,
so a slow reader holds one page of events at most and delays nobody else. The reader's attendance is a context that is
entered and left here, in one coroutine: a client that resets before the first byte leaves no trace.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from contextlib import AbstractAsyncContextManager, suppress

from litestar.types import HTTPResponseBodyEvent, Receive, Scope, Send

from perdure.api.answers import Header
from perdure.api.presence import ClientGone, present
from perdure.domain.events import TERMINAL_TYPES, Event

Following = AbstractAsyncContextManager[AsyncIterator[Event | None]]

HEADERS: tuple[Header, ...] = (
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache, no-transform"),
    (b"x-accel-buffering", b"no"),  # or a reverse proxy keeps the events until it has a bufferful
)
KEEPALIVE = b": keep-alive\n\n"
DONE = b"data: [DONE]\n\n"
WRITE_MAX_BYTES = 256 * 1024


class Stream:
    """The answer that sends what `following` yields, each event as the frames that `render` makes of it.

    The last frame of the terminal event goes with the end of the answer.

    `exhausted` is asked when the events end without any having been sent: whether the log is complete, and the reader
    already had all of it. Where it is not (the service drains), the stream ends with `cut` and without `[DONE]`. By
    itself `cut` is empty: the reader can come back with his cursor.
    """

    __slots__ = ("_cut", "_exhausted", "_following", "_headers", "_render")

    def __init__(
        self,
        following: Following,
        headers: Iterable[Header] = (),
        exhausted: Callable[[], Awaitable[bool]] | None = None,
        render: Callable[[Event], Iterable[bytes]] | None = None,
        cut: bytes = b"",
    ) -> None:
        self._following = following
        self._headers = [*HEADERS, *headers]
        self._exhausted = exhausted
        self._render = render or _frames
        self._cut = cut

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002 -- ASGI's signature
        """Send events until the terminal one, or until either side leaves."""
        async with self._following as events:
            with suppress(ClientGone):
                async with present(receive):
                    await send({"type": "http.response.start", "status": 200, "headers": self._headers})
                    last = await self._copy(events, send)
                    await send(_chunk(last, more=False))

    async def _copy(self, events: AsyncIterator[Event | None], send: Send) -> bytes:
        """Copy; returns what is left to be sent."""
        sent = False
        async for event in events:
            if event is None:
                await send(_chunk(KEEPALIVE))
                continue
            last, sent = b"", True
            for each in self._render(event):
                if last:
                    await send(_chunk(last))
                last = each
            if event.type in TERMINAL_TYPES:
                return last
            if last:
                await send(_chunk(last))
        complete = not sent and self._exhausted is not None and await self._exhausted()
        return DONE if complete else self._cut


def _frames(event: Event) -> Iterator[bytes]:
    """An event as a server-sent event: in one piece, or in several none of which is too large to be held twice."""
    head = b"event: %s\ndata: " % event.type.encode()
    if event.snapshot is None or len(event.snapshot) <= WRITE_MAX_BYTES:
        yield b"%s%s\n\n" % (head, event.json)
    else:
        yield head + event.data
        for at in range(0, len(event.snapshot), WRITE_MAX_BYTES):
            yield event.snapshot[at : at + WRITE_MAX_BYTES]
        yield b"}\n\n"
    if event.type in TERMINAL_TYPES:
        yield DONE


def _chunk(body: bytes, *, more: bool = True) -> HTTPResponseBodyEvent:
    return {"type": "http.response.body", "body": body, "more_body": more}
