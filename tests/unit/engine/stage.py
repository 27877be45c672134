"""Where the engine is tested: the real store on a real file, scripted models, a clock that the test moves.

Nothing is stubbed out. The store stands behind a thin layer that lets other tasks in at every read (as a store on
another machine would), fails where a test says so, and tells when something was written, so that no test has to look
again and again. The event loop's own time runs faster than the wall's: a poll of one second costs a fraction of it.
"""

import asyncio
import functools
import selectors
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Coroutine, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, ParamSpec, cast

import msgspec

from perdure.domain.events import TERMINAL_TYPES, Event
from perdure.domain.items import Item, conversation
from perdure.domain.lifecycle import TERMINAL, Status
from perdure.domain.limits import CRASHES_MAX
from perdure.domain.principal import ALL_SCOPES, Principal
from perdure.domain.recovery import OnRestart
from perdure.domain.request import CreateRequest
from perdure.engine.engine import Engine
from perdure.ports.storage import Change, EventsPage, NewTask, TaskRecord
from perdure.storage.sqlite.store import SqliteStore
from perdure.testing.manual_clock import ManualClock
from perdure.testing.scripted_runtime import MODEL, ScriptedRuntime, encoded, text
from perdure.testing.store_steps import add_client, all_events

P = ParamSpec("P")

SPEED = 20
BOUND_SECONDS = 300  # of the loop's time: 15 of the wall's


def user(prompt: str) -> Item:
    """What somebody says, as an item in normal form."""
    part = {"type": "input_text", "text": prompt}
    return {"type": "message", "role": "user", "status": "completed", "content": [part]}


def asked(received: bytes) -> str:
    """The prompt of a response, from its items as they were kept."""
    return "".join(message.content for message in conversation(None, msgspec.json.decode(received)))


class BriskSelector(selectors.DefaultSelector):
    """Waits a fraction of what it is asked to."""

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Wait for files."""
        return super().select(None if timeout is None else timeout / SPEED)


class BriskLoop(asyncio.SelectorEventLoop):
    """An event loop whose time runs `SPEED` times as fast."""

    def __init__(self) -> None:
        super().__init__(BriskSelector())

    def time(self) -> float:
        """The loop's time."""
        return super().time() * SPEED


def scenario(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """Run a coroutine as a test: bounded, and with nothing left behind on the event loop."""

    @functools.wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        with asyncio.Runner(loop_factory=BriskLoop) as runner:
            runner.run(_tidily(test(*args, **kwargs)))

    return run


async def _tidily(test: Coroutine[Any, Any, None]) -> None:
    complaints: list[dict[str, Any]] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: complaints.append(context))
    async with asyncio.timeout(BOUND_SECONDS):
        await test
    await asyncio.sleep(0)
    left = asyncio.all_tasks() - {asyncio.current_task()}
    assert not left, f"tasks were left behind: {left}"
    assert not complaints, complaints


class StageStore(SqliteStore):
    """The real store; see the module. `trouble` may name an error for a call, `commits` holds writes while clear."""

    def __init__(self, *parts: Any) -> None:
        super().__init__(*parts)
        self.trouble: Callable[[str], Exception | None] = lambda _: None
        self.commits = asyncio.Event()
        self.commits.set()
        self.before_apply: Callable[[Change], Awaitable[None]] | None = None
        self.after_task: Callable[[TaskRecord], Awaitable[None]] | None = None
        self.before_ended: Callable[[], Awaitable[None]] | None = None
        self.changes: list[Change] = []
        self._news = asyncio.Condition()

    async def reaches(self, ident: str, *statuses: Status) -> TaskRecord:
        """The task once it stands in one of these states."""
        return await self.until(ident, lambda task: task.status in statuses)

    async def until(self, ident: str, good: Callable[[TaskRecord], bool]) -> TaskRecord:
        """The task once it is as wanted."""
        while True:
            async with self._news:
                task = await super().task(ident)
                if task is not None and good(task):
                    return task
                await self._news.wait()

    async def gone(self, ident: str) -> None:
        """Return once there is no such task."""
        async with self._news:
            while await super().task(ident) is not None:
                await self._news.wait()

    async def boot(self, boot_id: str, at: int) -> str:
        await self._enter("boot")
        return await super().boot(boot_id, at)

    async def submit(self, new: NewTask, queue_max: int) -> None:
        await self._enter("submit")
        await self.commits.wait()
        await super().submit(new, queue_max)
        await self._tell()

    async def apply(self, change: Change) -> None:
        await self._enter("apply")
        if self.before_apply is not None:
            await self.before_apply(change)
        await self.commits.wait()
        await super().apply(change)
        self.changes.append(change)
        await self._tell()

    async def purge(self, task_ids: Sequence[int], remembered_until: int | None = None) -> None:
        await self._enter("purge")
        await super().purge(task_ids, remembered_until)
        await self._tell()

    async def ended(self, ident: str) -> bool:
        await self._enter("ended")
        if self.before_ended is not None:
            await self.before_ended()
        found = await super().ended(ident)
        await asyncio.sleep(0)
        return found

    async def task(self, ident: str) -> TaskRecord | None:
        await self._enter("task")
        found = await super().task(ident)
        await asyncio.sleep(0)
        if found is not None and self.after_task is not None:
            await self.after_task(found)
        return found

    async def unfinished(self, after_id: int, limit: int) -> Sequence[TaskRecord]:
        await self._enter("unfinished")
        return await super().unfinished(after_id, limit)

    async def next_runnable(self, boot: str, live: Collection[int], models: Collection[str]) -> TaskRecord | None:
        await self._enter("next_runnable")
        found = await super().next_runnable(boot, live, models)
        await asyncio.sleep(0)
        return found

    async def purgeable(self, now: int, limit: int) -> Sequence[TaskRecord]:
        await self._enter("purgeable")
        return await super().purgeable(now, limit)

    async def events(self, task_id: int, after: int, limit: int) -> EventsPage:
        await self._enter("events")
        found = await super().events(task_id, after, limit)
        await asyncio.sleep(0)
        return found

    async def prompt(self, task_id: int) -> tuple[int, ...]:
        await self._enter("prompt")
        return await super().prompt(task_id)

    async def _enter(self, call: str) -> None:
        await asyncio.sleep(0)
        if (error := self.trouble(call)) is not None:
            raise error

    async def _tell(self) -> None:
        async with self._news:
            self._news.notify_all()


class CountedNames:
    """Implements `perdure.ports.ambient.Names`: one after the other."""

    def __init__(self) -> None:
        self._last = 0

    def ident(self, at: int) -> str:
        """A name."""
        self._last += 1
        return f"r{self._last:04}"

    def seed(self) -> int:
        """A seed."""
        return 7

    def token(self) -> str:
        """A secret."""
        return "secret"


class Stage:
    """A service without a door: the engine and all that it stands on."""

    def __init__(
        self,
        store: StageStore,
        runtime: ScriptedRuntime,
        client: int,
        *,
        queue_max: int,
        retention_seconds: float | None,
    ) -> None:
        self.store = store
        self.runtime = runtime
        self.clock = ManualClock()
        self.names = CountedNames()
        self.principal = Principal(client, "owner", ALL_SCOPES)
        self.reports: list[tuple[str, BaseException]] = []
        self.boots = 0
        self.retention_seconds = retention_seconds
        self._queue_max = queue_max
        self.engine = self.new_engine()

    def new_engine(self) -> Engine:
        """The engine of the next process."""
        self.boots += 1
        return Engine(
            self.store,
            self.runtime,
            self.clock,
            self.names,
            lambda what, error: self.reports.append((what, error)),
            boot=f"boot-{self.boots}",
            queue_max=self._queue_max,
            crashes_max=CRASHES_MAX,
            retention_seconds=self.retention_seconds,
        )

    async def submit(self, prompt: str = "Hello", **fields: Any) -> str:
        """Have a response accepted."""
        return (await self.engine.submit(self.principal, request(**fields), [user(prompt)])).ident

    async def cancel(self, ident: str) -> None:
        """Ask for the end of a response."""
        await self.engine.cancel(self.principal, ident, background_only=False)

    async def delete(self, ident: str) -> None:
        """Have a response removed."""
        await self.engine.delete(self.principal, ident)

    async def ended(self, ident: str) -> TaskRecord:
        """The task once it has ended."""
        return await self.store.reaches(ident, *TERMINAL)

    async def follow(self, ident: str, after: int = -1) -> list[Event]:
        """What a viewer gets, up to where it ends."""
        async with self.engine.follow(self.principal, ident, after) as events:
            return [event async for event in events if event is not None]

    async def response(self, ident: str) -> dict[str, Any]:
        """The response object."""
        return msgspec.json.decode(await self.engine.response(self.principal, ident))

    async def log(self, ident: str) -> list[Event]:
        """The stored events of a response that has ended, which must be a sound log."""
        task = await self.store.task(ident)
        assert task is not None
        found = list(await all_events(self.store, task))
        check_log(found)
        return found

    async def restart(self) -> int:
        """The process is gone from one moment to the next, and another one starts on what it left."""
        await self.kill()
        self.engine = self.new_engine()
        return await self.engine.start()

    async def kill(self) -> None:
        """Lose everything that is in memory."""
        while lost := [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]:
            for task in lost:  # one that goes may leave another behind, which a dead process would not
                task.cancel()
            await asyncio.gather(*lost, return_exceptions=True)
        self.runtime.busy = 0
        self.store.changes.clear()

    async def stop(self, seconds: float = 60) -> None:
        """A drained stop."""
        self.engine.drain()
        await self.engine.settle(seconds)
        await self.engine.finish()


@asynccontextmanager
async def opened(
    folder: Path,
    *,
    slots: int = 1,
    queue_max: int = 1000,
    window: int = 4096,
    retention_seconds: float | None = None,
    kind: type[StageStore] = StageStore,
    bytes_max: int | None = None,
) -> AsyncGenerator[Stage]:
    """A stage whose engine has not been started."""
    store = cast("StageStore", await kind.open(folder / "perdure.db", bytes_max=bytes_max))
    try:
        yield Stage(
            store,
            ScriptedRuntime(slots, window),
            await add_client(store),
            queue_max=queue_max,
            retention_seconds=retention_seconds,
        )
    finally:
        await store.close()


@asynccontextmanager
async def started(
    folder: Path,
    *,
    slots: int = 1,
    queue_max: int = 1000,
    window: int = 4096,
    retention_seconds: float | None = None,
) -> AsyncGenerator[Stage]:
    """A stage at work; at the end the engine is stopped, whatever is still under way."""
    async with opened(
        folder, slots=slots, queue_max=queue_max, window=window, retention_seconds=retention_seconds
    ) as stage:
        await stage.engine.start()
        yield stage
        await stage.stop(seconds=0)


def request(**fields: Any) -> CreateRequest:
    """A valid request."""
    given: dict[str, Any] = {
        "model": MODEL,
        "instructions": None,
        "background": True,
        "store": True,
        "temperature": 1.0,
        "top_p": 1.0,
        "max_output_tokens": None,
        "metadata": {},
        "seed": 7,
        "on_restart": OnRestart.RESUME,
    }
    return CreateRequest(**{**given, **fields})


def check_log(log: Sequence[Event]) -> None:
    """Numbers from 0 without a gap, and one terminal event, at the end."""
    assert [event.seq for event in log] == list(range(len(log)))
    assert [event.type in TERMINAL_TYPES for event in log] == [False] * (len(log) - 1) + [True]


def types(log: Sequence[Event]) -> list[str]:
    """The types of events, without the common prefix."""
    return [event.type.removeprefix("response.") for event in log]


def said(log: Sequence[Event]) -> str:
    """The text that the deltas add up to."""
    deltas = [msgspec.json.decode(event.data)["delta"] for event in log if event.type.endswith("text.delta")]
    return "".join(deltas)


def undisturbed(prompt: str, tokens: int) -> str:
    """The text of so many tokens, of a run that nothing has disturbed."""
    return text(encoded(prompt), tokens)


async def turns(count: int) -> None:
    """Let other tasks go on for a number of turns of the event loop. No wait for anything: a place in a race."""
    for _ in range(count):
        await asyncio.sleep(0)
