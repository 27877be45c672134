"""Foreground creates over HTTP: what the durable road adds to a request, where no model takes any time.

The service's own store, engine and routes answer from a script of a few words; each answer is a task that has been
kept, claimed, drawn, written and read before it is sent. Against a bare route of the same framework that keeps
nothing.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.create_client import NUMBER
from benchmarks.creates import http_request
from benchmarks.figures import Result, Row, many, ratio, spread
from benchmarks.kept import kept
from benchmarks.plan import Plan
from benchmarks.processes import Helper, cpu_seconds
from benchmarks.scripted_service import TOKEN, WORDS
from perdure.testing.scripted_runtime import MODEL

BODY = {"model": MODEL, "input": f"Say something about {NUMBER}.", "temperature": 0.7}
LEVELS = {1: 400, 8: 1_600, 64: 3_200}
SLOTS = 64
QUICK_SHARE = 4
WARM_UP = 100


@dataclass
class Level:
    """All runs at one number of connections."""

    ours: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    bare: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])


def run(server: Helper, client: Helper, connections: int, total: int, status: str) -> dict[str, Any]:
    """So many requests, each of which was answered as it has to be."""
    port, pid = server.hello["port"], server.hello["pid"]
    where = {"host": "127.0.0.1", "port": port, "request": http_request(f"127.0.0.1:{port}", TOKEN, BODY)}
    client.ask(**where, connections=connections, total=WARM_UP)
    before = cpu_seconds(pid)
    found = client.ask(**where, connections=connections, total=total)
    if found["statuses"] != {status: total}:
        raise AssertionError(f"{total} answers with {status} were due: {found['statuses']}")
    del found["names"]
    return {**found, "rate": total / found["seconds"], "cpu": (cpu_seconds(pid) - before) / total}


def check(database: Path, answered: int) -> None:
    """Fail unless each answer stands for a task that is kept and complete."""
    ends = kept(database, "SELECT status, tokens_kept, count(*) FROM tasks GROUP BY 1, 2")
    if ends != [("completed", WORDS, answered)]:
        raise AssertionError(f"{answered} complete tasks were due: {ends}")


def measure(plan: Plan) -> Result:
    """Run the rounds: service, bare route, and again."""
    counts = {each: total // (QUICK_SHARE if plan.quick else 1) for each, total in LEVELS.items()}
    levels = {connections: Level() for connections in counts}
    answered = 0
    folder = plan.folder / "foreground"
    folder.mkdir(mode=0o700)
    with Helper("create_client") as client, Helper("scripted_service", str(folder), str(SLOTS)) as service:
        length = str(run(service, client, 1, 1, "200")["bytes"])
        answered += WARM_UP + 1
        with Helper("bare_route", length) as bare:
            for number in range(plan.rounds(3, 7)):
                for connections, total in counts.items():
                    plan.note(f"foreground: round {number + 1}, {connections} connections")
                    levels[connections].ours.append(run(service, client, connections, total, "200"))
                    levels[connections].bare.append(run(bare, client, connections, total, "202"))
                    answered += WARM_UP + total
    check(folder / "perdure.db", answered)
    return Result(
        [row for connections, level in levels.items() for row in _rows(connections, level)],
        {str(connections): vars(level) for connections, level in levels.items()},
    )


def _rows(connections: int, level: Level) -> list[Row]:
    def of(runs: list[dict[str, Any]], name: str, factor: float = 1.0) -> list[float]:
        return [each[name] * factor for each in runs]

    rows: list[Row] = []
    for what, name, factor, digits, unit in (
        ("foreground creates per second", "rate", 1.0, 0, "/s"),
        ("time to the whole answer, median", "p50", 1e3, 2, " ms"),
        ("time to the whole answer, 99 of 100", "p99", 1e3, 2, " ms"),
        ("processor time of a create", "cpu", 1e6, 0, " µs"),
    ):
        ours, bare = of(level.ours, name, factor), of(level.bare, name, factor)
        figure, against = (f"{spread(each).median:,.{digits}f}{unit}" for each in (ours, bare))
        where = many(connections, "connection")
        rows.append(Row(f"{what}, {where}", figure, f"bare route, {against}", ratio(ours, bare).shown()))
    return rows
