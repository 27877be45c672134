"""Errors on the wire: one table from kind to status, and one shape for all of them.

The body is `{"error": {"message", "type", "param", "code"}}`. A kind that the table does not hold takes the line of
its nearest ancestor; what is no `PerdureError` at all is a fault of this program: 500, its detail in the log only.

The official clients repeat 408, 409, 429 and every 5xx by themselves, a create too, unless they are told otherwise.
So each error says whether to: it carries either `Retry-After` or `x-should-retry: false`. The first stands only where
nothing was created, and where waiting can help.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
from litestar import Request
from litestar.exceptions import HTTPException
from litestar.types import Scope

from perdure.api import doors
from perdure.api.answers import Answer, Header
from perdure.domain import errors as kinds
from perdure.domain import limits
from perdure.domain.errors import PerdureError

_INVALID, _SERVER = "invalid_request_error", "server_error"

TABLE: Mapping[type[PerdureError], tuple[int, str]] = {
    kinds.PerdureError: (500, _SERVER),
    kinds.InvalidRequest: (400, _INVALID),
    kinds.BodyTooLarge: (413, _INVALID),
    kinds.UnsupportedMedia: (415, _INVALID),
    kinds.Unauthenticated: (401, "authentication_error"),
    kinds.Forbidden: (403, "permission_error"),
    kinds.NotFound: (404, "not_found_error"),
    kinds.MethodNotAllowed: (405, _INVALID),
    kinds.QueueFull: (429, "rate_limit_error"),
    kinds.NotServed: (501, _INVALID),
    kinds.Unavailable: (503, _SERVER),
}

RETRY_AFTER_UNAVAILABLE_SECONDS = 5

_KEPT = "kept"
_NO_ROUTE = (
    "There is no such route here; /openapi.json lists the routes, and /docs shows them. Those of the API begin with "
    "/v1, so a client's base URL ends in /v1."
)
_NO_RETRY: Header = (b"x-should-retry", b"false")
_RETRY_AFTER: Mapping[int, int] = {
    429: limits.RETRY_AFTER_QUEUE_FULL_SECONDS,
    503: RETRY_AFTER_UNAVAILABLE_SECONDS,
}
_HEADERS: Mapping[int, tuple[Header, ...]] = {
    401: ((b"www-authenticate", b"Bearer"),),
    413: ((b"connection", b"close"),),  # what is left of the body is not read
    501: ((b"connection", b"close"),),  # what a client sends after a handshake is no request
}


class WrongMethod(kinds.MethodNotAllowed):
    """A method that the route does not take, with those that it does."""

    def __init__(self, allowed: Iterable[str]) -> None:
        self.allowed = ", ".join(sorted(method for method in allowed if method != "OPTIONS"))
        super().__init__(f"This route takes {self.allowed}.")


class LeftRunning(kinds.Unavailable):
    """The service stops while a caller waits for the response `ident`, which it has accepted and keeps."""

    def __init__(self, ident: str) -> None:
        super().__init__(
            f"The service is stopping. The response resp_{ident} is kept: read it from this service later;"
            " what becomes of it at the next start is what its `on_restart` says."
        )


_NO_WAIT_HELPS = (LeftRunning, kinds.StorageDamaged)  # kept already; so until somebody has brought a backup back


def status_and_type(error: PerdureError) -> tuple[int, str]:
    """The status, and the `type` of the body."""
    return next(TABLE[kind] for kind in type(error).__mro__ if kind in TABLE)


def body(error: PerdureError) -> bytes:
    """The error object."""
    _, kind = status_and_type(error)
    fields = {"message": error.message, "type": kind, "param": error.param, "code": error.error_code}
    return msgspec.json.encode({"error": fields})


def answer(error: PerdureError, *, kept: bool = False) -> Answer:
    """The whole answer. `kept`: the request had been accepted, so that repeating it would make a second response."""
    status, _ = status_and_type(error)
    return Answer(body(error), status, [_retry(error, status, kept=kept), *_headers(error, status)])


def mark_kept(request: Request[Any, Any, Any]) -> None:
    """Say that the work of a request has been accepted: no error from now on may make the client repeat it."""
    request.scope["state"][_KEPT] = True


def is_kept(scope: Scope) -> bool:
    """Whether the work of a request has been accepted."""
    return _KEPT in scope["state"]


def _retry(error: PerdureError, status: int, *, kept: bool) -> Header:
    seconds = _RETRY_AFTER.get(status)
    if seconds is None or kept or isinstance(error, _NO_WAIT_HELPS):
        return _NO_RETRY
    return (b"retry-after", b"%d" % seconds)


def _headers(error: PerdureError, status: int) -> tuple[Header, ...]:
    if isinstance(error, WrongMethod):
        return ((b"allow", error.allowed.encode()),)
    return _HEADERS.get(status, ())


def translate(exc: Exception, scope: Scope) -> PerdureError:
    """The error that stands on the wire for any exception of a request."""
    if isinstance(exc, PerdureError):
        return exc
    status = exc.status_code if isinstance(exc, HTTPException) else 500
    if status in (404, 405) and (later := doors.later(scope)):
        return later
    if status == 404:
        return kinds.NotFound(_NO_ROUTE, code="unknown_route")
    if status == 405:
        return WrongMethod(_allowed(exc))
    if 400 <= status < 500:
        return kinds.InvalidRequest("The request is malformed.")
    return PerdureError("The service made a mistake; its log has the details under this request id.")


def _allowed(exc: Exception) -> list[str]:
    """The methods that the framework names in its own 405."""
    headers = (exc.headers if isinstance(exc, HTTPException) else None) or {}
    return headers.get("allow", "").split(", ")
