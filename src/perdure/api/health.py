"""Whether the process lives, and whether it can take work. Open to everybody."""

from litestar import get
from litestar.handlers import HTTPRouteHandler
from litestar.types import ASGIApp

from perdure.api.answers import Answer, encoded
from perdure.api.auth import OPEN
from perdure.engine.service import Service


class Health:
    """The routes for whoever watches over the process."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def routes(self) -> list[HTTPRouteHandler]:
        """The handlers."""
        return [
            get("/healthz", operation_id="healthz", opt=OPEN)(self.alive),
            get("/readyz", operation_id="readyz", opt=OPEN)(self.ready),
        ]

    async def alive(self) -> ASGIApp:
        """Answers while the process runs."""
        return Answer(b'{"status":"ok"}')

    async def ready(self) -> ASGIApp:
        """Answers 200 while work can be taken, otherwise 503 with the reason."""
        health = self._service.health()
        if health.ready:
            return Answer(b'{"status":"ready"}')
        return encoded({"status": "unavailable", "reason": health.reason}, 503)
