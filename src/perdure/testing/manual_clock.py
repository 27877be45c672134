"""A clock that stands still until a test moves it."""

START = 1_790_000_000_000_000
MICROSECONDS = 1_000_000


class ManualClock:
    """Implements `perdure.ports.ambient.Clock`. `at` is the time of day at the beginning, in microseconds."""

    def __init__(self, at: int = START) -> None:
        self._now = at
        self._monotonic = self._elapsed = 0.0

    def now(self) -> int:
        """The time of day."""
        return self._now

    def monotonic(self) -> float:
        """The clock for deadlines."""
        return self._monotonic

    def elapsed(self) -> float:
        """The clock for how much time has passed."""
        return self._elapsed

    def advance(self, seconds: float) -> None:
        """Let all go on by so much."""
        self.sleep(seconds)
        self._monotonic += seconds

    def sleep(self, seconds: float) -> None:
        """The machine sleeps for so long: deadlines do not notice."""
        self._now += round(seconds * MICROSECONDS)
        self._elapsed += seconds

    def step(self, seconds: float) -> None:
        """Set the time of day forward or back, as people and time servers do; deadlines do not notice."""
        self._now += round(seconds * MICROSECONDS)
