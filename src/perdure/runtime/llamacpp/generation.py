"""A text under way, as the service holds it: the gathering place between the engine's frames and the taker."""

import asyncio
from collections.abc import Callable, Sequence

from perdure.ports.runtime import JobFailed, Piece, RuntimeCrashed

Trouble = RuntimeCrashed | JobFailed


class LlamaGeneration:
    """Implements `perdure.ports.runtime.Generation`. The engine's side calls `give`, `fail` and `free`."""

    def __init__(self, ask_to_stop: Callable[[], None]) -> None:
        self._ask_to_stop = ask_to_stop
        self._pieces: list[Piece] = []
        self._trouble: Callable[[], Trouble] | None = None
        self._news = asyncio.Event()
        self._freed = asyncio.Event()
        self._asked = False

    # The taker's side.

    async def take(self) -> Sequence[Piece]:
        """See the port. After `stop`, what was drawn before can still be taken, then `JobFailed` is raised."""
        while not self._pieces:
            if self._trouble is not None:
                raise self._trouble()
            self._news.clear()
            await self._news.wait()
        pieces, self._pieces = self._pieces, []
        return pieces

    async def stop(self) -> None:
        """See the port."""
        if not self._asked and not self._freed.is_set():
            self._asked = True
            self._ask_to_stop()
        await self._freed.wait()

    # The engine's side.

    def give(self, piece: Piece) -> None:
        """Add a piece that was drawn."""
        self._pieces.append(piece)
        self._news.set()

    def fail(self, trouble: type[Trouble], reason: str) -> None:
        """Nothing more will come; raise `trouble` once everything has been taken."""
        self._trouble = self._trouble or (lambda: trouble(reason))
        self._news.set()

    def free(self) -> None:
        """The slot is free."""
        self._freed.set()
