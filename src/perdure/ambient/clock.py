"""The clock of the machine."""

import time

# Linux leaves sleep out of CLOCK_MONOTONIC; macOS has no other clock, and there it is in it.
_ELAPSED: int = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class SystemClock:
    """Real time."""

    def now(self) -> int:
        """Microseconds since 1970."""
        return time.time_ns() // 1000

    def monotonic(self) -> float:
        """Seconds of a clock that never steps."""
        return time.monotonic()

    def elapsed(self) -> float:
        """Seconds of a clock that never steps and also runs while the machine sleeps."""
        return time.clock_gettime(_ELAPSED)
