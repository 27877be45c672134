"""A pause that lasts until a test ends it, for loops that do something once in so long."""

import asyncio

from perdure.testing.manual_clock import ManualClock


class ManualPause:
    """Takes the place of `perdure.engine.wakeups.wait_for` in one loop. `asked` are the lengths that it asked for."""

    def __init__(self, clock: ManualClock) -> None:
        self.asked: list[float] = []
        self._clock = clock
        self._begun: asyncio.Event = asyncio.Event()
        self._over: asyncio.Event = asyncio.Event()

    async def __call__(self, hint: asyncio.Event, seconds: float) -> bool:
        """Wait for the hint or for the test; whether it was the hint."""
        self.asked.append(seconds)
        self._over.clear()
        self._begun.set()
        waits = [asyncio.create_task(each.wait()) for each in (hint, self._over)]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._begun.clear()
            for each in waits:
                each.cancel()
            await asyncio.gather(*waits, return_exceptions=True)
        return hint.is_set()

    async def end(self) -> None:
        """Let the time pass that was asked for; what the loop then does is under way."""
        await self._begun.wait()
        self._begun.clear()
        self._clock.advance(self.asked[-1])
        self._over.set()

    async def round(self) -> None:
        """Let the time pass, and return when the loop has done what it does and waits again."""
        await self.end()
        await self._begun.wait()
