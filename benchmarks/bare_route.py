"""A helper: a bare route of the same framework, in the same kind of process as the service.

It reads the body as JSON and answers with JSON of the size that it is told. No store, no checks, no model. Litestar
with msgspec, uvicorn with httptools and uvloop, set as the service sets them.
"""

import asyncio
import os
import socket
import sys
from typing import Any

import msgspec
import uvicorn
import uvloop
from litestar import Litestar, Request, Response, post

from benchmarks.processes import say


def build(answer_bytes: int) -> Litestar:
    """The application. The answer is encoded anew for each request, as an answer would be."""
    answer = {"id": "resp_" + "0" * 32, "object": "response", "filler": ""}
    answer["filler"] = "x" * max(0, answer_bytes - len(msgspec.json.encode(answer)))

    @post("/v1/responses", status_code=202)
    async def create(request: Request[Any, Any, Any]) -> Response[bytes]:
        asked = msgspec.json.decode(await request.body())
        return Response(
            msgspec.json.encode({**answer, "object": asked["model"] and "response"}),
            headers={"location": "/v1/responses/none"},
            media_type="application/json",
        )

    return Litestar([create], openapi_config=None, logging_config=None, debug=False)


async def _serve(answer_bytes: int) -> None:
    bound = socket.socket()
    bound.bind(("127.0.0.1", 0))
    bound.listen(2048)
    config = uvicorn.Config(
        build(answer_bytes),
        http="httptools",
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
    )
    say({"port": bound.getsockname()[1], "pid": os.getpid()})
    server = uvicorn.Server(config)
    serving = asyncio.create_task(server.serve([bound]))
    await asyncio.to_thread(sys.stdin.read)  # ends when the benchmark does
    server.should_exit = True
    await serving


def main() -> None:
    """Serve until standard input ends."""
    with asyncio.Runner(loop_factory=uvloop.Loop) as runner:
        runner.run(_serve(int(sys.argv[1])))


if __name__ == "__main__":
    main()
