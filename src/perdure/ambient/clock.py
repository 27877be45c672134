"""The clock of the machine."""

import time


class SystemClock:
    """Real time."""

    def now(self) -> int:
        """Microseconds since 1970."""
        return time.time_ns() // 1000

    def monotonic(self) -> float:
        """Seconds of a clock that never steps."""
        return time.monotonic()
