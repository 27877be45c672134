"""Durable creates per second over HTTP.

Creates and nothing else are measured: the service's one slot is taken by a task whose engine child is stopped in its
tracks, so that what is created waits in the queue and no token is drawn. Each run gets an empty data folder, since a
queue that has grown for minutes is not what a caller meets.
"""

import json
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
from tests.system.server import Server, freeze

from benchmarks.create_client import NUMBER
from benchmarks.figures import Result, Row, many, ratio, spread
from benchmarks.kept import kept
from benchmarks.plan import Plan
from benchmarks.processes import Helper, cpu_seconds
from perdure.testing.tiny_gguf import write_tiny_model

MODEL = "tiny"
BODY = {
    "model": MODEL,
    "input": f"Write story {NUMBER} about a lighthouse keeper who finds a message in a bottle.",
    "background": True,
    "max_output_tokens": 64,
    "temperature": 0.7,
    "metadata": {"job": "benchmark"},
}
LEVELS = {1: 400, 8: 1_600, 64: 3_200}
QUICK_LEVELS = {1: 150, 8: 600, 64: 1_600}
WARM_UP = 100
FORCED_WRITES = 300


@dataclass
class Run:
    """One run of the load generator."""

    seconds: float
    total: int
    service_cpu: float
    children_cpu: float = 0.0
    client: dict[str, Any] = field(default_factory=dict[str, Any])

    @property
    def rate(self) -> float:
        """Creates per second."""
        return self.total / self.seconds


def http_request(host: str, token: str, body: dict[str, Any]) -> str:
    """The bytes of a create, as a client with a kept connection sends them."""
    sent = json.dumps(body)
    return (
        f"POST /v1/responses HTTP/1.1\r\nhost: {host}\r\nauthorization: Bearer {token}\r\n"
        f"content-type: application/json\r\ncontent-length: {len(sent)}\r\n\r\n{sent}"
    )


@contextmanager
def busy_service(folder: Path, model: Path) -> Generator[tuple[Server, str]]:
    """A service whose only slot is taken for ever, and the ident of the task that has it."""
    with Server(folder, model, slots=1, queue_max_tasks=1_000_000) as server:
        server.start()
        taken = server.create(max_output_tokens=1_500)["id"]
        server.reaches(taken, "running")
        freeze(server.engine_child())
        yield server, taken


def service_run(folder: Path, model: Path, client: Helper, connections: int, total: int) -> Run:
    """Creates against the service; every one has been answered with 202 and is in the database afterwards."""
    with busy_service(folder, model) as (server, taken):
        assert server.process is not None
        host = server.url.removeprefix("http://")
        request = http_request(host, server.token, BODY)
        where = {"host": "127.0.0.1", "port": int(host.split(":")[1]), "request": request}
        warm = client.ask(**where, connections=connections, total=WARM_UP)
        service = psutil.Process(server.process.pid)
        tokenizer = [child for child in server.children() if any("tokenizer" in part for part in child.cmdline())]
        before, before_children = cpu_seconds(service), sum(map(cpu_seconds, tokenizer))
        found = client.ask(**where, connections=connections, total=total)
        run = Run(found["seconds"], total, cpu_seconds(service) - before, client=found)
        run.children_cpu = sum(map(cpu_seconds, tokenizer)) - before_children
        answered = {taken.removeprefix("resp_"), *warm["names"], *found.pop("names")}
    check(folder / "perdure.db", answered, found["statuses"], 1 + WARM_UP + total)
    return run


def check(database: Path, answered: set[str], statuses: dict[str, int], expected: int) -> None:
    """Fail unless what was answered is what is kept. The service was killed, so this is what is durable."""
    durable = {ident for (ident,) in kept(database, "SELECT ident FROM tasks")}
    if set(statuses) != {"202"} or len(answered) != expected or answered != durable:
        raise AssertionError(f"{expected} sent, {len(answered)} answered, {len(durable)} kept, statuses {statuses}")


def bare_run(bare: Helper, client: Helper, connections: int, total: int) -> Run:
    """The same requests against the bare route."""
    port, pid = bare.hello["port"], bare.hello["pid"]
    request = http_request(f"127.0.0.1:{port}", "none", BODY)
    where = {"host": "127.0.0.1", "port": port, "request": request, "connections": connections}
    client.ask(**where, total=WARM_UP)
    before = cpu_seconds(pid)
    found = client.ask(**where, total=total)
    if set(found["statuses"]) != {"202"}:
        raise AssertionError(f"the bare route answered {found['statuses']}")
    found.pop("names")
    return Run(found["seconds"], total, cpu_seconds(pid) - before, client=found)


@dataclass
class Level:
    """All runs at one number of connections."""

    ours: list[Run] = field(default_factory=list[Run])
    bare: list[Run] = field(default_factory=list[Run])
    store: list[Run] = field(default_factory=list[Run])
    disk: list[float] = field(default_factory=list[float])


def measure(plan: Plan) -> Result:
    """Run the rounds: service, bare route, store, disk, and again."""
    model = plan.folder / f"{MODEL}.gguf"
    write_tiny_model(model)
    counts = QUICK_LEVELS if plan.quick else LEVELS
    levels = {connections: Level() for connections in counts}
    with Helper("create_client") as client, Helper("store_alone") as alone:
        probe = service_run(plan.folder / "probe", model, client, 1, 20)
        with Helper("bare_route", str(probe.client["bytes"])) as bare:
            for number in range(plan.rounds(3, 5)):
                for connections, total in counts.items():
                    plan.note(f"creates: round {number + 1}, {connections} connections")
                    name = f"{number}-{connections}"
                    level = levels[connections]
                    level.ours.append(service_run(plan.folder / name, model, client, connections, total))
                    level.bare.append(bare_run(bare, client, connections, total))
                    level.store.append(_store_run(plan.folder / f"{name}.db", alone, connections, total))
                    level.disk.append(_disk_run(plan.folder / f"{name}.bin", alone))
    return Result(_rows(levels), _raw(levels))


def _store_run(path: Path, alone: Helper, callers: int, total: int) -> Run:
    found = alone.ask(what="store", path=str(path), body=json.dumps(BODY), callers=callers, total=total)
    return Run(found["seconds"], total, found["cpu"])


def _disk_run(path: Path, alone: Helper) -> float:
    return FORCED_WRITES / alone.ask(what="disk", path=str(path), total=FORCED_WRITES)["seconds"]


def _rows(levels: dict[int, Level]) -> list[Row]:
    rows: list[Row] = []
    for connections, level in levels.items():
        ours = [run.rate for run in level.ours]
        what = f"durable creates over HTTP, {many(connections, 'connection')}"
        figure = f"{spread(ours).median:,.0f}/s"
        for name, theirs, aim in (
            ("bare route", [run.rate for run in level.bare], "≥ 0.6" if connections == 64 else ""),
            ("store alone", [run.rate for run in level.store], ""),
            ("fdatasync of 24 KiB", level.disk, ""),
        ):
            against = f"{name}, {spread(theirs).median:,.0f}/s"
            rows.append(Row(what, figure, against, ratio(ours, theirs).shown(), aim))
        rows += _cpu_rows(connections, level)
    return rows


def _cpu_rows(connections: int, level: Level) -> list[Row]:
    """Steadier than rates where the machine is shared."""
    bare = [run.service_cpu / run.total * 1e6 for run in level.bare]
    rows: list[Row] = []
    for whose, ours in (
        ("service process", [run.service_cpu / run.total * 1e6 for run in level.ours]),
        ("with the tokenizer's", [(run.service_cpu + run.children_cpu) / run.total * 1e6 for run in level.ours]),
    ):
        rows.append(
            Row(
                f"processor time of a create, {whose}, {many(connections, 'connection')}",
                f"{spread(ours).median:,.0f} µs",
                f"bare route, {spread(bare).median:,.0f} µs",
                ratio(ours, bare).shown(),
            )
        )
    return rows


def _raw(levels: dict[int, Level]) -> dict[str, Any]:
    def of(run: Run) -> dict[str, Any]:
        service, children = (used / run.total * 1e6 for used in (run.service_cpu, run.children_cpu))
        return {"rate": run.rate, "service_cpu_us": service, "children_cpu_us": children, **run.client}

    return {
        str(connections): {
            "service": [of(run) for run in level.ours],
            "bare": [of(run) for run in level.bare],
            "store": [of(run) for run in level.store],
            "fdatasync_rate": level.disk,
        }
        for connections, level in levels.items()
    }
