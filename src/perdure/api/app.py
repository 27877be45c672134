"""The HTTP application, put together from lists."""

from typing import Any

from litestar import Litestar, Request, Response
from litestar.types import ControllerRouterHandler

from perdure.api import auth, errors, openapi
from perdure.api.chat_body import ChatBody
from perdure.api.chat_completions import ChatCompletions
from perdure.api.conditional import Conditional
from perdure.api.create_body import CreateBody
from perdure.api.gate import Gate, reported
from perdure.api.health import Health
from perdure.api.hosts import Hosts
from perdure.api.metrics import Metrics
from perdure.api.models import Models
from perdure.api.page import Page
from perdure.api.responses import Responses
from perdure.api.service import ServiceRoute
from perdure.api.tasks import Tasks
from perdure.engine.service import Service
from perdure.ports.ambient import Names
from perdure.settings import Settings


def build_app(service: Service, settings: Settings, version: str, names: Names) -> Litestar:
    """The application that serves `service` over HTTP. `names` draws the seed of requests that bring none."""
    create_body = CreateBody(settings.on_restart_background, settings.on_restart_foreground, names.seed)
    conditional = Conditional(service, version)
    handlers: list[ControllerRouterHandler] = [
        *Responses(service, conditional, create_body, settings.body_max_bytes).routes(),
        *ChatCompletions(service, ChatBody(create_body), settings.body_max_bytes).routes(),
        *Tasks(service, conditional).routes(),
        *Models(service, conditional).routes(),
        *ServiceRoute(service, version).routes(),
        *Metrics(service, version).routes(),
        *Health(service).routes(),
        *Page().routes(),
    ]
    app = Litestar(
        route_handlers=handlers,
        before_request=auth.check,
        exception_handlers={Exception: _rendered},
        openapi_config=openapi.config(version),
        logging_config=None,
        debug=False,
    )
    # The framework's own middleware does not see unknown routes; this does.
    app.asgi_handler = Gate(app.asgi_handler, service, Hosts(settings.host), auth.open_paths(app))
    return app


def _rendered(request: Request[Any, Any, Any], exc: Exception) -> Response[bytes]:
    """Any exception of a handler as the one error shape."""
    answer = errors.answer(reported(exc, request.scope), kept=errors.is_kept(request.scope))
    headers = {name.decode(): value.decode() for name, value in answer.headers if name != b"content-length"}
    return Response(answer.body, status_code=answer.status, headers=headers, media_type="application/json")
