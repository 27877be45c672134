"""The door to the surroundings: time, names, chance. Tests put their own behind it."""

from typing import Protocol


class Clock(Protocol):
    """Time."""

    def now(self) -> int:
        """Microseconds since 1970, for what is stored and shown."""
        ...

    def monotonic(self) -> float:
        """Seconds of a clock that never steps, for deadlines."""
        ...

    def elapsed(self) -> float:
        """Seconds of a clock that never steps and also runs while the machine sleeps, for telling how much time has
        passed in the world."""
        ...


class Names(Protocol):
    """New names and numbers that nobody can guess."""

    def ident(self, at: int) -> str:
        """A name for a response and its task: sorts by `at` (microseconds), 80 bits of it random, URL-safe."""
        ...

    def seed(self) -> int:
        """A seed, 0 to 2**31 - 1 (every JSON reader holds it exactly)."""
        ...

    def token(self) -> str:
        """A secret of 32 random bytes, as text for a header."""
        ...
