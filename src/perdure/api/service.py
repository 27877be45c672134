"""What the service itself has to say: its version, what there is to do, its models, and how its store stands."""

import math
from typing import Any

import msgspec
from litestar import Request, get
from litestar.handlers import HTTPRouteHandler
from litestar.types import ASGIApp

from perdure.api.answers import encoded
from perdure.api.auth import needs
from perdure.api.query import Query
from perdure.domain.principal import Scope
from perdure.engine.service import Service, Workload
from perdure.ports.runtime import Statistics
from perdure.ports.storage import Condition, WalCondition


class Wait(msgspec.Struct, frozen=True):
    """How many writes waited at most so long; null is no bound, and so counts them all."""

    seconds_max: float | None
    writes: int


class Storage(msgspec.Struct, frozen=True):
    """How the store stands; see `ports.storage.Condition`."""

    engine: str
    trouble: str | None
    reason: str | None
    commits: int
    writes: int
    writes_refused: int
    write_waits: tuple[Wait, ...]
    write_wait_seconds_sum: float
    wal: WalCondition | None


class ServiceFacts(msgspec.Struct, frozen=True):
    """The whole answer."""

    version: str
    tasks: Workload
    models: tuple[Statistics, ...]
    storage: Storage
    object: str = "service"


class ServiceRoute:
    """The route for the owner of the service."""

    def __init__(self, service: Service, version: str) -> None:
        self._service = service
        self._version = version

    def routes(self) -> list[HTTPRouteHandler]:
        """The handlers."""
        return [get("/v1/service", operation_id="get_service", opt=needs(Scope.SERVICE_READ))(self.facts)]

    async def facts(self, request: Request[Any, Any, Any]) -> ASGIApp:
        """Version, counters and condition."""
        Query(request)
        service = self._service
        workload = await service.workload()
        models, storage = tuple(service.statistics()), _storage(service.condition())
        return encoded(ServiceFacts(self._version, workload, models, storage))


def _storage(condition: Condition) -> Storage:
    """With waits whose last bound JSON can tell."""
    facts: dict[str, Any] = {name: getattr(condition, name) for name in Condition.__struct_fields__}
    facts["write_waits"] = tuple(
        Wait(None if bound == math.inf else bound, writes) for bound, writes in condition.write_waits
    )
    return Storage(**facts)
