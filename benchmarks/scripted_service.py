"""A helper: the service's own store, engine and routes, with scripted answers in place of a model.

Set as the service sets them; only what draws tokens is missing. `scripted_service FOLDER SLOTS`. A prompt that begins
with `HELD` waits after its first word until so many readers follow it as it names: `held 100 2000` is a text of 2,000
tokens for 100 readers.
"""

import asyncio
import hashlib
import os
import re
import socket
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import uvicorn
import uvloop
from litestar.types import ASGIApp, Receive, Scope, Send

from benchmarks.processes import say
from perdure import settings
from perdure.ambient.clock import SystemClock
from perdure.ambient.names import RandomNames
from perdure.api.app import build_app
from perdure.bootstrap import SWITCH_SECONDS
from perdure.domain.model import Encoded, Prompt
from perdure.domain.principal import ALL_SCOPES
from perdure.engine.engine import Engine
from perdure.storage.sqlite.store import SqliteStore
from perdure.testing.scripted_runtime import Script, ScriptedRuntime

TOKEN = "benchmark"  # noqa: S105 -- of a service that lives for seconds, on loopback
HELD = re.compile(r"held (\d+) (\d+)")
WORDS = 6
"""Tokens of an answer that is not held, the end mark among them."""


class Runtime(ScriptedRuntime):
    """Remembers nothing of what was asked, and knows the held texts."""

    def __init__(self, slots: int) -> None:
        super().__init__(slots=slots)
        self.waiting: list[tuple[int, asyncio.Event]] = []

    async def encode(self, model: str, prompt: Prompt) -> Encoded:
        """The token ids of the conversation."""
        found = HELD.match(prompt.messages[0].content)
        if found:
            gate = asyncio.Event()
            self.waiting.append((int(found[1]), gate))
            self.play(prompt.messages[0].content, Script(length=int(found[2]), gates={1: gate}))
        encoded = await super().encode(model, prompt)
        self.prompts.clear()
        self.jobs.clear()
        return encoded


class Counted:
    """Counts the streams that are open, and opens the gates of texts that have their readers."""

    def __init__(self, app: ASGIApp, runtime: Runtime) -> None:
        self._app = app
        self._runtime = runtime
        self._open = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on."""
        streams = b"stream=true" in scope.get("query_string", b"")
        self._open += streams
        for readers, gate in self._runtime.waiting:
            if self._open >= readers:
                gate.set()
        try:
            await self._app(scope, receive, send)
        finally:
            self._open -= streams


def config(app: Any) -> uvicorn.Config:
    """As the service has it."""
    return uvicorn.Config(
        app,
        http="httptools",
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
    )


async def serve(app: Any, bound: socket.socket) -> None:
    """Serve until standard input ends."""
    say({"port": bound.getsockname()[1], "pid": os.getpid()})
    server = uvicorn.Server(config(app))
    serving = asyncio.create_task(server.serve([bound]))
    await asyncio.to_thread(sys.stdin.read)  # ends when the benchmark does
    server.should_exit = True
    await serving


def listening() -> socket.socket:
    """A free port."""
    bound = socket.socket()
    bound.bind(("127.0.0.1", 0))
    bound.listen(2048)
    return bound


async def _run(folder: Path, slots: int) -> None:
    clock, names, runtime = SystemClock(), RandomNames(), Runtime(slots)
    store = await SqliteStore.open(folder / "perdure.db", clock=clock)
    await store.add_client("owner", hashlib.sha256(TOKEN.encode()).digest(), "bench", ALL_SCOPES, clock.now())
    engine = Engine(
        store,
        runtime,
        clock,
        names,
        _fault,
        boot=names.ident(clock.now()),
        queue_max=1_000_000,
        crashes_max=3,
        retention_seconds=None,
    )
    await engine.start()
    app = build_app(engine, settings.load({"data": str(folder)}, {}), "benchmark", names)
    await serve(Counted(app, runtime), listening())
    engine.drain()
    await engine.finish()
    await store.close()


def _fault(doing: str, error: BaseException) -> None:
    sys.stderr.write(f"{doing}: {error!r}\n")


def main(arguments: Sequence[str]) -> None:
    """Serve until standard input ends."""
    sys.setswitchinterval(SWITCH_SECONDS)
    with asyncio.Runner(loop_factory=uvloop.Loop) as runner:
        runner.run(_run(Path(arguments[0]), int(arguments[1])))


if __name__ == "__main__":
    main(sys.argv[1:])
