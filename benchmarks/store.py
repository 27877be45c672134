"""Durable submits per second through the store, against the same rows without it.

The bare loop has the statements, the schema, the connection and the very batches of the store's run before it, with
one commit each; only what the store adds is missing: an event loop with its callers, a thread, a savepoint for each
submit, and making values out of objects. That and the disk are its limits; one commit for each call is what group
commit saves.
"""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.creates import BODY
from benchmarks.figures import Result, Row, many, ratio, spread
from benchmarks.kept import kept
from benchmarks.plan import Plan
from benchmarks.processes import Helper

LEVELS = {1: 500, 8: 2_400, 64: 9_600, 256: 12_800}
QUICK_LEVELS = {1: 300, 8: 1_200, 64: 4_800, 256: 6_400}
PER_CALL_MAX = 2_000
FORCED_WRITES = 300
BARE_AIM, PER_CALL_AIM = "≥ 0.9", "≥ 8"


@dataclass
class Level:
    """All runs with one number of callers."""

    total: int
    ours: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    bare: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    per_call: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    disk: list[float] = field(default_factory=list[float])

    @property
    def alone(self) -> int:
        """How many submits are made with a commit each."""
        return min(self.total, PER_CALL_MAX)


def held(database: Path) -> dict[str, int]:
    """How many rows each table has."""
    tables = [name for (name,) in kept(database, "SELECT name FROM sqlite_schema WHERE type = 'table'")]
    return {name: kept(database, f'SELECT count(*) FROM "{name}"')[0][0] for name in tables}  # noqa: S608 -- names of our own tables


def check(ours: dict[str, int], bare: dict[str, int], sizes: list[int], total: int) -> None:
    """Fail unless both sides kept the same, all of it, in the batches that were told."""
    if ours != bare or ours["tasks"] != total or sum(sizes) != total:
        raise AssertionError(
            f"{total} submits in batches of {sum(sizes)} in all; the store kept {ours}, the bare loop {bare}"
        )


def turn(level: Level, callers: int, path: Path, alone: Helper, bare: Helper) -> None:
    """One round of one level: store, bare loop in the same batches, one commit for each call, disk."""
    body = json.dumps(BODY)
    ours, theirs, single = (path.with_suffix(suffix) for suffix in (".ours", ".bare", ".single"))
    found = alone.ask(what="store", path=str(ours), body=body, callers=callers, total=level.total)
    sizes = found.pop("sizes")
    same = bare.ask(what="bare", path=str(theirs), body=body, sizes=sizes)
    check(held(ours), held(theirs), sizes, level.total)
    level.ours.append({**found, "commits": len(sizes)})
    level.bare.append(same)
    level.per_call.append(bare.ask(what="per_call", path=str(single), body=body, callers=callers, total=level.alone))
    if held(single)["tasks"] != level.alone:
        raise AssertionError(f"one commit for each of {level.alone} calls kept {held(single)}")
    disk = alone.ask(what="disk", path=str(path.with_suffix(".bin")), total=FORCED_WRITES, bytes=same["commit_bytes"])
    level.disk.append(FORCED_WRITES / disk["seconds"])
    for file in path.parent.glob(f"{path.name}.*"):
        file.unlink()


def measure(plan: Plan) -> Result:
    """Run the rounds."""
    levels = {callers: Level(total) for callers, total in (QUICK_LEVELS if plan.quick else LEVELS).items()}
    with Helper("store_alone") as alone, Helper("bare_store") as bare:
        for number in range(plan.rounds(2, 5)):
            for callers, level in levels.items():
                plan.note(f"store: round {number + 1}, {callers} callers")
                turn(level, callers, plan.folder / f"{number}-{callers}", alone, bare)
    return Result(_rows(levels), {str(callers): vars(level) for callers, level in levels.items()})


def _rows(levels: dict[int, Level]) -> list[Row]:
    rows: list[Row] = []
    for callers, level in levels.items():
        ours = [level.total / run["seconds"] for run in level.ours]
        what, figure = f"durable submits, {many(callers, 'caller')}", f"{spread(ours).median:,.0f}/s"
        size = spread([run["commit_bytes"] for run in level.bare]).median / 1024
        for name, theirs, aim in (
            ("bare loop, same batches", [level.total / run["seconds"] for run in level.bare], BARE_AIM),
            (
                "one commit for each call",
                [level.alone / run["seconds"] for run in level.per_call],
                PER_CALL_AIM if callers == 64 else "",
            ),
            (f"fdatasync of {size:,.0f} KiB", level.disk, ""),
        ):
            rows.append(
                Row(what, figure, f"{name}, {spread(theirs).median:,.0f}/s", ratio(ours, theirs).shown(), aim)
            )
        rows += _cost_rows(callers, level)
    return rows


def _cost_rows(callers: int, level: Level) -> list[Row]:
    """What a submit costs in processor time, and how long its caller waits."""
    ours, bare = ([run["cpu"] / level.total * 1e6 for run in runs] for runs in (level.ours, level.bare))
    rows = [
        Row(
            f"processor time of a submit, {many(callers, 'caller')}",
            f"{spread(ours).median:,.0f} µs",
            f"bare loop, {spread(bare).median:,.0f} µs",
            ratio(ours, bare).shown(),
        )
    ]
    for name, key in (("median", "p50"), ("99 of 100", "p99")):
        waits, others = ([run[key] * 1e3 for run in runs] for runs in (level.ours, level.per_call))
        rows.append(
            Row(
                f"wait of a submit, {name}, {many(callers, 'caller')}",
                f"{spread(waits).median:,.2f} ms",
                f"one commit for each call, {spread(others).median:,.2f} ms",
                ratio(waits, others).shown(),
            )
        )
    return rows
