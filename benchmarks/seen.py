"""From a token drawn to its event at a client, in units of one commit.

Between the two lie a pipe, a commit and a socket; the commit is the part that the disk sets. `stamps/sitecustomize`
notes in the child when each token was drawn, the client when each event arrived, and the database tells afterwards
which tokens an event was made of. A commit alone is one word added to a running text by the store without a service,
on the same disk, between the rounds; a commit of the service is what its writer took meanwhile.
"""

import itertools
import os
import statistics
import struct
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.system.server import Server

from benchmarks.figures import Result, Row, many, ratio, spread
from benchmarks.generation import prompts, request
from benchmarks.kept import kept
from benchmarks.plan import Plan
from benchmarks.processes import Helper
from benchmarks.stamps.sitecustomize import COMMITTED, DRAWN
from perdure.storage.sqlite.tokens import unpacked
from perdure.testing.tiny_gguf import write_tiny_model

COMMITS = 60
STREAMS = (1, 8)
TOKENS, QUICK_TOKENS = 64, 24
TINY_TOKENS = 400


@dataclass
class Case:
    """A model and a number of streams: what was measured in each round."""

    name: str
    streams: int
    tokens: int
    seen: list[list[float]] = field(default_factory=list[list[float]])
    inside: list[list[float]] = field(default_factory=list[list[float]])
    commits: list[float] = field(default_factory=list[float])


@contextmanager
def stamped(folder: Path) -> Generator[None]:
    """Whatever is started meanwhile notes its stamps in `folder`."""
    folder.mkdir()
    changed = {"PYTHONPATH": str(Path(__file__).parent / "stamps"), "BENCH_STAMPS": str(folder)}
    kept = {name: os.environ.get(name) for name in changed}
    os.environ.update(changed)
    try:
        yield
    finally:
        for name, value in kept.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def records(path: Path, layout: struct.Struct) -> list[tuple[Any, ...]]:
    """Everything that was noted in a file."""
    return list(layout.iter_unpack(path.read_bytes()))


def token_counts(database: Path, ident: str) -> list[int]:
    """How many tokens each event of a response was made of."""
    sql = "SELECT tokens FROM task_events WHERE task_id = (SELECT id FROM tasks WHERE ident = ?) ORDER BY seq"
    return [len(unpacked(tokens)) if tokens else 0 for (tokens,) in kept(database, sql, (ident,))]


def delays(stream: dict[str, Any], counts: Sequence[int], drawn: dict[int, int]) -> list[float]:
    """Seconds between a token's stamp and its event's arrival, for every token of a stream."""
    arrivals = stream["arrivals"]
    if len(arrivals) != len(counts) or sum(counts) != stream["tokens"]:
        raise AssertionError(f"{len(arrivals)} events came, {len(counts)} are kept; {sum(counts)} tokens in them")
    when = itertools.chain.from_iterable([arrival] * count for arrival, count in zip(arrivals, counts, strict=True))
    found = [arrival - drawn[position] / 1e9 for position, arrival in enumerate(when)]
    if min(found) < 0:
        raise AssertionError(f"a token was seen {-min(found):.4f} s before it was drawn: the clocks differ")
    return found


def run(case: Case, folder: Path, model: Path | None, client: Helper, number: int) -> None:
    """One round of one case, in a service of its own."""
    stamps = folder.with_name(folder.name + "-stamps")
    with stamped(stamps), Server(folder, model, slots=8, window_tokens=1024) as server:
        server.start()
        port = int(server.url.rsplit(":", 1)[1])
        body = {"model": server.model_name, "temperature": 0, "max_output_tokens": case.tokens, "stream": True}
        texts = prompts(number, case.streams)
        requests = [
            request(
                port, "/v1/responses", {**body, "instructions": system, "input": text, "seed": seed}, server.token
            )
            for seed, (system, text) in enumerate(texts)
        ]
        server.ended(server.create(max_output_tokens=2, seed=999)["id"])
        skipped = len(records(stamps / "committed", COMMITTED))
        found = client.ask(kind="ours", host="127.0.0.1", port=port, requests=requests, arrivals=True)
    drawn: dict[int, dict[int, int]] = {}
    for at, seed, position, _ in records(stamps / "drawn", DRAWN):
        drawn.setdefault(seed, {})[position] = at
    taken: list[float] = []
    for seed, stream in enumerate(found["streams"]):
        counts = token_counts(folder / "perdure.db", stream["id"].removeprefix("resp_"))
        taken += delays(stream, counts, drawn[seed])
    case.seen.append(taken)
    case.inside.append([ns / 1e9 for ns, _ in records(stamps / "committed", COMMITTED)[skipped:]])


def measure(plan: Plan) -> Result:
    """Run the rounds: each case, and commits alone before and after it."""
    tiny = plan.folder / "tiny.gguf"
    write_tiny_model(tiny)
    tokens = QUICK_TOKENS if plan.quick else TOKENS
    cases = [Case("bundled model", streams, tokens) for streams in STREAMS]
    cases += [Case("a model of 125 kB", streams, TINY_TOKENS) for streams in STREAMS]
    with Helper("stream_client") as client, Helper("store_alone") as alone:
        for number, (index, case) in itertools.product(range(plan.rounds(1, 3)), enumerate(cases)):
            plan.note(f"seen: round {number + 1}, {case.name}, {case.streams} streams")
            name = f"{number}-{index}"
            before = _commits(alone, plan.folder / f"{name}-before.db")
            run(case, plan.folder / name, tiny if "kB" in case.name else None, client, number)
            case.commits.append(statistics.median(before + _commits(alone, plan.folder / f"{name}-after.db")))
    return Result(_rows(cases), {"cases": [vars(case) for case in cases]})


def _commits(alone: Helper, path: Path) -> list[float]:
    return alone.ask(what="commits", path=str(path), total=COMMITS)


def quantile(values: Sequence[float], share: float) -> float:
    """The value that `share` of all do not exceed."""
    return sorted(values)[min(len(values) - 1, int(len(values) * share))]


def _rows(cases: list[Case]) -> list[Row]:
    rows: list[Row] = []
    for case in cases:
        inside = [statistics.median(commits) for commits in case.inside]
        for what, share in (("median", 0.5), ("99 of 100", 0.99)):
            taken = [quantile(seen, share) for seen in case.seen]
            for name, commits in (("a commit alone", case.commits), ("a commit of the service", inside)):
                rows.append(
                    Row(
                        f"from drawn to seen, {what}, {case.name}, {many(case.streams, 'stream')}",
                        f"{spread(taken).median * 1e3:.2f} ms",
                        f"{name}, {spread(commits).median * 1e3:.2f} ms",
                        ratio(taken, commits).shown(1),
                    )
                )
    return rows
