"""The tally of kills: JSON Lines on disk, one a kill, only ever added to; and the table that it comes to."""

import fcntl
import json
import os
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Self

from tests.system.kills.plan import Plan
from tests.system.kills.round import Kill

Line = dict[str, Any]
BUCKETS = ((0, "0"), (15, "1 to 15"), (63, "16 to 63"), (255, "64 to 255"))
BUCKET_LAST = "256 and more"


class Tally:
    """The file, for one writer at a time. A line that an end in the middle of a write has torn is taken off."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("a+b")
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self._file.close()
            raise SystemExit(f"{path} is being written by another run.") from None
        self._file.seek(0)
        text = self._file.read()
        whole = text[: text.rfind(b"\n") + 1]
        if whole != text:
            self._file.truncate(len(whole))
        self.lines: list[Line] = [json.loads(line) for line in whole.splitlines()]

    @property
    def next_kill(self) -> int:
        """The number of the next kill."""
        return 1 + max((line["kill"] for line in self.lines), default=0)

    @property
    def verified(self) -> int:
        """How many kills met a text under way and were followed by the undisturbed texts."""
        return len(counted(self.lines))

    @property
    def failed(self) -> list[Line]:
        """The others, of this run and of all before."""
        return [line for line in self.lines if not line["ok"]]

    def add(self, lines: Iterable[Line]) -> None:
        """Keep the kills of a round."""
        added = list(lines)
        self._file.write(b"".join(json.dumps(line).encode() + b"\n" for line in added))
        self._file.flush()
        os.fsync(self._file.fileno())
        self.lines += added

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self._file.close()


def lines_of(first: int, plan: Plan, kills: Sequence[Kill], failure: Line | None) -> list[Line]:
    """The lines of a round that began with the kill number `first`; `failure` is what went wrong in it."""
    round_ = {"round": first, "model": plan.model, "sampling": plan.sampling, "concurrent": plan.streams}
    made = [
        {
            "victim": kill.victim,
            "struck": kill.struck,
            "aimed": (kill.aim.victim, kill.aim.moment),
            "hit": kill.hit,
            "settled": kill.settled,
            "streams": kill.streams,
            "texts": kill.texts,
            "prompt_tokens": kill.prompt_tokens,
        }
        for kill in kills
    ]
    if failure is not None:
        return [
            {"kill": first + n, "ok": False, **round_, **kill, "failure": failure}
            for n, kill in enumerate(made or [{}])
        ]
    return [{"kill": first + n, "ok": True, **round_, **kill} for n, kill in enumerate(made)]


def counted(lines: Sequence[Line]) -> list[Line]:
    """The verified kills, without those that came when every text had ended."""
    return [line for line in lines if line["ok"] and line["streams"]]


def table(lines: Sequence[Line]) -> str:
    """The verified kills in Markdown, and how many others there are."""
    good = counted(lines)
    late = sum(line["ok"] for line in lines) - len(good)
    texts = Counter({line["round"]: line["texts"] for line in good})
    pairs = [stream for line in good for stream in line["streams"]]
    parts = [
        _cross("kills: what was hit", good, lambda line: line["hit"], lambda line: line["victim"]),
        _cross("kills: texts at once", good, lambda line: str(line["concurrent"]), lambda line: line["model"]),
        _cross("kills: sampling", good, lambda line: line["sampling"], lambda line: line["model"]),
        _cross(
            "kills: tokens of the prompt",
            good,
            lambda line: _bucket(line["prompt_tokens"]),
            lambda line: line["model"],
        ),
        _cross("texts: tokens done", pairs, lambda pair: _bucket(pair[1]), lambda pair: "left " + _bucket(pair[2])),
    ]
    parts.append(
        f"{len(good)} kills, {texts.total()} texts, {len(pairs)} times a text was under way at a kill; "
        f"{len(lines) - len(good) - late} kills after which something was not as it should be. "
        f"Not counted: {late} kills that came when every text had ended."
    )
    return "\n\n".join(parts)


def _bucket(tokens: int) -> str:
    return next((name for most, name in BUCKETS if tokens <= most), BUCKET_LAST)


ORDER = (
    *("queued", "loading", "prompt", "text", "again", "waiting", "ended", "start", "scan", "settled"),
    *("service", "child", "both", "greedy", "sampled", "mixed", "1", "4", "8", "tiny", "real"),
    *(name for _, name in BUCKETS),
    BUCKET_LAST,
    *("left " + name for _, name in BUCKETS),
    "left " + BUCKET_LAST,
)


def _cross(title: str, found: Sequence[Any], row: Callable[[Any], str], column: Callable[[Any], str]) -> str:
    counts = Counter((row(each), column(each)) for each in found)
    rows = sorted({key for key, _ in counts}, key=ORDER.index)
    columns = sorted({key for _, key in counts}, key=ORDER.index)
    lines = [
        [title, *columns, "all"],
        ["---"] + ["---:"] * (len(columns) + 1),
        *([key, *(str(counts[key, each]) for each in columns), str(_sum(counts, key))] for key in rows),
    ]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def _sum(counts: Counter[tuple[str, str]], key: str) -> int:
    return sum(count for (row, _), count in counts.items() if row == key)
