"""Wake-ups: hints that rows have changed. Never data: losing one costs latency, since readers poll, and no more."""

import asyncio
from collections import defaultdict
from collections.abc import Coroutine, Generator
from contextlib import contextmanager
from typing import Any, TypeVar

T = TypeVar("T")


class Wakeups:
    """Who waits for news of which task: for any, or for the one of its end."""

    def __init__(self) -> None:
        self._waiting: defaultdict[tuple[str, bool], set[asyncio.Event]] = defaultdict(set)

    @contextmanager
    def listen(self, ident: str, *, end_only: bool = False) -> Generator[asyncio.Event]:
        """An event that is set at each news of `ident`; the listener clears it before it reads."""
        hint, wanted = asyncio.Event(), (ident, end_only)
        self._waiting[wanted].add(hint)
        try:
            yield hint
        finally:
            self._waiting[wanted].discard(hint)
            if not self._waiting[wanted]:
                del self._waiting[wanted]

    def notify(self, ident: str, *, ended: bool = False) -> None:
        """There is news of `ident`; whether it is the news of its end."""
        for end_only in (False, True) if ended else (False,):
            for hint in self._waiting.get((ident, end_only), ()):
                hint.set()

    def notify_all(self) -> None:
        """There is news for everybody."""
        for hints in self._waiting.values():
            for hint in hints:
                hint.set()


async def wait_for(hint: asyncio.Event, seconds: float) -> bool:
    """Wait for a hint, at most so long; whether it came."""
    try:
        async with asyncio.timeout(seconds):
            await hint.wait()
    except TimeoutError:
        return False
    return True


async def unless(hint: asyncio.Event, wanted: Coroutine[Any, Any, T]) -> T | None:
    """The result of `wanted`, or None when the hint came first; what was wanted is then given up."""
    work, nudge = asyncio.ensure_future(wanted), asyncio.ensure_future(hint.wait())
    try:
        await asyncio.wait((work, nudge), return_when=asyncio.FIRST_COMPLETED)
        return await work if work.done() else None
    finally:
        for each in (work, nudge):
            each.cancel()
        await asyncio.gather(work, nudge, return_exceptions=True)
