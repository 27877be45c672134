"""Answers as ready bytes: what a handler returns when everything about the answer is already known."""

from collections.abc import Iterable, Sequence

import msgspec
from litestar.types import Receive, Scope, Send

Header = tuple[bytes, bytes]

JSON = "application/json"


class Answer:
    """An ASGI application that sends one body, JSON unless it says otherwise."""

    __slots__ = ("body", "headers", "status")

    def __init__(
        self, body: bytes, status: int = 200, headers: Iterable[Header] = (), media_type: str = JSON
    ) -> None:
        self.body = body
        self.status = status
        self.headers: list[Header] = [
            (b"content-type", media_type.encode()),
            (b"content-length", b"%d" % len(body)),
            *headers,
        ]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002 -- ASGI's signature
        """Send it."""
        await send({"type": "http.response.start", "status": self.status, "headers": self.headers})
        await send({"type": "http.response.body", "body": self.body, "more_body": False})


def encoded(value: object, status: int = 200) -> Answer:
    """An answer whose body is the JSON of `value`."""
    return Answer(msgspec.json.encode(value), status)


def listed(data: Sequence[bytes], names: Sequence[str], *, has_more: bool) -> bytes:
    """A page of a list: objects as JSON, and their outside names."""
    ends = msgspec.json.encode({"first_id": names[0] if names else None, "last_id": names[-1] if names else None})
    more = b"true" if has_more else b"false"
    return b'{"object":"list","data":[%s],%s,"has_more":%s}' % (b",".join(data), ends[1:-1], more)


def location(ident: str) -> Header:
    """Where the response of that ident is read."""
    return (b"location", b"/v1/responses/resp_%s" % ident.encode())
