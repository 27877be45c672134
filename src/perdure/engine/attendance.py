"""Who attends which response. Foreground work is done for somebody who waits: it stops when the last one has left."""

import asyncio
from collections import Counter
from collections.abc import Callable, Generator
from contextlib import contextmanager

from perdure.domain.limits import UNATTENDED_SECONDS


class Attendance:
    """Counts of readers by ident. `on_empty` is called with an expected ident that nobody attends any more."""

    def __init__(self, on_empty: Callable[[str], None]) -> None:
        self._readers: Counter[str] = Counter()
        self._expected: set[str] = set()
        self._on_empty = on_empty

    def expect(self, ident: str) -> None:
        """The caller who asked for `ident` should attend it shortly, and it is for him and whoever joins him.

        What a restart has left was asked for by a caller of the last process: no passer-by ends it by leaving.
        """
        self._expected.add(ident)
        asyncio.get_running_loop().call_later(UNATTENDED_SECONDS, self._check, ident)

    def over(self, ident: str) -> None:
        """`ident` has ended: nobody is expected any more, and who leaves now stops nothing."""
        self._expected.discard(ident)

    @contextmanager
    def attend(self, ident: str) -> Generator[None]:
        """Be a reader of `ident`."""
        self._readers[ident] += 1
        try:
            yield
        finally:
            self._readers[ident] -= 1
            self._check(ident)

    def __len__(self) -> int:
        return self._readers.total()

    def _check(self, ident: str) -> None:
        if self._readers[ident] <= 0:
            del self._readers[ident]
            if ident in self._expected:
                self._expected.discard(ident)
                self._on_empty(ident)
