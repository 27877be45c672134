"""`python -m benchmarks`: run benchmarks, print their tables, keep the raw figures in build/bench."""

import argparse
import importlib
import json
import os
import platform
import shutil
import signal
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.figures import Result, table
from benchmarks.plan import Plan

ROOT = Path(__file__).parent.parent
OUT = ROOT / "build" / "bench"
PAGE = ROOT / "docs" / "explanation" / "performance.md"
BEGIN, END = "<!-- figures of %s: begin -->", "<!-- figures of %s: end -->"
NAMES = (
    "generation",
    "chat",
    "creates",
    "foreground",
    "readers",
    "seen",
    "memory",
    "store",
    "sizes",
    "start_up",
    "retention_load",
    "conditional",
    "enqueue_peers",
)
BY_HAND = ("sizes_by_hand",)
"""Those that run only when they are named."""


def conditions(*, quick: bool) -> str:
    """Where and when figures are taken, for whoever reads them."""
    kind = "Quick" if quick else "Full"
    return (
        f"{kind} run on {datetime.now(UTC):%Y-%m-%d}: {os.cpu_count()} cores ({platform.machine()}), Python "
        f"{platform.python_version()}, load {os.getloadavg()[0]:.1f} before it."
    )


def run(name: str, *, quick: bool, size: int) -> str:
    """One benchmark in a data folder of its own, on the disk of this checkout; what it found, for a page."""
    OUT.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix=f"{name}-", dir=OUT))
    about, began = conditions(quick=quick), time.monotonic()
    try:
        result: Result = importlib.import_module(f"benchmarks.{name}").measure(Plan(folder, quick, size))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    about += f" It took {time.monotonic() - began:.0f} s."
    text = f"{about}\n\n{table(result.rows)}\n"
    (OUT / f"{name}.json").write_text(json.dumps({"conditions": about, **result.raw}, indent=1) + "\n")
    (OUT / f"{name}.md").write_text(text)
    return text


def write_page(name: str, text: str) -> None:
    """Put the figures of one benchmark between its marks on the page; the others stay as they are."""
    page = PAGE.read_text()
    head, rest = page.split(BEGIN % name)
    tail = rest.split(END % name)[1]
    PAGE.write_text(f"{head}{BEGIN % name}\n\n{text}\n{END % name}{tail}")


def main() -> None:
    """Parse, run, print."""
    parser = argparse.ArgumentParser(prog="benchmarks", description=__doc__)
    parser.add_argument("--only", default=",".join(NAMES), help=f"which, with commas: {', '.join(NAMES + BY_HAND)}")
    parser.add_argument("--quick", action="store_true", help="fewer rounds: a minute each, rougher figures")
    parser.add_argument("--write", action="store_true", help=f"put the tables into {PAGE.relative_to(ROOT)}")
    parser.add_argument("--size", type=float, default=1e6, help="how many tasks `sizes_by_hand` makes")
    chosen = parser.parse_args()
    names = [name for name in chosen.only.split(",") if name]
    if unknown := set(names) - set(NAMES + BY_HAND):
        parser.error(f"there is no benchmark {', '.join(sorted(unknown))}")
    signal.signal(signal.SIGTERM, lambda number, _frame: sys.exit(128 + number))  # the services must go as well
    for name in names:
        text = run(name, quick=chosen.quick, size=int(chosen.size))
        print(f"## {name}\n\n{text}", flush=True)
        if chosen.write:
            write_page(name, text)


if __name__ == "__main__":
    main()
