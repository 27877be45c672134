"""Memory of the service process: idle after the start, and over thousands of finished responses.

The tiny model draws a few tokens for each, in the background; after every step of the way the queue is let run dry
and the process is looked at. RSS counts pages shared with other processes as well, USS only its own.
"""

import time
from pathlib import Path
from typing import Any

import psutil
from tests.system.server import Server, until

from benchmarks.create_client import NUMBER
from benchmarks.creates import http_request
from benchmarks.figures import Result, Row, slope
from benchmarks.kept import kept
from benchmarks.plan import Plan
from benchmarks.processes import Helper
from perdure.domain.lifecycle import UNFINISHED
from perdure.testing.tiny_gguf import write_tiny_model

STEPS = 10
STEP_RESPONSES, QUICK_STEP_RESPONSES = 1_000, 200
TOKENS = 4
MEGABYTE = 1024 * 1024
DRY_SECONDS_MAX = 300.0
SETTLED_AFTER_STEPS = 2
"""The slope is taken from here on: pools and caches with a bound fill once."""


def look(process: psutil.Process, finished: int) -> dict[str, float]:
    """What the process holds now."""
    full = process.memory_full_info()
    return {"finished": finished, "rss_mb": full.rss / MEGABYTE, "uss_mb": full.uss / MEGABYTE}


def run_dry(server: Server) -> None:
    """Wait until nothing is unfinished."""

    def dry() -> bool | None:
        left = any(server.get(f"/v1/tasks?status={status}&limit=1")["data"] for status in sorted(UNFINISHED))
        return None if left else True

    until(dry, "the queue to run dry", DRY_SECONDS_MAX)


def finished(database: Path) -> dict[str, int]:
    """How many responses there are in each state. The service has ended."""
    return {str(status): count for status, count in kept(database, "SELECT status, count(*) FROM tasks GROUP BY 1")}


def measure(plan: Plan) -> Result:
    """One run."""
    model = plan.folder / "tiny.gguf"
    write_tiny_model(model)
    step = QUICK_STEP_RESPONSES if plan.quick else STEP_RESPONSES
    folder = plan.folder / "served"
    looks: list[dict[str, float]] = []
    with Server(folder, model, slots=16, window_tokens=512, queue_max_tasks=10_000) as server:
        server.start()
        assert server.process is not None
        server.http.get("/readyz")
        process = psutil.Process(server.process.pid)
        looks.append(look(process, 0))
        began = time.monotonic()
        with Helper("create_client") as client:
            for number in range(1, STEPS + 1):
                _send(server, client, step)
                run_dry(server)
                looks.append(look(process, number * step))
                plan.note(f"memory: {number * step} finished, RSS {looks[-1]['rss_mb']:.1f} MB")
        seconds = time.monotonic() - began
        server.terminate()
    states = finished(folder / "perdure.db")
    if sum(states.values()) != STEPS * step or not states.keys() <= {"completed", "incomplete"}:
        raise AssertionError(f"{STEPS * step} responses should have finished; there are {states}")
    return Result(_rows(looks, step), {"looks": looks, "states": states, "rate": STEPS * step / seconds})


def _send(server: Server, client: Helper, count: int) -> None:
    host = server.url.removeprefix("http://")
    body: dict[str, Any] = {"model": server.model_name, "input": f"Say {NUMBER}.", "background": True}
    request = http_request(host, server.token, body | {"max_output_tokens": TOKENS})
    answer = client.ask(host="127.0.0.1", port=int(host.split(":")[1]), request=request, connections=16, total=count)
    if answer["statuses"] != {"202": count}:
        raise AssertionError(f"the service answered {answer['statuses']}")


def _rows(looks: list[dict[str, float]], step: int) -> list[Row]:
    first, last = looks[0], looks[-1]
    total = int(last["finished"])
    rows: list[Row] = []
    for name, key in (("RSS", "rss_mb"), ("USS", "uss_mb")):
        aim = "≤ 120 MB" if key == "rss_mb" else ""
        what = f"memory of the service process, {name}"
        rows.append(Row(f"{what}, idle", f"{first[key]:.1f} MB", aim=aim))
        rows.append(Row(f"{what}, after {total:,} responses", f"{last[key]:.1f} MB", aim=aim))
        points = [(each["finished"] / 1_000, each[key]) for each in looks[1 + SETTLED_AFTER_STEPS :]]
        what = f"growth of {name}, from {(1 + SETTLED_AFTER_STEPS) * step:,} to {total:,} responses"
        rows.append(Row(what, f"{slope(points):+.2f} MB per 1,000", aim="flat"))
    return rows
