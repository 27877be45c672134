"""The runtime of llama.cpp models: `perdure.ports.runtime.Runtime` over child processes.

This process never loads the library: a damaged file, an abort or a lack of memory kills a child, and the child is
replaced. The tokenizer child of every model runs all the time, since each request needs one and they are small. The
engine child, which has the weights and the key/value memory, comes when it is needed and goes by the rules of
`residence`.
"""

import asyncio
import time
from collections.abc import Callable, Collection, Sequence
from pathlib import Path

import msgspec

from perdure.domain.errors import ModelUnavailable
from perdure.domain.model import Encoded, ModelCard, Prompt
from perdure.ports.runtime import Generation, Job, RuntimeCrashed, Statistics
from perdure.runtime.llamacpp.host import Host, HostSettings, ModelFile
from perdure.runtime.llamacpp.residence import Residence

LOOK_SECONDS = 1.0
UNBOUNDED_BYTES = 1 << 62
_START = "the start"


def _be_quiet(_line: str) -> None:
    return


class LlamaRuntime:
    """Implements `Runtime` for `models`, whose names differ.

    `slots` texts at once, each in a window of up to `window` tokens, as far as a model and its memory allow: of each,
    up to `memory_max_bytes` of key/value memory; of all that are loaded, `models_memory_max_bytes` for files and
    key/value memory together. A model that nobody uses is unloaded after `idle_seconds` by `clock`, or for another
    one's sake only (None). With `threads` other than 1 no model is exact. `library` is a libllama to use instead of
    the one in the `xllamacpp` wheel. `log` gets one line for each thing an operator may want to know.
    """

    def __init__(
        self,
        models: Sequence[ModelFile],
        *,
        slots: int = 4,
        window: int = 4096,
        threads: int = 1,
        memory_max_bytes: int = 4 << 30,
        models_memory_max_bytes: int = UNBOUNDED_BYTES,
        idle_seconds: float | None = None,
        clock: Callable[[], float] = time.monotonic,
        library: Path | None = None,
        log: Callable[[str], None] = _be_quiet,
    ) -> None:
        settings = HostSettings(
            slots=slots,
            window=window,
            threads=threads,
            memory_max_bytes=memory_max_bytes,
            models_memory_max_bytes=models_memory_max_bytes,
            library=library,
            log=log,
        )
        self._hosts = {model.name: Host(model, settings, failed=self._drop) for model in models}
        self._residence = Residence(models_memory_max_bytes, idle_seconds)
        self._clock = clock
        self._log = log
        self._changed = asyncio.Event()
        self._warming: asyncio.Task[None] | None = None
        self._looking: asyncio.Task[None] | None = None
        self._unloading: set[asyncio.Task[None]] = set()
        self._closed = False

    def start(self) -> None:
        """Begin with every model, and load in their order those that fit side by side, in the background.

        To be called once, on the running event loop."""
        alone = len(self._hosts) == 1  # nothing competes with it: it need not wait until its size is known
        for name, host in self._hosts.items():
            host.start(load=alone)
            if alone and self._residence.begin(name, 0, self._clock()):
                self._residence.want(name, _START, 0)
        self._arrange()
        self._warming = asyncio.create_task(self._warm(), name="first loads")
        self._looking = asyncio.create_task(self._look_on(), name="look after models")

    async def warm(self) -> None:
        """Return when the models that `start` loads can draw. Raises `ModelUnavailable` with the reason of the first
        of all models that cannot be used."""
        if self._warming is not None:
            await asyncio.wait([self._warming])
        for host in self._hosts.values():
            await host.card()

    async def look(self) -> None:
        """What time brings: models that have been idle for too long go, files that are back are noticed."""
        self._arrange()
        await asyncio.gather(*(host.look_again() for host in self._hosts.values()))

    @property
    def slots(self) -> int:
        """See the port."""
        known = [host.engine.slots for host in self._hosts.values() if host.engine.slots]
        return min(known, default=0)

    @property
    def usable(self) -> Collection[str]:
        """See the port."""
        return [name for name, host in self._hosts.items() if host.usable]

    def fault(self) -> str | None:
        """See the port."""
        faults = [host.fault for host in self._hosts.values()]
        if not faults:
            return "There is no model."
        return None if None in faults else " ".join(fault for fault in faults if fault is not None)

    async def models(self) -> Sequence[ModelCard]:
        """See the port."""
        cards = await asyncio.gather(
            *(host.card() for _, host in sorted(self._hosts.items())), return_exceptions=True
        )
        return [card for card in cards if isinstance(card, ModelCard)]

    async def card(self, name: str) -> ModelCard | None:
        """See the port."""
        host = self._hosts.get(name)
        return await host.card() if host is not None else None

    async def encode(self, model: str, prompt: Prompt) -> Encoded:
        """See the port."""
        return await self._host(model).encode(prompt)

    async def load(self, model: str, user: str = "") -> None:
        """See the port."""
        host = self._host(model)
        await host.card()
        self._residence.want(model, user, host.memory_bytes or 0)
        self._arrange()
        while not self._residence.has(model, user):
            if self._closed:
                raise ModelUnavailable("The service is stopping.")
            await self._changed.wait()
        await host.ready()

    def release(self, user: str = "") -> None:
        """See the port."""
        self._residence.leave(user, self._clock())
        self._arrange()

    async def generate(self, job: Job) -> Generation:
        """See the port."""
        host = self._hosts.get(job.model)
        if host is None:
            raise RuntimeCrashed(f"there is no model {job.model}")
        return host.generate(job)

    def statistics(self) -> Sequence[Statistics]:
        """See the port."""
        return [
            msgspec.structs.replace(host.statistics(), waiting=self._residence.waiting(name))
            for name, host in self._hosts.items()
        ]

    def processes(self) -> Sequence[int]:
        """The ids of the child processes that run now."""
        keepers = [keeper for host in self._hosts.values() for keeper in host.keepers()]
        return [keeper.pid for keeper in keepers if keeper.pid is not None]

    async def close(self) -> None:
        """See the port."""
        self._closed = True
        self._tell()
        for task in (self._warming, self._looking):
            if task is not None:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
        await asyncio.gather(*(host.close() for host in self._hosts.values()), *self._unloading)

    def _host(self, name: str) -> Host:
        host = self._hosts.get(name)
        if host is None:
            raise ModelUnavailable(f"There is no model {name}.")
        return host

    async def _warm(self) -> None:
        """Load what fits side by side, and let it go when it is there: only then does it begin to be idle."""
        begun: list[Host] = []
        for name, host in self._hosts.items():
            try:
                await host.card()
            except ModelUnavailable:
                continue  # told where it was found
            if self._residence.begin(name, host.memory_bytes or 0, self._clock()):
                host.engine.load()
            if self._residence.is_in(name):
                self._residence.want(name, _START, host.memory_bytes or 0)
                self._arrange()
                begun.append(host)
        await asyncio.gather(*(host.ready() for host in begun), return_exceptions=True)
        self.release(_START)

    async def _look_on(self) -> None:
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            try:
                await self.look()
            except Exception as error:  # noqa: BLE001 -- models would stay for ever, and the next look may go well
                self._log(f"the look after models met an internal error: {error!r}")

    def _arrange(self) -> None:
        """Do what has become due, and have everybody who waits look again."""
        if self._closed:
            return
        moves = self._residence.moves(self._clock())
        for name in moves.load:
            self._hosts[name].engine.load()
        for name in moves.unload:
            self._unload(name)
        self._tell()

    def _drop(self, name: str) -> None:
        """The engine of a model is given up: what it had is free."""
        if self._residence.fail(name):
            self._unload(name)

    def _unload(self, name: str) -> None:
        task = asyncio.create_task(self._unload_whole(name), name=f"unload {name}")
        self._unloading.add(task)
        task.add_done_callback(self._unloading.discard)

    async def _unload_whole(self, name: str) -> None:
        host = self._hosts[name]
        await host.engine.keeper.stop()
        if host.fault is None:
            self._log(f"model {name} is unloaded; it is loaded again when it is needed")
        self._residence.gone(name)
        self._arrange()

    def _tell(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()
