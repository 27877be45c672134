"""Who attends which response. Foreground work is done for somebody who waits: it stops when the last one has left."""

import asyncio
from collections import Counter
from collections.abc import Callable, Generator
from contextlib import contextmanager

from perdure.domain.limits import UNATTENDED_SECONDS


class Attendance:
    """Counts of readers by ident. `on_empty` is called with an ident that nobody attends any more."""

    def __init__(self, on_empty: Callable[[str], None]) -> None:
        self._readers: Counter[str] = Counter()
        self._on_empty = on_empty

    def expect(self, ident: str) -> None:
        """Somebody should come for `ident` shortly; call `on_empty` if nobody is there by then."""
        asyncio.get_running_loop().call_later(UNATTENDED_SECONDS, self._check, ident)

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
            self._on_empty(ident)
