"""The outermost layer: what happens to every request before it is routed, and to every answer on its way out.

A request gets an id; its host, its origin and its token are checked here, for unknown routes as for known ones.
Nothing that goes wrong below leaves as anything but the one error shape.
"""

import logging
import secrets
from collections.abc import Callable
from typing import Any, cast

from litestar.types import ASGIApp, Message, Receive, Send
from litestar.types import Scope as Connection

from perdure.api import auth, doors, errors
from perdure.api.hosts import Hosts
from perdure.domain.errors import PerdureError
from perdure.engine.service import Service

_log = logging.getLogger(__name__)


def new_request_id() -> str:
    """A name for one request, for the log and the client."""
    return f"req_{secrets.token_hex(12)}"


class Gate:
    """The application `inner` behind the checks."""

    def __init__(
        self,
        inner: ASGIApp,
        service: Service,
        hosts: Hosts,
        open_paths: frozenset[str],
        request_id: Callable[[], str] = new_request_id,
    ) -> None:
        self._inner = inner
        self._service = service
        self._hosts = hosts
        self._open_paths = open_paths
        self._request_id = request_id

    async def __call__(self, scope: Connection, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008, "reason": "no WebSocket here"})
            return
        exchange = Exchange(send, self._request_id())
        scope["state"]["request_id"] = exchange.request_id
        try:
            await self._admit(scope)
            await self._inner(scope, receive, exchange.send)
        except Exception as exc:  # noqa: BLE001 -- the last place that can still answer
            if exchange.started:
                # Half an answer cannot become an error: the server cuts the connection, which the client sees.
                _log.exception("answer broken off (%s)", exchange.request_id)
                return
            await errors.answer(reported(exc, scope), kept=errors.is_kept(scope))(scope, receive, exchange.send)

    async def _admit(self, scope: Connection) -> None:
        headers = scope["headers"]
        self._hosts.check(headers)
        if scope["path"] not in self._open_paths:
            cast("dict[str, Any]", scope)["user"] = await self._service.authenticate(auth.token(headers))
        doors.refuse_upgrade(headers)


class Exchange:
    """The sending half of one request: adds the request id, and knows whether an answer has begun."""

    __slots__ = ("_send", "request_id", "started")

    def __init__(self, send: Send, request_id: str) -> None:
        self._send = send
        self.request_id = request_id
        self.started = False

    async def send(self, message: Message) -> None:
        """Pass a message on."""
        if message["type"] == "http.response.start":
            self.started = True
            message["headers"] = [*message["headers"], (b"x-request-id", self.request_id.encode())]
        await self._send(message)


def reported(exc: Exception, scope: Connection) -> PerdureError:
    """The error that goes out for `exc`; one that nobody foresaw goes to the log too, where its detail stays."""
    error = errors.translate(exc, scope)
    if type(error) is PerdureError and error is not exc:
        _log.error("request failed (%s)", scope["state"]["request_id"], exc_info=exc)
    return error
