"""A helper: a bare route of the same framework that streams frames which are ready, to so many readers at once.

`bare_stream FILE READERS`: the file holds the frames; all but the first are sent once so many readers have come. Each
frame is one write, as the service makes it. No store, no checks, nothing that a reader could come back to.
"""

import asyncio
import sys
from pathlib import Path

import uvloop
from litestar import Litestar, get
from litestar.types import ASGIApp, Receive, Scope, Send

from benchmarks.scripted_service import listening, serve
from perdure.api.sse import HEADERS


class Broadcast:
    """The same frames for everybody."""

    def __init__(self, frames: list[bytes], readers: int) -> None:
        self._frames = frames
        self._readers = readers
        self._open = 0
        self._gate = asyncio.Event()

    async def __call__(self, _scope: Scope, _receive: Receive, send: Send) -> None:
        """Answer one reader."""
        self._open += 1
        if self._open >= self._readers:
            self._gate.set()
        await send({"type": "http.response.start", "status": 200, "headers": list(HEADERS)})
        await send({"type": "http.response.body", "body": self._frames[0], "more_body": True})
        await self._gate.wait()
        for frame in self._frames[1:]:
            await send({"type": "http.response.body", "body": frame, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})
        self._open -= 1
        if not self._open:
            self._gate.clear()


async def _run(frames: list[bytes], readers: int) -> None:
    broadcast = Broadcast(frames, readers)

    @get("/v1/responses/{response:str}")
    async def read(response: str) -> ASGIApp:  # noqa: ARG001 -- the path's
        return broadcast

    app = Litestar([read], openapi_config=None, logging_config=None, debug=False)
    await serve(app, listening())


def main() -> None:
    """Serve until standard input ends."""
    frames = [frame + b"\n\n" for frame in Path(sys.argv[1]).read_bytes().split(b"\n\n") if frame]
    with asyncio.Runner(loop_factory=uvloop.Loop) as runner:
        runner.run(_run(frames, int(sys.argv[2])))


if __name__ == "__main__":
    main()
