"""What the service knows of itself in numbers, for Prometheus."""

from typing import Any

from litestar import Request, get
from litestar.handlers import HTTPRouteHandler
from litestar.types import ASGIApp

from perdure.api.answers import Answer
from perdure.api.auth import needs
from perdure.api.query import Query
from perdure.domain.principal import Scope
from perdure.engine.service import Service


class Metrics:
    """The route for whoever keeps the numbers."""

    def __init__(self, service: Service, version: str) -> None:
        self._service = service
        self._version = version

    def routes(self) -> list[HTTPRouteHandler]:
        """The handlers."""
        return [get("/metrics", operation_id="get_metrics", opt=needs(Scope.SERVICE_READ))(self.read)]

    async def read(self, request: Request[Any, Any, Any]) -> ASGIApp:
        """All numbers as they are now."""
        from perdure.api.exposition import MEDIA_TYPE, Seen, exposed  # few ask, and it loads a library

        Query(request)
        seen = Seen(
            version=self._version,
            ready=self._service.health().ready,
            workload=await self._service.workload(),
            models=self._service.statistics(),
            condition=self._service.condition(),
        )
        return Answer(exposed(seen), media_type=MEDIA_TYPE)
