"""Steady time: the time of day as far as it is believed, for telling how old something is.

Rows are dated by the time of day, and that is set: by a machine without a clock of its own that asks for the time
after its start, by a person, by a virtual machine that was brought back. A minute later, what was finished before
looks days or decades old. So the time of day is compared at each look with a clock that only runs (while the machine
sleeps, too), and what it has leapt ahead is taken off again.

Not for ever: once `seconds` have passed since a leap, everything that was dated before it is as old as that in truth,
and the time of day counts again. A start begins anew, since no clock outlives the machine's own.
"""

import logging

from perdure.domain.limits import CLOCK_LEAP_SECONDS
from perdure.engine.record import MICROSECONDS
from perdure.ports.ambient import Clock

DAY_SECONDS = 24 * 3600
DAY_MICROSECONDS = DAY_SECONDS * MICROSECONDS

_log = logging.getLogger(__name__)


class SteadyTime:
    """`seconds` is the age that is asked about: so long after a leap the clock is believed again."""

    def __init__(self, clock: Clock, seconds: float) -> None:
        self._clock = clock
        self._seconds = seconds
        self._last = self._believed = self._offset(clock.elapsed())
        self._leapt_at: float | None = None

    def now(self) -> int:
        """Microseconds since 1970, never later than the time of day."""
        elapsed = self._clock.elapsed()
        offset = self._offset(elapsed)
        leap, self._last = offset - self._last, offset
        if leap > CLOCK_LEAP_SECONDS * MICROSECONDS:
            self._leapt_at = elapsed
            _log.warning(
                "the clock was set ahead by %.1f days; finished responses stay that much longer, for %.1f days",
                leap / DAY_MICROSECONDS,
                self._seconds / DAY_SECONDS,
            )
        elif self._leapt_at is None or elapsed - self._leapt_at >= self._seconds:
            self._believed, self._leapt_at = offset, None
        self._believed = min(self._believed, offset)
        return self._believed + round(elapsed * MICROSECONDS)

    def _offset(self, elapsed: float) -> int:
        return self._clock.now() - round(elapsed * MICROSECONDS)
