"""Conditional reads: a GET of what is kept, answered with its `ETag`, or with 304 where the client has it (S6).

The rule itself is `engine.signed`; this is its form on the wire (RFC 9110, 13.1.2). The mark depends on the client,
the whole target and the build, so a tag from elsewhere matches nothing.
"""

import re
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from litestar import Request
from litestar.types import ASGIApp, Receive, Scope, Send

from perdure.api.answers import Answer, Header
from perdure.domain.principal import Principal
from perdure.engine.service import Service
from perdure.engine.signed import Ask, NotModified, Reading

T = TypeVar("T")

RENDERING = 3
"""How answers are put together from rows. To be raised with every change of it, whatever the version says: a
development version renders differently from one day to the next, and a client would be told for ever that the old
bytes still hold. `tests/unit/api/test_rendering.py` has samples."""

# The answer is one client's own, and whoever keeps it asks before he shows it again.
CACHE_CONTROL: Header = (b"cache-control", b"private, no-cache")

_TAG = re.compile(rb'(?:W/)?"([\x21\x23-\x7e\x80-\xff]*)"')


class Conditional:
    """Answers conditional reads of `service`. `build` names the program: another may render the same otherwise."""

    def __init__(self, service: Service, build: str) -> None:
        self._service = service
        self._build = f"{build} rendering {RENDERING}"

    async def __call__(
        self, request: Request[Principal, Any, Any], reading: Reading[T], encode: Callable[[T], bytes]
    ) -> ASGIApp:
        """The answer to one request; `encode` makes the body."""
        scope = request.scope
        anything, known = matches(scope["headers"])
        target = f"{scope['path']}?{scope['query_string'].decode('latin-1')}"
        ask = Ask(request.user.client_id, target, self._build, known)
        answer = await self._service.signed(reading, ask)
        if isinstance(answer, NotModified):
            return Unchanged(answer.mark)
        if anything and answer.mark is not None:
            return Unchanged(answer.mark)
        tags = [] if answer.mark is None else [_etag(answer.mark)]
        return Answer(encode(answer.value), 200, [*tags, CACHE_CONTROL])


class Unchanged:
    """304: what the client has under this mark still holds. It has no body, so nothing tells of one."""

    __slots__ = ("headers",)

    def __init__(self, mark: str) -> None:
        self.headers: list[Header] = [_etag(mark), CACHE_CONTROL]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002 -- ASGI's signature
        """Send it."""
        await send({"type": "http.response.start", "status": 304, "headers": self.headers})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


def matches(headers: Iterable[Header]) -> tuple[bool, frozenset[str]]:
    """What `If-None-Match` names: anything that there is (`*`), or the tags. Several lines are one list.

    What is no list of tags names nothing: a client that cannot say what it has gets the whole answer. Weak tags count
    as strong ones, as the header demands; ours are never weak.
    """
    lines = [value for name, value in headers if name == b"if-none-match"]
    if not lines:
        return False, frozenset()
    listed = b",".join(lines).strip(b" \t")
    if listed == b"*":
        return True, frozenset()
    if _TAG.sub(b"", listed).strip(b", \t"):
        return False, frozenset()
    return False, frozenset(tag.decode("latin-1") for tag in _TAG.findall(listed))


def _etag(mark: str) -> Header:
    return (b"etag", b'"%s"' % mark.encode())
