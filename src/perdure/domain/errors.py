"""Every error that a caller can meet, each with a stable `code`.

    PerdureError
    |- InvalidRequest        the request cannot be accepted as it stands (400)
    |  |- BodyTooLarge       (413)
    |  |- UnsupportedMedia   (415)
    |- Unauthenticated       no or unknown token (401)
    |- Forbidden             the client lacks a scope, or the door is closed to this host or origin (403)
    |- NotFound              nothing of that name that this client may see (404)
    |- MethodNotAllowed      (405)
    |- NotServed             a route of OpenAI's API that a later version will have (501)
    |- QueueFull             nothing was created, try again later (429)
    |- Unavailable           the service cannot do this now (503)
    |  |- ModelUnavailable
    |  |- StorageFull
    |  |- StorageFailed
    |     |- StorageDamaged
    |- RefusedToStart        the service does not start; one line for the screen

`api/errors.py` gives each kind its status. Broken invariants are assertions and never appear here.
"""

from typing import ClassVar


class PerdureError(Exception):
    """Base of all. `message` is for people, `code` for programs, `param` names the field at fault."""

    code: ClassVar[str] = "server_error"

    def __init__(self, message: str, *, param: str | None = None, code: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.param = param
        self.error_code = code or type(self).code


class InvalidRequest(PerdureError):
    """The request cannot be accepted as it stands; the message names the remedy."""

    code = "invalid_request"


class BodyTooLarge(InvalidRequest):
    """The body is larger than the service accepts."""

    code = "body_too_large"


class UnsupportedMedia(InvalidRequest):
    """The body is not JSON by its content type."""

    code = "unsupported_media_type"


class Unauthenticated(PerdureError):
    """No token, or one that names no client."""

    code = "invalid_api_key"


class Forbidden(PerdureError):
    """The client is known and may not do this."""

    code = "missing_scope"


class NotFound(PerdureError):
    """Nothing of that name that this client may see."""

    code = "not_found"


class MethodNotAllowed(PerdureError):
    """The route exists and does not take this method."""

    code = "method_not_allowed"


class NotServed(PerdureError):
    """The route belongs to the API and is not served yet; the message says what to use instead."""

    code = "not_implemented"


class QueueFull(PerdureError):
    """As many tasks wait as the service holds; nothing was created."""

    code = "queue_full"


class Unavailable(PerdureError):
    """The service cannot do this now."""

    code = "service_unavailable"


class ModelUnavailable(Unavailable):
    """The model exists and cannot be used; the message says why."""

    code = "model_unavailable"


class StorageFull(Unavailable):
    """The disk has no room; nothing was written."""

    code = "storage_full"


class StorageFailed(Unavailable):
    """The disk or the database refused; nothing was written."""

    code = "storage_failed"


class StorageDamaged(StorageFailed):
    """The database is damaged; nothing was written. It does not end by itself."""

    code = "storage_damaged"


class RefusedToStart(PerdureError):
    """The service does not start. The message is one line that names the remedy."""

    code = "refused_to_start"
