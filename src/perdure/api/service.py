"""What the service itself has to say: its version and the counters of its models."""

from typing import Any

from litestar import Request, get
from litestar.handlers import HTTPRouteHandler
from litestar.types import ASGIApp

from perdure.api.answers import encoded
from perdure.api.auth import needs
from perdure.api.query import Query
from perdure.domain.principal import Scope
from perdure.engine.service import Service


class ServiceFacts:
    """The route for the owner of the service."""

    def __init__(self, service: Service, version: str) -> None:
        self._service = service
        self._version = version

    def routes(self) -> list[HTTPRouteHandler]:
        """The handlers."""
        return [get("/v1/service", operation_id="get_service", opt=needs(Scope.SERVICE_READ))(self.facts)]

    async def facts(self, request: Request[Any, Any, Any]) -> ASGIApp:
        """Version and counters."""
        Query(request)
        return encoded({"object": "service", "version": self._version, "models": self._service.statistics()})
