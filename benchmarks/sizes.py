"""What single operations cost in a large database, against the same in a small one.

Both are open in one process and are asked in turn. The writes go one after the other, as one caller makes them.
"""

from dataclasses import dataclass, field

from benchmarks.figures import Result, Row, ratio, spread
from benchmarks.plan import Plan
from benchmarks.processes import Helper

SMALL_TASKS, LARGE_TASKS = 1_000, 100_000
OPERATIONS = {
    "submit": "a submit",
    "append": "an event added to a running text",
    "claim": "a claim",
    "newest": "a list of 100 tasks, the newest",
    "middle": "a list of 100 tasks, anywhere",
    "events": "the events of a task",
    "version": "the version",
}
WRITES = ("submit", "append", "claim")
WRITE_COUNT, READ_COUNT = 100, 300
AIM = "≤ 1.3"


@dataclass
class Side:
    """One database, and what was measured of it, by operation."""

    tasks: int
    events: int = 0
    bytes: int = 0
    runs: dict[str, list[dict[str, float]]] = field(default_factory=lambda: {what: [] for what in OPERATIONS})


def measure(plan: Plan) -> Result:
    """Compare 1e5 tasks with 1e3; a tenth of it where it has to be quick."""
    return compare(plan, LARGE_TASKS // 10 if plan.quick else LARGE_TASKS)


def compare(plan: Plan, large_tasks: int) -> Result:
    """Run the rounds: each operation on both, in an order that changes from round to round."""
    sides = {name: Side(tasks) for name, tasks in (("small", SMALL_TASKS), ("large", large_tasks))}
    with Helper("sized") as helper:
        for name, side in sides.items():
            plan.note(f"sizes: {side.tasks:,} tasks are made")
            path = plan.folder / f"{name}.db"
            side.events = helper.ask(what="open", path=str(path), tasks=side.tasks)["events"]
            side.bytes = path.stat().st_size
        for number in range(plan.rounds(4, 11)):  # the first is not counted: what was just made is not yet read
            plan.note(f"sizes: round {number}")
            for what in OPERATIONS:
                count = WRITE_COUNT if what in WRITES else READ_COUNT
                for name in sorted(sides, reverse=bool(number % 2)):
                    found = helper.ask(what=what, path=str(plan.folder / f"{name}.db"), count=count)
                    if number:
                        sides[name].runs[what].append(found)
    return Result(_rows(sides["small"], sides["large"]), {name: vars(side) for name, side in sides.items()})


def _rows(small: Side, large: Side) -> list[Row]:
    rows = [
        Row(
            "size of the database",
            f"{large.tasks:,} tasks, {large.events:,} events, {large.bytes / 1e6:,.0f} MB",
            f"{small.tasks:,} tasks, {small.events:,} events, {small.bytes / 1e6:,.1f} MB",
        )
    ]
    for what, said in OPERATIONS.items():
        for name, key in (("wait, median", "p50"), ("processor time", "cpu")):
            ours, theirs = ([run[key] * 1e6 for run in side.runs[what]] for side in (large, small))
            rows.append(
                Row(
                    f"{said}, {name}",
                    f"{spread(ours).median:,.0f} µs",
                    f"{spread(theirs).median:,.0f} µs",
                    ratio(ours, theirs).shown(),
                    AIM,
                )
            )
    return rows
