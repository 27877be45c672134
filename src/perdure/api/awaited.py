"""The answer of a foreground create without a stream: what came of it, once it has ended."""

from collections.abc import Callable
from contextlib import suppress

from litestar.types import Receive, Scope, Send

from perdure.api.answers import Answer, Header, location
from perdure.api.errors import LeftRunning
from perdure.api.presence import ClientGone, present
from perdure.domain.principal import Principal
from perdure.engine.service import Service


class Awaited:
    """Waits for the end of a response, then sends what `render` makes of it. A client who leaves is no longer
    attending.

    A response object that failed is a 200 like any other: an error status would make the official clients create it
    anew.
    """

    __slots__ = ("_ident", "_principal", "_render", "_service")

    def __init__(
        self,
        service: Service,
        principal: Principal,
        ident: str,
        render: Callable[[bytes, list[Header]], Answer] | None = None,
    ) -> None:
        self._service = service
        self._principal = principal
        self._ident = ident
        self._render = render or _as_it_is

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Wait and send."""
        with suppress(ClientGone):
            answer = await self._wait(receive)
            await answer(scope, receive, send)

    async def _wait(self, receive: Receive) -> Answer:
        async with present(receive):
            response = await self._service.outcome(self._principal, self._ident)
        if response is None:
            raise LeftRunning(self._ident)
        return self._render(response, [location(self._ident)])


def _as_it_is(response: bytes, headers: list[Header]) -> Answer:
    return Answer(response, 200, headers)
