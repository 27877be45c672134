"""`perdure serve`."""

import asyncio
import os
import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

from perdure import bootstrap, settings
from perdure.ambient import log


def serve(
    data: Annotated[
        Path | None,
        typer.Option(help="Folder for the database and the owner's token (default: the user's data folder)."),
    ] = None,
    host: Annotated[str | None, typer.Option(help="Address to listen on (default 127.0.0.1).")] = None,
    port: Annotated[int | None, typer.Option(help="Port to listen on (default 8383; 0: any free one).")] = None,
    model: Annotated[Path | None, typer.Option(help="A GGUF file to serve in place of the bundled model.")] = None,
) -> None:
    """Serve the Responses API until Ctrl-C or SIGTERM.

    Every option can also be given in the environment, as can settings that have no option: PERDURE_PORT=8390.
    They are listed in docs/reference/settings.md.
    """
    chosen = settings.load({"data": data and str(data), "host": host, "port": port, "model": model and str(model)})
    log.configure(chosen.log_level)
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        code = runner.run(bootstrap.serve(chosen, _announce))
    sys.exit(code)


def _announce(started: bootstrap.Started) -> None:
    token_file = shlex.quote(str(started.token_file))
    lines = [
        f"Perdure listens on {started.url} (process {os.getpid()})",
        f"The owner's token is in {started.token_file}",
        "Try:",
        f'  curl -N {started.url}/v1/responses -H "Authorization: Bearer $(cat {token_file})" \\',
        "    -H 'Content-Type: application/json' \\",
        f"""    -d '{{"model": "{started.model}", "input": "Why is the sky blue?", "stream": true}}'""",
        "Ctrl-C stops it; unfinished background work goes on at the next start.",
    ]
    if started.left_over:
        count = "1 response was" if started.left_over == 1 else f"{started.left_over} responses were"
        lines.insert(2, f"{count} left unfinished by the last run; each goes on or ends as its on_restart says.")
    print("\n".join(lines), flush=True)


def _loop_factory() -> "type[asyncio.AbstractEventLoop] | None":
    if sys.platform == "win32":
        return None
    import uvloop  # not to be had on every platform

    return uvloop.Loop
