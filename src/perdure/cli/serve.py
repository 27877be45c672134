"""`perdure serve`."""

import asyncio
import os
import shlex
import sys
from collections.abc import Mapping

from perdure import bootstrap, settings
from perdure.ambient import log
from perdure.cli.program import program


def serve(given: Mapping[str, object]) -> int:
    """Serve until the wish to stop; returns the exit code. Options that are None were not given."""
    chosen = settings.load(given, strict=True)
    log.configure(chosen.log_level)
    # The HTTP framework loads pydantic wherever it is installed, as beside the official client: 0.25 s of every start
    # for types that are not used here. A module that is None counts as not installed.
    sys.modules.setdefault("pydantic", None)  # pyright: ignore[reportArgumentType] -- the documented way
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        return runner.run(bootstrap.serve(chosen, _announce))


def _announce(started: bootstrap.Started) -> None:
    token_file = shlex.quote(str(started.token_file))
    folder = started.token_file.parent
    data = "" if folder == settings.load({}, {}).folder else f" --data {shlex.quote(str(folder))}"
    lines = [
        f"Perdure listens on {started.url} (process {os.getpid()})",
        f"The owner's token is in {started.token_file}",
        "Try in another terminal:",
        f'  {program()} ask "Why is the sky blue?"{data}',
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
