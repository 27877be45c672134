"""Who asks, and what he may: a token for every route that is not open, and a scope for every route.

The token is asked for before routing (see `gate`), so that a stranger cannot even learn which routes there are. What
a route needs stands in its `opt`, written by `needs` or `OPEN`; `check` looks at it. It hangs on the application as
its `before_request` and not as a guard, because the framework copies the handler for each guard of each request.
"""

from collections.abc import Iterable
from typing import Any

from litestar import Litestar, Request
from litestar.routes import HTTPRoute

from perdure.api.errors import WrongMethod
from perdure.domain.errors import Forbidden, InvalidRequest, PerdureError, Unauthenticated
from perdure.domain.principal import Principal, Scope

TOKEN_MAX_CHARS = 512

OPEN: dict[str, object] = {"open": True}
"""For a route that answers without a token."""


def needs(scope: Scope) -> dict[str, object]:
    """What a route that asks for `scope` puts in its `opt`."""
    return {"scope": scope}


def token(headers: Iterable[tuple[bytes, bytes]]) -> str:
    """The bearer token of a request. Raises `Unauthenticated`."""
    given = [value for name, value in headers if name == b"authorization"]
    if not given:
        raise Unauthenticated("This route needs a token: send `Authorization: Bearer TOKEN`.")
    kind, _, secret = given[0].partition(b" ")
    text = secret.strip().decode("latin-1")
    if len(given) > 1 or kind.lower() != b"bearer" or not text.isascii() or not 0 < len(text) <= TOKEN_MAX_CHARS:
        raise Unauthenticated("The `Authorization` header is not of the form `Bearer TOKEN`.")
    return text


async def check(request: Request[Principal, Any, Any]) -> None:
    """What every request passes before its handler: the client holds the scope that the route names.

    A key for idempotency would be ignored at this stage, so it is refused: it is a promise that would not be kept.
    """
    opt = request.scope["route_handler"].opt
    if opt.get("open") and request.scope["method"] != "OPTIONS":
        return
    scope = opt.get("scope")
    if not isinstance(scope, Scope):
        raise _closed(request)
    request.user.require(scope)
    if any(name == b"idempotency-key" for name, _ in request.scope["headers"]):
        raise InvalidRequest(
            "The header `Idempotency-Key` is not supported: repeating this request would do its work twice. Leave it "
            "out, and look into GET /v1/tasks before you repeat a request.",
            param="Idempotency-Key",
            code="unsupported_parameter",
        )


def _closed(request: Request[Any, Any, Any]) -> PerdureError:
    """The error for a route that declares no scope: deny by default."""
    if request.scope["method"] == "OPTIONS":
        # The framework answers OPTIONS by itself; without CORS there is nobody to ask for it.
        return WrongMethod(_methods(request.app, request.scope["path_template"]))
    return Forbidden("This route is closed.")


def open_paths(app: Litestar) -> frozenset[str]:
    """The paths whose every method answers without a token."""
    return frozenset(
        route.path
        for route in app.routes
        if isinstance(route, HTTPRoute)
        and all(handler.opt.get("open") for handler in route.route_handlers if "OPTIONS" not in handler.http_methods)
    )


def _methods(app: Litestar, path_template: str) -> set[str]:
    return {
        method
        for route in app.routes
        if isinstance(route, HTTPRoute) and route.path_format == path_template
        for method in route.methods
    }
