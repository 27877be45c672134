"""What the writer has done since the start, in numbers."""

import math
from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate

WAIT_BOUNDS_SECONDS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, math.inf)
"""A wait is counted under the first bound that it does not exceed."""


class Tally:
    """Counts writes, and how long they waited from being handed over until their commit."""

    def __init__(self) -> None:
        self.writes = 0
        self.refused = 0
        self.waited_seconds = 0.0
        self._waits = [0] * len(WAIT_BOUNDS_SECONDS)

    def add(self, made: Sequence[float], now: float, refused: int) -> None:
        """Count a batch that ends `now`: when each write was handed over that was made, the earliest first, and how
        many were refused."""
        self.refused += refused
        if not made:
            return
        self.writes += len(made)
        self.waited_seconds += len(made) * now - sum(made)
        first, last = _bound(now - made[0]), _bound(now - made[-1])
        if first == last:  # as nearly always, and then nobody is looked at one by one
            self._waits[first] += len(made)
            return
        for since in made:
            self._waits[_bound(now - since)] += 1

    @property
    def waits(self) -> tuple[tuple[float, int], ...]:
        """Each bound, and how many writes waited at most so long."""
        return tuple(zip(WAIT_BOUNDS_SECONDS, accumulate(self._waits), strict=True))


def _bound(seconds: float) -> int:
    return bisect_left(WAIT_BOUNDS_SECONDS, seconds)
