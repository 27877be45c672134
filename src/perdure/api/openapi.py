"""/openapi.json: the routes as the framework knows them, completed by hand.

Handlers answer with ready bytes, so no annotation tells what is in them: parameters, bodies and answers are declared
here, one entry an operation, and the objects come from the types that are encoded. A test compares both with what is
really served.
"""

from collections.abc import Mapping
from typing import Any

import msgspec
from litestar import Request, Router
from litestar.enums import MediaType
from litestar.openapi.config import OpenAPIConfig
from litestar.openapi.plugins import JsonRenderPlugin
from litestar.openapi.spec import Components, SecurityScheme

from perdure.api import schemas
from perdure.api.auth import OPEN
from perdure.api.operations import OPERATIONS


class Document(JsonRenderPlugin):
    """Serves the document, rendered once, and nothing else of what the framework would add."""

    def __init__(self) -> None:
        super().__init__(path="/openapi.json", media_type=MediaType.JSON)
        self._rendered: bytes | None = None

    def receive_router(self, router: Router) -> None:
        """Drop the framework's HTML pages."""
        router.routes[:] = [route for route in router.routes if route.path == "/openapi.json"]

    def render(self, request: Request[Any, Any, Any], openapi_schema: dict[str, Any]) -> bytes:  # noqa: ARG002 -- the framework gives it
        """The document as JSON."""
        if self._rendered is None:
            self._rendered = msgspec.json.encode(completed(openapi_schema))
        return self._rendered


def config(version: str) -> OpenAPIConfig:
    """What the framework needs to know."""
    return OpenAPIConfig(
        title="Perdure",
        version=version,
        description="The OpenAI Responses API for local models; accepted work survives kill -9 and power cuts.",
        components=Components(security_schemes={"bearer": SecurityScheme(type="http", scheme="bearer")}),
        render_plugins=[Document()],
        openapi_router=Router("/", route_handlers=[], include_in_schema=False, opt=OPEN),
    )


def completed(document: dict[str, Any]) -> dict[str, Any]:
    """The framework's document with every operation and every object filled in."""
    paths = {path: _completed_path(methods) for path, methods in document["paths"].items()}
    components = {**document["components"], "schemas": schemas.components()}
    return {**document, "paths": paths, "components": components, "security": [{"bearer": []}]}


def _completed_path(methods: Mapping[str, Any]) -> dict[str, Any]:
    return {method: _completed_operation(operation) for method, operation in methods.items()}


def _completed_operation(operation: Mapping[str, Any]) -> dict[str, Any]:
    by_hand = OPERATIONS[operation["operationId"]]
    in_path = [each for each in operation.get("parameters", []) if each["in"] == "path"]
    parameters = [*in_path, *by_hand.get("parameters", [])]
    return {
        "operationId": operation["operationId"],
        **by_hand,
        **({"parameters": parameters} if parameters else {}),
    }
