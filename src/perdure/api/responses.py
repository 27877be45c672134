"""Responses: create, read, follow, cancel, delete."""

from typing import Any

from litestar import Request, delete, get, post
from litestar.handlers import HTTPRouteHandler
from litestar.types import ASGIApp

from perdure.api import errors, json_body
from perdure.api.answers import Answer, encoded, location
from perdure.api.auth import needs
from perdure.api.awaited import Awaited
from perdure.api.conditional import Conditional
from perdure.api.create_body import CreateBody
from perdure.api.idents import ident
from perdure.api.lingering import Lingering
from perdure.api.query import Query
from perdure.api.sse import Stream
from perdure.domain.errors import BodyTooLarge, InvalidRequest, NotFound
from perdure.domain.lifecycle import TERMINAL
from perdure.domain.principal import Principal, Scope
from perdure.engine.service import Service

_CURSOR_MAX = 2**63 - 1
_PATH = "/v1/responses/{response:str}"


class Responses:
    """The routes under `/v1/responses`."""

    def __init__(
        self, service: Service, conditional: Conditional, create_body: CreateBody, body_max_bytes: int
    ) -> None:
        self._service = service
        self._conditional = conditional
        self._create_body = create_body
        self._body_max_bytes = body_max_bytes

    def routes(self) -> list[HTTPRouteHandler]:
        """The handlers."""
        read, write = needs(Scope.RESPONSES_READ), needs(Scope.RESPONSES_WRITE)
        return [
            post("/v1/responses", operation_id="create_response", opt=write)(self.create),
            get(_PATH, operation_id="get_response", opt=read)(self.read),
            post(_PATH + "/cancel", operation_id="cancel_response", opt=write)(self.cancel),
            delete(_PATH, operation_id="delete_response", opt=write, status_code=200)(self.delete),
        ]

    async def create(self, request: Request[Principal, Any, Any]) -> ASGIApp:
        """Accept work. What is sent back depends on `background` and `stream`."""
        Query(request)
        try:
            asked = await json_body.read(
                request.scope["headers"], request.receive, self._body_max_bytes, self._create_body.read
            )
        except BodyTooLarge as error:
            return Lingering(errors.answer(error), 4 * self._body_max_bytes)
        principal = request.user
        accepted = await self._service.submit(principal, asked.request, asked.items)
        name = accepted.ident
        # From here to the follower nothing is awaited that could end this request with nobody attending.
        if asked.stream:
            return Stream(self._service.follow(principal, name, -1), [location(name)])
        if not asked.request.background:
            return Awaited(self._service, principal, name)
        return Answer(accepted.response, 202, [location(name)])

    async def read(self, request: Request[Principal, Any, Any]) -> ASGIApp:
        """The response as it stands, or its events."""
        query = Query(request, "stream", "starting_after", "include", "include[]", "include_obfuscation")
        _refuse_extras(query)
        name, principal = ident(request, "response"), request.user
        after = query.integer("starting_after", -1, 0, _CURSOR_MAX)
        if query.flag("stream"):
            return self._events(principal, name, after)
        if after >= 0:
            raise InvalidRequest(
                "`starting_after` needs `stream=true`.", param="starting_after", code="invalid_value"
            )
        return await self._conditional(request, self._service.response(principal, name), bytes)

    async def cancel(self, request: Request[Principal, Any, Any]) -> ASGIApp:
        """Ask for the end of a background response; a finished one stays as it is."""
        Query(request)
        name = ident(request, "response")
        await self._service.cancel(request.user, name, background_only=True)
        return Answer(await self._service.response(request.user, name))

    async def delete(self, request: Request[Principal, Any, Any]) -> ASGIApp:
        """Remove a response, finished or not."""
        Query(request)
        name = ident(request, "response")
        await self._service.delete(request.user, name)
        return encoded({"id": f"resp_{name}", "object": "response", "deleted": True})

    def _events(self, principal: Principal, name: str, after: int) -> Stream:
        async def exhausted() -> bool:
            try:
                task = await self._service.task(principal, name)
                later, _, _ = await self._service.events(principal, name, after, 1)
            except NotFound:
                return False  # deleted meanwhile: who comes back with his cursor is told so
            return task.status in TERMINAL and not later

        return Stream(self._service.follow(principal, name, after), exhausted=exhausted)


def _refuse_extras(query: Query) -> None:
    for name in ("include", "include[]"):
        if query.text(name) is not None:
            raise InvalidRequest(f"`{name}` is not supported yet.", param=name, code="unsupported_parameter")
    if query.flag("include_obfuscation"):
        raise InvalidRequest(
            "`include_obfuscation` is not supported; only false is accepted.",
            param="include_obfuscation",
            code="unsupported_parameter",
        )
