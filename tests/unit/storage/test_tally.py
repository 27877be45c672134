"""What the writer counts."""

import math

from perdure.storage.sqlite.tally import WAIT_BOUNDS_SECONDS, Tally

NOW = 128.0
"""From here the differences to the times below are exact."""


def test_waits_are_counted_up_to_each_bound() -> None:
    """A wait that is as long as a bound counts under it, as Prometheus has it; the last bound counts them all."""
    tally = Tally()
    tally.add([NOW - wait for wait in (99.0, 5.0, 3.0, 0.25, 0.125)], NOW, refused=2)
    tally.add([], NOW, refused=1)
    tally.add([NOW - wait for wait in (0.0625, 0.0625)], NOW, refused=0)
    waits = dict(tally.waits)
    assert list(waits) == list(WAIT_BOUNDS_SECONDS)
    told = {0.05: 0, 0.1: 2, 0.2: 3, 0.5: 4, 2.0: 4, 5.0: 6, 10.0: 6, math.inf: 7}
    assert {bound: waits[bound] for bound in told} == told
    assert (tally.writes, tally.refused) == (7, 3)
    assert tally.waited_seconds == 99 + 5 + 3 + 0.25 + 0.125 + 0.125
