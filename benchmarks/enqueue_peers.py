"""Durable enqueueing, against DBOS and huey, which keep their queues in SQLite too.

Ours once without HTTP, as the peers have none, and once as a client calls it. Each side keeps what it keeps by
itself: we a request, the token ids of its prompt and its first events; a peer the arguments of a call. The peers live
in an environment of their own, `.peers`, which `make bench` sets up.
"""

import json
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.creates import BODY, service_run
from benchmarks.figures import Result, Row, many, ratio, spread
from benchmarks.plan import Plan
from benchmarks.processes import Helper
from perdure.testing.tiny_gguf import write_tiny_model

PYTHON = Path(__file__).parent.parent / ".peers" / "bin" / "python"
PEERS = ("dbos", "huey")
LEVELS = {
    1: {"store": 500, "http": 300, "dbos": 200, "huey": 800},
    64: {"store": 4_800, "http": 1_600, "dbos": 400, "huey": 1_600},
}
OFF, NORMAL, FULL, EXTRA = range(4)
"""What `PRAGMA synchronous` answers."""


@dataclass
class Level:
    """All runs with one number of callers."""

    runs: dict[str, list[dict[str, Any]]] = field(
        default_factory=lambda: {name: [] for name in ("store", "http", *PEERS)}
    )

    def rates(self, name: str) -> list[float]:
        """Tasks per second, round by round."""
        return [run["total"] / run["seconds"] for run in self.runs[name]]


def check(name: str, found: dict[str, Any], total: int) -> None:
    """Fail unless a peer has kept everything."""
    if found["kept"] != total:
        raise AssertionError(f"{name} was given {total} tasks and has {found['kept']}")


def durability(found: dict[str, Any]) -> str:
    """How a peer's database stands, in words. In a rollback journal nothing below FULL is durable, in a write-ahead
    log nothing below FULL either; FULL is what ours has."""
    names = {OFF: "OFF", NORMAL: "NORMAL", FULL: "FULL", EXTRA: "EXTRA"}
    said = f"journal {str(found['journal_mode']).upper()}, synchronous {names[found['synchronous']]}"
    return said if found["synchronous"] >= FULL else f"{said}, **not durable**"


def turn(
    level: Level, callers: int, totals: dict[str, int], folder: Path, model: Path, helpers: dict[str, Helper]
) -> None:
    """One round of one level."""
    folder.mkdir()
    store = helpers["store"].ask(
        what="store", path=str(folder / "store.db"), body=json.dumps(BODY), callers=callers, total=totals["store"]
    )
    store.pop("sizes")
    level.runs["store"].append({**store, "total": totals["store"]})
    for name in PEERS:
        path = folder / f"{name}.db"
        found = helpers[name].ask(path=str(path), body=BODY, callers=callers, total=totals[name])
        check(name, found, totals[name])
        level.runs[name].append({**found, "total": totals[name]})
    served = service_run(folder / "served", model, helpers["client"], callers, totals["http"])
    found = {
        "seconds": served.seconds,
        "cpu": served.service_cpu,
        "p50": served.client["p50"],
        "p99": served.client["p99"],
    }
    level.runs["http"].append({**found, "total": totals["http"]})


def measure(plan: Plan) -> Result:
    """Run the rounds: store, peers, service, and again."""
    if not PYTHON.exists():
        raise RuntimeError(f"{PYTHON} is not there; `make bench ONLY=enqueue_peers` sets it up")
    model = plan.folder / "tiny.gguf"
    write_tiny_model(model)
    levels = {callers: Level() for callers in LEVELS}
    with ExitStack() as stack:
        helpers = {name: stack.enter_context(Helper("peer_queues", name, python=str(PYTHON))) for name in PEERS}
        helpers["store"] = stack.enter_context(Helper("store_alone"))
        helpers["client"] = stack.enter_context(Helper("create_client"))
        for number in range(plan.rounds(2, 5)):
            for callers, totals in LEVELS.items():
                plan.note(f"enqueue_peers: round {number + 1}, {callers} callers")
                turn(levels[callers], callers, totals, plan.folder / f"{number}-{callers}", model, helpers)
        versions = {name: helpers[name].hello["version"] for name in PEERS}
    return Result(
        _rows(levels, versions), {"versions": versions, **{str(key): level.runs for key, level in levels.items()}}
    )


def _rows(levels: dict[int, Level], versions: dict[str, str]) -> list[Row]:
    rows: list[Row] = []
    for callers, level in levels.items():
        for ours, said in (("store", "without HTTP"), ("http", "over HTTP")):
            rates, waits = level.rates(ours), [run["p99"] * 1e3 for run in level.runs[ours]]
            figure = f"{spread(rates).median:,.0f}/s, 99 of 100 within {spread(waits).median:,.1f} ms"
            rows += [
                Row(
                    f"durable enqueueing {said}, {many(callers, 'caller')}",
                    figure,
                    _said(name, versions[name], level),
                    ratio(rates, level.rates(name)).shown(),
                )
                for name in PEERS
            ]
    return rows


def _said(name: str, version: str, level: Level) -> str:
    """A peer's side of a row."""
    runs = level.runs[name]
    rate, wait = spread(level.rates(name)).median, spread([run["p99"] * 1e3 for run in runs]).median
    return f"{name} {version} ({durability(runs[0])}), {rate:,.0f}/s, 99 of 100 within {wait:,.1f} ms"
