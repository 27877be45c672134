"""Ways to call the application: through httpx in memory, message by message, and over a real socket."""

import asyncio
import socket
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, cast

import httpx
import uvicorn
from litestar import Litestar
from tests.witness import watched

from perdure.api.app import build_app
from perdure.settings import Settings, load

from .scripted import MODEL, OWNER_TOKEN, Kept, ScriptedService

VERSION = "9.8.7"
SEED = 4711
HELLO: Mapping[str, Any] = {"model": MODEL, "input": "Say hello."}
FIRST = f"{0:026d}"
"""The name of the first response."""
TYPE, VALUE, RANGE = "invalid_type", "invalid_value", "out_of_range"
GONE, NOT_HERE = "missing_required_parameter", "unsupported_parameter"
"""Codes of errors of a value."""


class FixedNames:
    """Names that do not change."""

    def ident(self, at: int) -> str:
        return f"{at:026d}"

    def seed(self) -> int:
        return SEED

    def token(self) -> str:
        return "token"


def settings(**given: object) -> Settings:
    """Settings for a test."""
    return load({"data": "/nonexistent", **given}, environ={})


def application(service: ScriptedService | None = None, **given: object) -> Litestar:
    """The application over a script."""
    return build_app(service or ScriptedService(), settings(**given), VERSION, FixedNames())


def client(app: Litestar, who: str | None = OWNER_TOKEN) -> httpx.AsyncClient:
    """An httpx client, with the token of `who`, that calls the application in memory."""
    headers = {} if who is None else {"Authorization": f"Bearer {who}"}
    transport = httpx.ASGITransport(cast("Any", app))
    return watched(httpx.AsyncClient(transport=transport, base_url="http://localhost:8383", headers=headers))


def call(app: Litestar, method: str, path: str, *, who: str | None = OWNER_TOKEN, **more: Any) -> httpx.Response:
    """One request, start to end."""

    async def run() -> httpx.Response:
        async with client(app, who) as http:
            return await http.request(method, path, **more)

    return asyncio.run(run())


def calls(
    app: Litestar, requests: Iterable[tuple[str, str]], *, who: str | None = OWNER_TOKEN, **more: Any
) -> Iterator[tuple[str, httpx.Response]]:
    """Several requests alike, each with its label; cheaper than an application for each."""
    for method, path in requests:
        yield f"{method} {path}", call(app, method, path, who=who, **more)


def create(app: Litestar, **fields: Any) -> httpx.Response:
    """POST /v1/responses with `HELLO` and `fields`."""
    return call(app, "POST", "/v1/responses", json={**HELLO, **fields})


def error_of(answer: httpx.Response) -> dict[str, Any]:
    """The error object of an answer, after its shape was checked."""
    body = answer.json()
    assert set(body) == {"error"}
    error = body["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["message"]
    assert error["code"]
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["x-request-id"].startswith("req_")
    return error


class Wire:
    """One exchange with the application, message by message.

    `leave` makes the client go away; `take` waits for the next message. `room` bounds how many messages the client
    takes before it stops reading (None: all).
    """

    def __init__(self, app: Litestar, method: str, path: str, body: bytes = b"", query: bytes = b"") -> None:
        self._app = app
        self.sent: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._gone = asyncio.Event()
        self._body: list[bytes] = [body]
        self.room: asyncio.Semaphore | None = None
        self.scope: dict[str, Any] = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": path,
            "raw_path": path.encode(),
            "query_string": query,
            "root_path": "",
            "headers": [
                (b"host", b"localhost"),
                (b"authorization", f"Bearer {OWNER_TOKEN}".encode()),
                (b"content-type", b"application/json"),
            ],
            "client": ("127.0.0.1", 1),
            "server": ("127.0.0.1", 8383),
            "state": {},
        }

    async def run(self) -> None:
        """The application's side."""
        await cast("Any", self._app)(self.scope, self._receive, self._send)

    def leave(self) -> None:
        """Close the connection from the client's side."""
        self._gone.set()

    async def take(self) -> dict[str, Any]:
        """The next message of the application."""
        return await self.sent.get()

    def rest(self) -> list[dict[str, Any]]:
        """What has been sent and not taken."""
        return [self.sent.get_nowait() for _ in range(self.sent.qsize())]

    async def _receive(self) -> dict[str, Any]:
        if self._body:
            return {"type": "http.request", "body": self._body.pop(), "more_body": False}
        await self._gone.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Any) -> None:
        if self.room is not None:
            await self.room.acquire()
        self.sent.put_nowait(message)


def left_by_its_caller(path: str, body: bytes) -> Kept:
    """What is kept of a create whose caller leaves while nothing happens."""
    service = ScriptedService()
    service.hold = True

    async def run() -> None:
        wire = Wire(application(service), "POST", path, body)
        running = asyncio.create_task(wire.run())
        await until(lambda: FIRST in service.kept and service.kept[FIRST].attendants == 1)
        wire.leave()
        await asyncio.wait_for(running, 30)

    asyncio.run(run())
    return service.kept[FIRST]


@asynccontextmanager
async def serving(app: Litestar) -> AsyncGenerator[str]:
    """A real server on a free loopback port; yields its base URL. The socket listens before the server starts."""
    listener = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(app, log_config=None, ws="none", timeout_graceful_shutdown=1))
    running = asyncio.create_task(server.serve(sockets=[listener]))
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        await running
        listener.close()


async def until(condition: Callable[[], bool], poke: Callable[[], Awaitable[object]] | None = None) -> None:
    """Let the loop run until something holds; for states that no event announces."""
    async with asyncio.timeout(30):
        while not condition():
            await (poke() if poke else asyncio.sleep(0))
