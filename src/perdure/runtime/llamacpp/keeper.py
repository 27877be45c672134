"""Keeps one child process of a kind alive, as long as that makes sense.

A child that says it cannot do its work is believed: the fault stays, and no other is started. One that dies is
replaced, after a pause that doubles from one early death to the next; if several die before they were ready, that is
a fault too. So neither a damaged file nor a poisonous task makes a loop of starts.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from perdure.domain.errors import ModelUnavailable
from perdure.runtime.llamacpp import wire
from perdure.runtime.llamacpp.process import LEAVE_SECONDS, Child

PAUSE_FIRST_SECONDS = 0.05
PAUSE_MAX_SECONDS = 5.0
LIVED_WELL_SECONDS = 30.0  # after so long a life the next pause is the first again
UNREADY_DEATHS_MAX = 3
OPEN_SECONDS_MAX = 300.0

ReadyT = TypeVar("ReadyT", wire.TokenizerReady, wire.EngineReady)


class Keeper(Generic[ReadyT]):
    """The child of one kind for one model.

    `opening` gives the first order of each new child and may raise `ModelUnavailable`, which is then the fault, and
    `unopened` is set; `receive` gets every later answer; `lost` is told, once, when a child that had been started is
    gone; `failed` is told of a fault.
    """

    def __init__(
        self,
        module: str,
        ready_type: type[ReadyT],
        *,
        opening: Callable[[], Awaitable[wire.Order]],
        receive: Callable[[wire.Answer], None],
        lost: Callable[[str], None],
        log: Callable[[str], None],
        failed: Callable[[], None] = lambda: None,
    ) -> None:
        self._module = module
        self._ready_type = ready_type
        self._opening = opening
        self._receive = receive
        self._lost = lost
        self._log = log
        self._failed = failed
        self._child: Child | None = None
        self._ready: ReadyT | None = None
        self._closing = asyncio.Event()
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self.fault: str | None = None
        self.unopened = False
        self.starts = 0

    def start(self) -> None:
        """Begin; returns at once. After `stop` or a fault it begins anew."""
        self.forgive()
        self._closing.clear()
        self._task = asyncio.create_task(self._keep_or_say_why(), name=self._module)

    @property
    def child(self) -> Child | None:
        """The child, if it is ready now."""
        return self._child if self._ready is not None else None

    @property
    def pid(self) -> int | None:
        """The process id of the child, ready or not."""
        return self._child.pid if self._child is not None else None

    async def ready(self) -> ReadyT:
        """Wait for a child that is ready, and what it said. Raises `ModelUnavailable` with the fault."""
        while True:
            if self.fault is not None:
                raise ModelUnavailable(self.fault)
            if self._ready is not None:
                return self._ready
            await self._changed.wait()

    def forgive(self) -> None:
        """Forget the fault."""
        self.fault, self.unopened = None, False

    async def close(self) -> None:
        """End the child for good and return when it is gone. May be repeated."""
        self._closing.set()
        self._set_fault("The service is stopping.")
        await self.stop()

    async def stop(self) -> None:
        """End the child and return when it is gone; another comes with `start`."""
        self._closing.set()
        if self._child is not None:
            self._child.leave()
        if self._task is None:
            return
        await asyncio.wait([self._task], timeout=LEAVE_SECONDS)
        if self._child is not None:  # it does not even read that it should leave
            self._child.kill()
        await asyncio.shield(self._task)

    def _set_fault(self, fault: str) -> None:
        if self.fault is None:
            self.fault = fault
            if not self._closing.is_set():
                self._log(f"{self._module} is given up: {fault}")
                self._failed()
        self._tell()

    def _tell(self) -> None:
        """Wake everybody who waits in `ready`, to look again."""
        self._changed.set()
        self._changed = asyncio.Event()

    async def _keep_or_say_why(self) -> None:
        """No keeper ends in silence: those who wait for its child would wait for ever."""
        try:
            await self._keep()
        except Exception as error:  # noqa: BLE001 -- whatever it is, it is why there is no child
            self._log(f"{self._module} met an internal error: {error!r}")
            self._set_fault(f"internal error ({type(error).__name__})")

    async def _keep(self) -> None:
        pause, unready_deaths = PAUSE_FIRST_SECONDS, 0
        clock = asyncio.get_running_loop().time
        while not self._closing.is_set() and self.fault is None:
            began, starts = (
                clock(),
                self.starts,
            )  # one that could not even be started has not died: there may be room soon
            was_ready, how = await self._live()
            if self._closing.is_set() or self.fault is not None:
                return
            unready_deaths = 0 if was_ready or self.starts == starts else unready_deaths + 1
            if unready_deaths == UNREADY_DEATHS_MAX:
                self._set_fault(f"its process ended with {how} before it was ready, {unready_deaths} times")
                return
            pause = PAUSE_FIRST_SECONDS if clock() - began >= LIVED_WELL_SECONDS else pause
            self._log(f"{self._module} ended with {how}; another starts in {pause:g} s")
            await self._rest(pause)
            pause = min(2 * pause, PAUSE_MAX_SECONDS)

    async def _rest(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._closing.wait()
        except TimeoutError:
            return

    async def _live(self) -> tuple[bool, str]:
        """One child from start to end: whether it was ever ready, and how it ended."""
        try:
            opening = await self._opening()
            child = await Child.spawn(self._module)
        except ModelUnavailable as error:
            self.unopened = True
            self._set_fault(error.message)
            return False, error.message
        except OSError as error:
            return False, str(error)
        self._child = child
        self.starts += 1
        how = "no word"
        try:
            child.send(opening)
            if self._closing.is_set():
                child.leave()
            await self._listen(child)
        except wire.Nonsense as error:
            self._log(f"{self._module} spoke nonsense: {error}")
            child.kill()
        finally:
            was_ready, self._ready = self._ready is not None, None
            how = await child.end()
            self._child = None
            self._lost(how)
        return was_ready, how

    async def _listen(self, child: Child) -> None:
        """Take the child's answers until it is gone. Raises `Nonsense`."""
        try:
            async with asyncio.timeout(OPEN_SECONDS_MAX):
                first = await child.answer()
        except TimeoutError:
            child.kill()
            return
        if first is None:
            return
        if isinstance(first, wire.Refused):
            self._set_fault(first.reason)
            return
        if not isinstance(first, self._ready_type):
            raise wire.Nonsense(f"{type(first).__name__} for a beginning")
        self._ready = first
        self._tell()
        while (answer := await child.answer()) is not None:
            self._receive(answer)
