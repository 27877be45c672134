"""Starting on a log of 64 MiB that a kill has left, against the same database whose log was moved.

The store alone, and a whole `perdure serve` until it says that it listens. Every start gets a copy of its own.
"""

import shutil
import time
from dataclasses import dataclass, field
from pathlib import Path

import psutil
from tests.system.server import Server

from benchmarks.figures import Result, Row, ratio, spread
from benchmarks.kept import kept
from benchmarks.plan import Plan
from benchmarks.processes import Helper, cpu_seconds
from perdure.storage.sqlite.connection import LOG_SIZE_MAX_BYTES
from perdure.testing.tiny_gguf import write_tiny_model

NAME = "perdure.db"


@dataclass
class Case:
    """A database to start on, and what was measured of it."""

    folder: Path
    log_bytes: int
    runs: dict[str, list[dict[str, float]]] = field(default_factory=lambda: {"store": [], "serve": []})


def log_of(folder: Path) -> Path:
    """The log beside the database."""
    return folder / f"{NAME}-wal"


def prepare(folder: Path) -> tuple[Case, Case, int]:
    """The two databases, with the same tasks, and how many."""
    long, empty = folder / "long", folder / "empty"
    long.mkdir()
    with Helper("opening") as doomed:
        tasks = doomed.ask(what="leave", path=str(long / NAME), bytes=LOG_SIZE_MAX_BYTES)["tasks"]
        doomed.process.kill()
        doomed.process.wait()
    copied(long, empty)
    if kept(empty / NAME, "SELECT count(*) FROM tasks WHERE finished_at IS NOT NULL") != [(tasks,)]:
        raise AssertionError(f"not all of {tasks} tasks are in the log")
    log_bytes = log_of(long).stat().st_size
    if log_bytes < LOG_SIZE_MAX_BYTES or log_of(empty).exists():
        raise AssertionError(f"the log is {log_bytes} bytes long, and the moved one is {log_of(empty).exists()}")
    return Case(long, log_bytes), Case(empty, 0), tasks


def copied(source: Path, target: Path) -> Path:
    """A copy of the database and its log. Its index stays behind, as if the machine had started anew."""
    target.mkdir(mode=0o700)
    for file in (source / NAME, log_of(source)):
        if file.exists():
            shutil.copyfile(file, target / file.name)
            (target / file.name).chmod(0o600)
    return target


def store_run(case: Case, folder: Path, helper: Helper) -> dict[str, float]:
    """Open the store."""
    return helper.ask(what="open", path=str(copied(case.folder, folder) / NAME))


def serve_run(case: Case, folder: Path, model: Path) -> dict[str, float]:
    """Start the service."""
    with Server(copied(case.folder, folder), model) as server:
        began = time.perf_counter()
        server.start()
        seconds = time.perf_counter() - began
        assert server.process is not None
        found = {"seconds": seconds, "cpu": cpu_seconds(psutil.Process(server.process.pid))}
        assert len(server.get("/v1/tasks?limit=1")["data"]) <= 1  # it answers
        return found


def measure(plan: Plan) -> Result:
    """Run the rounds: each case, in an order that changes from round to round."""
    model = plan.folder / "tiny.gguf"
    write_tiny_model(model)
    long, empty, tasks = prepare(plan.folder)
    with Helper("opening") as helper:
        for number in range(plan.rounds(4, 11)):  # the first is not counted: everything is read from the disk
            plan.note(f"start_up: round {number}")
            for case in (long, empty) if number % 2 else (empty, long):
                made = [plan.folder / f"{number}-{case.folder.name}-{what}" for what in case.runs]
                found = store_run(case, made[0], helper), serve_run(case, made[1], model)
                for runs, run, folder in zip(case.runs.values(), found, made, strict=True):
                    shutil.rmtree(folder)
                    if number:
                        runs.append(run)
    raw = {case.folder.name: {"log_bytes": case.log_bytes, **case.runs} for case in (long, empty)}
    return Result(_rows(long, empty, tasks), {"tasks": tasks, **raw})


def _rows(long: Case, empty: Case, tasks: int) -> list[Row]:
    rows: list[Row] = []
    for what, said in (("store", "opening the store"), ("serve", "`perdure serve`, until it listens")):
        for name, key in (("", "seconds"), (", processor time", "cpu")):
            ours, theirs = ([run[key] * 1e3 for run in case.runs[what]] for case in (long, empty))
            rows.append(
                Row(
                    f"{said}{name}, log of {long.log_bytes / 1024**2:.0f} MiB ({tasks:,} tasks)",
                    f"{spread(ours).median:,.0f} ms",
                    f"empty log, {spread(theirs).median:,.0f} ms",
                    ratio(ours, theirs).shown(),
                )
            )
    return rows
