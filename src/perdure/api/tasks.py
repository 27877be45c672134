"""The native view of the same work: tasks with their true states, and their event log in pages."""

from collections.abc import Sequence
from typing import Any

import msgspec
from litestar import Request, get, post
from litestar.handlers import HTTPRouteHandler
from litestar.types import ASGIApp

from perdure.api import idents
from perdure.api.answers import encoded, listed
from perdure.api.auth import needs
from perdure.api.conditional import Conditional
from perdure.api.idents import ident
from perdure.api.query import Query
from perdure.domain import limits
from perdure.domain.events import Event
from perdure.domain.lifecycle import Status
from perdure.domain.principal import Principal, Scope
from perdure.engine.service import Page, Service

_CURSOR_MAX = 2**63 - 1
_PATH = "/v1/tasks/{task:str}"


class Tasks:
    """The routes under `/v1/tasks`."""

    def __init__(self, service: Service, conditional: Conditional) -> None:
        self._service = service
        self._conditional = conditional

    def routes(self) -> list[HTTPRouteHandler]:
        """The handlers."""
        read, write = needs(Scope.RESPONSES_READ), needs(Scope.RESPONSES_WRITE)
        return [
            get("/v1/tasks", operation_id="list_tasks", opt=read)(self.listed),
            get(_PATH, operation_id="get_task", opt=read)(self.one),
            get(_PATH + "/events", operation_id="list_task_events", opt=read)(self.events),
            post(_PATH + "/cancel", operation_id="cancel_task", opt=write)(self.cancel),
        ]

    async def listed(self, request: Request[Principal, Any, Any]) -> ASGIApp:
        """A page of the client's own tasks, the newest first unless asked otherwise."""
        query = Query(request, "status", "limit", "after", "order")
        status = query.choice("status", tuple(Status), None)
        after = query.text("after")
        page = self._service.tasks(
            request.user,
            status=None if status is None else Status(status),
            limit=query.integer("limit", limits.TASKS_PAGE_DEFAULT, 1, limits.TASKS_PAGE_MAX),
            after=None if after is None else idents.parse(after, "task", param="after"),
            ascending=query.choice("order", ("asc", "desc"), "desc") == "asc",
        )
        return await self._conditional(request, page, _listed)

    async def one(self, request: Request[Principal, Any, Any]) -> ASGIApp:
        """A task."""
        Query(request)
        task = self._service.task(request.user, ident(request, "task"))
        return await self._conditional(request, task, msgspec.json.encode)

    async def events(self, request: Request[Principal, Any, Any]) -> ASGIApp:
        """A page of the event log: the same bytes that a stream carries."""
        query = Query(request, "after", "limit")
        after = query.integer("after", -1, -1, _CURSOR_MAX)
        limit = query.integer("limit", limits.EVENTS_PAGE_DEFAULT, 1, limits.EVENTS_PAGE_MAX)
        page = self._service.events(request.user, ident(request, "task"), after, limit)
        return await self._conditional(request, page, _events)

    async def cancel(self, request: Request[Principal, Any, Any]) -> ASGIApp:
        """Ask for the end of a task, foreground work included; a finished one stays as it is."""
        Query(request)
        name = ident(request, "task")
        await self._service.cancel(request.user, name, background_only=False)
        return encoded(await self._service.task(request.user, name))


def _listed(page: Page) -> bytes:
    tasks = [msgspec.json.encode(task) for task in page.data]
    return listed(tasks, [task.id for task in page.data], has_more=page.has_more)


def _events(page: tuple[Sequence[Event], int, bool]) -> bytes:
    events, last_seq, more = page
    data = b",".join(event.json for event in events)
    has_more = b"true" if more else b"false"
    return b'{"object":"list","data":[%s],"last_seq":%d,"has_more":%s}' % (data, last_seq, has_more)
