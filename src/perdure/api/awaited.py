"""The answer of a foreground create without a stream: the response object, once it has ended."""

from collections.abc import AsyncIterator
from contextlib import suppress

from litestar.types import Receive, Scope, Send

from perdure.api.answers import Answer, location
from perdure.api.errors import LeftRunning
from perdure.api.presence import ClientGone, present
from perdure.domain.events import TERMINAL_TYPES, Event
from perdure.domain.principal import Principal
from perdure.engine.service import Service


class Awaited:
    """Waits for the end of a response, then sends it. A client who leaves is no longer attending.

    A response that failed is a 200 like any other: an error status would make the official clients create it anew.
    """

    __slots__ = ("_ident", "_principal", "_service")

    def __init__(self, service: Service, principal: Principal, ident: str) -> None:
        self._service = service
        self._principal = principal
        self._ident = ident

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Wait and send."""
        with suppress(ClientGone):
            answer = await self._wait(receive)
            await answer(scope, receive, send)

    async def _wait(self, receive: Receive) -> Answer:
        async with self._service.follow(self._principal, self._ident, -1) as events, present(receive):
            ended = await _ended(events)
        if not ended:
            raise LeftRunning(
                f"The service is stopping. The response resp_{self._ident} is kept: read it from this service later;"
                " what becomes of it at the next start is what its `on_restart` says."
            )
        return Answer(await self._service.response(self._principal, self._ident), 200, [location(self._ident)])


async def _ended(events: AsyncIterator[Event | None]) -> bool:
    async for event in events:
        if event is not None and event.type in TERMINAL_TYPES:
            return True
    return False
