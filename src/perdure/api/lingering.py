"""The answer to a body that is too large, in a form that arrives.

A client sends its whole body before it reads. If the connection were closed at once, what it still sends would be
answered with a reset, and the reset can overtake the error. So the rest is read and thrown away for a moment, within
bounds, and only then is the connection closed.
"""

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

from litestar import Request
from litestar.types import Receive, Scope, Send

from perdure.api import errors, json_body
from perdure.api.answers import Answer
from perdure.domain.errors import BodyTooLarge

LINGER_SECONDS = 2.0
T = TypeVar("T")


class Lingering:
    """Sends `answer`, then reads at most `max_bytes` more."""

    __slots__ = ("_answer", "_max_bytes")

    def __init__(self, answer: Answer, max_bytes: int) -> None:
        self._answer = answer
        self._max_bytes = max_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002 -- ASGI's signature
        """Send and linger."""
        await send({"type": "http.response.start", "status": self._answer.status, "headers": self._answer.headers})
        await send({"type": "http.response.body", "body": self._answer.body, "more_body": True})
        try:
            async with asyncio.timeout(LINGER_SECONDS):
                await self._drop(receive)
        except TimeoutError:
            pass
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _drop(self, receive: Receive) -> None:
        dropped = 0
        while dropped < self._max_bytes:
            message = await receive()
            if message["type"] != "http.request" or not message.get("more_body", False):
                return
            dropped += len(message.get("body", b""))


async def read(
    request: Request[Any, Any, Any], max_bytes: int, understand: Callable[[dict[str, Any]], T]
) -> T | Lingering:
    """What `understand` makes of the body (`json_body.read`), or the answer to a body that is too large."""
    try:
        return await json_body.read(request.scope["headers"], request.receive, max_bytes, understand)
    except BodyTooLarge as error:
        return Lingering(errors.answer(error), 4 * max_bytes)
