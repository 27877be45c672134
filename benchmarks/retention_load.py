"""Submits while retention purges, against submits while it does not.

The loop that purges is the engine's own, with its batches and its pauses. There is always more that is due.
"""

from typing import Any

from benchmarks.figures import Result, Row, ratio, spread
from benchmarks.plan import Plan
from benchmarks.processes import Helper

CALLERS = 64
TOTAL, QUICK_TOTAL = 12_800, 6_400
DUE_TASKS, QUICK_DUE_TASKS = 20_000, 10_000
AIM = "≤ 1.5"


def check(run: dict[str, Any], total: int, *, purging: bool) -> None:
    """Fail unless everything was kept, and purged by the side that should."""
    if run["total"] != total or (run["purged"] > 0) is not purging:
        raise AssertionError(f"{total} submits, purging {purging}: {run}")


def measure(plan: Plan) -> Result:
    """Run the rounds: with and without, in an order that changes from round to round."""
    total, due = (QUICK_TOTAL, QUICK_DUE_TASKS) if plan.quick else (TOTAL, DUE_TASKS)
    runs: dict[bool, list[dict[str, Any]]] = {False: [], True: []}
    with Helper("retained") as helper:
        plan.note(f"retention_load: {due:,} tasks are made that are due")
        helper.ask(path=str(plan.folder / "retained.db"), tasks=due)
        for number in range(plan.rounds(4, 10)):  # the first is not counted: what was just made is not yet read
            plan.note(f"retention_load: round {number}")
            for purging in (False, True) if number % 2 else (True, False):
                found = helper.ask(callers=CALLERS, total=total, purging=purging)
                check(found, total, purging=purging)
                if number:
                    runs[purging].append(found)
    return Result(_rows(runs), {"with": runs[True], "without": runs[False]})


def _rows(runs: dict[bool, list[dict[str, Any]]]) -> list[Row]:
    rows: list[Row] = []
    for name, key, aim in (("99 of 100", "p99", AIM), ("median", "p50", "")):
        ours, theirs = ([run[key] * 1e3 for run in runs[side]] for side in (True, False))
        rows.append(
            Row(
                f"wait of a submit, {name}, {CALLERS} callers, while retention purges",
                f"{spread(ours).median:,.1f} ms",
                f"without, {spread(theirs).median:,.1f} ms",
                ratio(ours, theirs).shown(),
                aim,
            )
        )
    ours, theirs = ([run["total"] / run["seconds"] for run in runs[side]] for side in (True, False))
    rows.append(
        Row(
            f"durable submits, {CALLERS} callers, while retention purges",
            f"{spread(ours).median:,.0f}/s",
            f"without, {spread(theirs).median:,.0f}/s",
            ratio(ours, theirs).shown(),
        )
    )
    purged = [run["purged"] / run["seconds"] for run in runs[True]]
    rows.append(Row("tasks of ten events purged meanwhile", f"{spread(purged).shown(0)} /s"))
    return rows
