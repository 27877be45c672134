"""Errors on the wire: one table from kind to status, and one shape for all of them.

The body is `{"error": {"message", "type", "param", "code"}}`. A kind that the table does not hold takes the line of
its nearest ancestor; what is no `PerdureError` at all is a fault of this program: 500, its detail in the log only.
"""

from collections.abc import Iterable, Mapping

import msgspec
from litestar.exceptions import HTTPException

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
    kinds.Unavailable: (503, _SERVER),
}

RETRY_AFTER_UNAVAILABLE_SECONDS = 5

_HEADERS: Mapping[int, tuple[Header, ...]] = {
    401: ((b"www-authenticate", b"Bearer"),),
    413: ((b"connection", b"close"),),  # what is left of the body is not read
    429: ((b"retry-after", b"%d" % limits.RETRY_AFTER_QUEUE_FULL_SECONDS),),
    503: ((b"retry-after", b"%d" % RETRY_AFTER_UNAVAILABLE_SECONDS),),
}


class WrongMethod(kinds.MethodNotAllowed):
    """A method that the route does not take, with those that it does."""

    def __init__(self, allowed: Iterable[str]) -> None:
        self.allowed = ", ".join(sorted(method for method in allowed if method != "OPTIONS"))
        super().__init__(f"This route takes {self.allowed}.")


class LeftRunning(kinds.Unavailable):
    """The service stops while a caller waits for a response that it has accepted and keeps."""


def status_and_type(error: PerdureError) -> tuple[int, str]:
    """The status, and the `type` of the body."""
    return next(TABLE[kind] for kind in type(error).__mro__ if kind in TABLE)


def body(error: PerdureError) -> bytes:
    """The error object."""
    _, kind = status_and_type(error)
    fields = {"message": error.message, "type": kind, "param": error.param, "code": error.error_code}
    return msgspec.json.encode({"error": fields})


def answer(error: PerdureError) -> Answer:
    """The whole answer."""
    status, _ = status_and_type(error)
    return Answer(body(error), status, _headers(error, status))


def _headers(error: PerdureError, status: int) -> tuple[Header, ...]:
    if isinstance(error, WrongMethod):
        return ((b"allow", error.allowed.encode()),)
    if isinstance(error, LeftRunning):
        # The official clients repeat a 503 by themselves, and a repeated create would be a second response.
        return ((b"x-should-retry", b"false"),)
    if isinstance(error, kinds.StorageDamaged):
        return ((b"x-should-retry", b"false"),)  # it stays so until somebody has brought a backup back
    return _HEADERS.get(status, ())


def translate(exc: Exception) -> PerdureError:
    """The error that stands for any exception on the wire."""
    if isinstance(exc, PerdureError):
        return exc
    status = exc.status_code if isinstance(exc, HTTPException) else 500
    if status == 404:
        return kinds.NotFound("There is no such route here; /openapi.json lists the routes.", code="unknown_route")
    if status == 405:
        return WrongMethod(_allowed(exc))
    if 400 <= status < 500:
        return kinds.InvalidRequest("The request is malformed.")
    return PerdureError("The service made a mistake; its log has the details under this request id.")


def _allowed(exc: Exception) -> list[str]:
    """The methods that the framework names in its own 405."""
    headers = (exc.headers if isinstance(exc, HTTPException) else None) or {}
    return headers.get("allow", "").split(", ")
