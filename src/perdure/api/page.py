"""/docs: a page to try the API, by Swagger UI, from this service alone.

Of the package that brings Swagger UI's files no Python is imported. The token that a person types in stays in the
memory of the page, and the policy that is sent with it lets the page talk to this origin only. The files are read
once and shared by all who fetch them, since this is open to strangers.
"""

import asyncio
from collections.abc import Mapping
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from litestar import Request, get
from litestar.handlers import HTTPRouteHandler
from litestar.types import ASGIApp

from perdure.api.answers import Answer, Header
from perdure.api.auth import OPEN
from perdure.api.query import Query
from perdure.domain.errors import NotFound

_PACKAGE, _FOLDER = "flask_swagger_ui", "dist"
_SCRIPT, _STYLE = "swagger-ui-bundle.js", "swagger-ui.css"

_POLICY = (
    b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self';"
    b" base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_HEADERS: tuple[Header, ...] = (
    (b"content-security-policy", _POLICY),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"referrer-policy", b"no-referrer"),
    (b"x-content-type-options", b"nosniff"),
    (b"cache-control", b"no-cache"),
)
_HTML = f"""\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<title>Perdure: try the API</title>
<link rel="icon" href="data:,">
<link rel="stylesheet" href="/docs/{_STYLE}">
</head>
<body>
<div id="page"></div>
<script src="/docs/{_SCRIPT}"></script>
<script src="/docs/start.js"></script>
</body>
</html>
"""
# Each option that could reach out, or keep something, is named, whatever its default is.
_START = """\
SwaggerUIBundle({
  url: "/openapi.json",
  dom_id: "#page",
  validatorUrl: null,
  persistAuthorization: false,
  queryConfigEnabled: false,
  withCredentials: false,
});
"""


class Page:
    """The page and its files."""

    def routes(self) -> list[HTTPRouteHandler]:
        """The handlers."""
        return [
            get("/docs", operation_id="docs", opt=OPEN, include_in_schema=False)(self.shown),
            *(
                get(f"/docs/{name}", name=name, opt=OPEN, include_in_schema=False)(self.part)
                for name in (_SCRIPT, _STYLE, "start.js")
            ),
        ]

    async def shown(self, request: Request[Any, Any, Any]) -> ASGIApp:
        """The page."""
        return await self._sent(request, "index.html")

    async def part(self, request: Request[Any, Any, Any]) -> ASGIApp:
        """A file that the page loads."""
        return await self._sent(request, request.scope["path"].rpartition("/")[2])

    async def _sent(self, request: Request[Any, Any, Any], name: str) -> ASGIApp:
        Query(request)
        found = await asyncio.to_thread(_files)
        kind = {"html": "text/html", "css": "text/css", "js": "text/javascript"}[name.rpartition(".")[2]]
        return Answer(found[name], 200, _HEADERS, f"{kind}; charset=utf-8")


@cache
def _files() -> Mapping[str, bytes]:
    """Everything that the page is made of, by name. Raises `NotFound` where Swagger UI is not installed."""
    spec = find_spec(_PACKAGE)
    folder = next((Path(each) / _FOLDER for each in (spec and spec.submodule_search_locations) or ()), None)
    if folder is None or not folder.is_dir():
        raise NotFound("The files of this page are not installed; `make setup` installs them.", code="unknown_route")
    brought = {name: (folder / name).read_bytes() for name in (_SCRIPT, _STYLE)}
    return {"index.html": _HTML.encode(), "start.js": _START.encode(), **brought}
