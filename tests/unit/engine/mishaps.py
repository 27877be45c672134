"""What goes wrong for an engine on its stage: hooks and troubles for `StageStore`."""

import asyncio
from collections.abc import Awaitable, Callable

from perdure.ports.storage import Change


def every(nth: int, error: Callable[[], Exception]) -> Callable[[str], Exception | None]:
    """A trouble that strikes at every n-th call."""
    calls = 0

    def strike(_call: str) -> Exception | None:
        nonlocal calls
        calls += 1
        return error() if calls % nth == 0 else None

    return strike


def overtaken(gates: dict[int, asyncio.Event], hit: Callable[[Change], bool]) -> Callable[[Change], Awaitable[None]]:
    """A hook for a write that would be overtaken by the run each time: the next token is let go, and the run has time
    to commit it, between the look at the row and the write."""
    closed = list(gates.values())

    async def hook(change: Change) -> None:
        if hit(change) and closed:
            closed.pop(0).set()
            await asyncio.sleep(2)  # the loop's time

    return hook
