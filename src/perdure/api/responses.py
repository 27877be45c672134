"""Responses: create, read, follow, cancel, delete."""

from typing import Any

from litestar import Request, delete, get, post
from litestar.handlers import HTTPRouteHandler
from litestar.types import ASGIApp

from perdure.api import errors, idents, lingering
from perdure.api.answers import Answer, encoded, listed, location
from perdure.api.auth import needs
from perdure.api.awaited import Awaited
from perdure.api.conditional import Conditional
from perdure.api.create_body import CreateBody
from perdure.api.idents import ident
from perdure.api.lingering import Lingering
from perdure.api.options import INCLUDABLE
from perdure.api.query import Query
from perdure.api.sse import Stream
from perdure.domain import limits
from perdure.domain.errors import InvalidRequest, NotFound
from perdure.domain.lifecycle import TERMINAL
from perdure.domain.principal import Principal, Scope
from perdure.engine.service import Listed, Service

_CURSOR_MAX = 2**63 - 1
_PATH = "/v1/responses/{response:str}"
_INCLUDE = ("include", "include[]")
_PAGE = ("limit", "after", "order")


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
            post("/v1/responses/input_tokens", operation_id="count_input_tokens", opt=write, status_code=200)(
                self.count
            ),
            get("/v1/responses", operation_id="list_responses", opt=read)(self.listed),
            get(_PATH, operation_id="get_response", opt=read)(self.read),
            get(_PATH + "/input_items", operation_id="list_input_items", opt=read)(self.input_items),
            post(_PATH + "/cancel", operation_id="cancel_response", opt=write)(self.cancel),
            delete(_PATH, operation_id="delete_response", opt=write, status_code=200)(self.delete),
        ]

    async def create(self, request: Request[Principal, Any, Any]) -> ASGIApp:
        """Accept work. What is sent back depends on `background` and `stream`."""
        Query(request)
        asked = await lingering.read(request, self._body_max_bytes, self._create_body.read)
        if isinstance(asked, Lingering):
            return asked
        principal = request.user
        accepted = await self._service.submit(principal, asked.request, asked.items)
        errors.mark_kept(request)
        name = accepted.ident
        # From here to the follower nothing is awaited that could end this request with nobody attending.
        if asked.stream:
            return Stream(self._service.follow(principal, name, -1), [location(name)])
        if not asked.request.background:
            return Awaited(self._service, principal, name)
        return Answer(accepted.response, 202, [location(name)])

    async def count(self, request: Request[Principal, Any, Any]) -> ASGIApp:
        """How long the prompt of a request would be; nothing is kept."""
        Query(request)
        asked = await lingering.read(request, self._body_max_bytes, self._create_body.read_count)
        if isinstance(asked, Lingering):
            return asked
        tokens = await self._service.input_tokens(request.user, asked.request, asked.items)
        return encoded({"object": "response.input_tokens", "input_tokens": tokens})

    async def listed(self, request: Request[Principal, Any, Any]) -> ASGIApp:
        """A page of the client's own stored responses, the newest first unless asked otherwise."""
        query = Query(request, *_PAGE)
        after = query.text("after")
        page = self._service.responses(
            request.user,
            limit=query.integer("limit", limits.RESPONSES_PAGE_DEFAULT, 1, limits.RESPONSES_PAGE_MAX),
            after=None if after is None else idents.parse(after, "response", param="after"),
            ascending=_ascending(query),
        )
        return await self._conditional(request, page, _page)

    async def input_items(self, request: Request[Principal, Any, Any]) -> ASGIApp:
        """A page of the items that a response answers, the last first unless asked otherwise."""
        query = Query(request, *_PAGE, repeated=_INCLUDE)
        query.all_of("include", INCLUDABLE)
        page = self._service.input_items(
            request.user,
            ident(request, "response"),
            limit=query.integer("limit", limits.INPUT_ITEMS_PAGE_DEFAULT, 1, limits.INPUT_ITEMS_PAGE_MAX),
            after=query.text("after"),
            ascending=_ascending(query),
        )
        return await self._conditional(request, page, _page)

    async def read(self, request: Request[Principal, Any, Any]) -> ASGIApp:
        """The response as it stands, or its events."""
        query = Query(request, "stream", "starting_after", "include_obfuscation", repeated=_INCLUDE)
        query.all_of("include", INCLUDABLE)  # they change nothing: what was asked for at the create is there
        name, principal = ident(request, "response"), request.user
        after = query.integer("starting_after", -1, 0, _CURSOR_MAX)
        padded = query.flag("include_obfuscation")
        if query.flag("stream"):
            if padded:
                raise InvalidRequest(
                    "`include_obfuscation` is not supported; the stream is the same bytes for everybody.",
                    param="include_obfuscation",
                    code="unsupported_parameter",
                )
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


def _ascending(query: Query) -> bool:
    return query.choice("order", ("asc", "desc"), "desc") == "asc"


def _page(page: Listed) -> bytes:
    names, items = [name for name, _ in page.data], [item for _, item in page.data]
    return listed(items, names, has_more=page.has_more)
