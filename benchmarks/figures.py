"""What a benchmark hands back: rows of a table, and the raw figures behind them."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

HEADER = "| what | figure | against | ratio, median (lowest to highest) | aim |\n|---|---|---|---|---|"


@dataclass(frozen=True)
class Spread:
    """A quantity measured in several rounds."""

    values: tuple[float, ...]

    @property
    def median(self) -> float:
        """The middle one."""
        return statistics.median(self.values)

    def shown(self, digits: int = 2, unit: str = "") -> str:
        """The median and, where there was more than one round, the extremes."""
        tail = f" {unit}" if unit else ""
        if len(self.values) == 1:
            return f"{self.median:,.{digits}f}{tail}"
        return f"{self.median:,.{digits}f} ({min(self.values):,.{digits}f} to {max(self.values):,.{digits}f}){tail}"


def spread(values: Sequence[float]) -> Spread:
    """A spread of at least one value."""
    if not values:
        raise AssertionError("nothing was measured")
    return Spread(tuple(values))


def ratio(ours: Sequence[float], theirs: Sequence[float]) -> Spread:
    """The ratios round by round: what disturbs the machine for longer than a round disturbs both sides."""
    return spread([mine / other for mine, other in zip(ours, theirs, strict=True)])


@dataclass(frozen=True)
class Row:
    """One line of the table."""

    what: str
    figure: str
    against: str = ""
    ratio: str = ""
    aim: str = ""

    def shown(self) -> str:
        """The line."""
        return f"| {self.what} | {self.figure} | {self.against} | {self.ratio} | {self.aim} |"


@dataclass
class Result:
    """What a benchmark found. `raw` is everything it measured, as JSON can hold it."""

    rows: list[Row] = field(default_factory=list[Row])
    raw: dict[str, Any] = field(default_factory=dict[str, Any])


def percentiles(taken: Sequence[float]) -> dict[str, float]:
    """What half of all do not exceed, and 99 of 100."""
    ordered = sorted(taken)
    return {"p50": ordered[len(ordered) // 2], "p99": ordered[int(len(ordered) * 0.99)]}


def many(count: int, thing: str) -> str:
    """So many of a thing."""
    return f"{count} {thing}{'' if count == 1 else 's'}"


def table(rows: Sequence[Row]) -> str:
    """The rows as a Markdown table."""
    return "\n".join([HEADER, *(row.shown() for row in rows)])


def slope(points: Sequence[tuple[float, float]]) -> float:
    """The slope of the straight line that fits the points best."""
    xs, ys = [x for x, _ in points], [y for _, y in points]
    return statistics.linear_regression(xs, ys).slope
