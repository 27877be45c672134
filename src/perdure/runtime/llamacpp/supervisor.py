"""The runtime of llama.cpp models: `perdure.ports.runtime.Runtime` over child processes.

This process never loads the library: a damaged file, an abort or a lack of memory kills a child, and the child is
replaced.
"""

import asyncio
from collections.abc import Callable, Collection, Sequence
from pathlib import Path

from perdure.domain.errors import ModelUnavailable
from perdure.domain.model import Encoded, ModelCard, Prompt
from perdure.ports.runtime import Generation, Job, RuntimeCrashed, Statistics
from perdure.runtime.llamacpp.host import Host, HostSettings, ModelFile


def _be_quiet(_line: str) -> None:
    return


class LlamaRuntime:
    """Implements `Runtime` for `models`, whose names differ.

    `slots` texts at once, each in a window of up to `window` tokens, as far as a model and `memory_max_bytes` allow:
    the key/value memory of all models together, in bytes, asked for when a model starts. With `threads` other than 1
    no model is exact. `library` is a libllama to use instead of the one in the `xllamacpp` wheel. `log` gets one
    line for each thing an operator may want to know.
    """

    def __init__(
        self,
        models: Sequence[ModelFile],
        *,
        slots: int = 4,
        window: int = 4096,
        threads: int = 1,
        memory_max_bytes: int = 4 << 30,
        library: Path | None = None,
        log: Callable[[str], None] = _be_quiet,
    ) -> None:
        settings = HostSettings(
            slots=slots,
            window=window,
            threads=threads,
            memory_max_bytes=memory_max_bytes // max(1, len(models)),
            library=library,
            log=log,
        )
        self._hosts = {model.name: Host(model, settings) for model in models}

    def start(self) -> None:
        """Start the children of every model in the background. To be called once, on the running event loop."""
        for host in self._hosts.values():
            host.start()

    @property
    def slots(self) -> int:
        """See the port."""
        return min((host.engine.slots for host in self._hosts.values()), default=0)

    @property
    def usable(self) -> Collection[str]:
        """See the port."""
        return [name for name, host in self._hosts.items() if host.fault is None]

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

    async def load(self, model: str) -> None:
        """See the port."""
        await self._host(model).load()

    async def generate(self, job: Job) -> Generation:
        """See the port."""
        host = self._hosts.get(job.model)
        if host is None:
            raise RuntimeCrashed(f"there is no model {job.model}")
        return host.generate(job)

    def statistics(self) -> Sequence[Statistics]:
        """See the port."""
        return [host.statistics() for host in self._hosts.values()]

    def processes(self) -> Sequence[int]:
        """The ids of the child processes that run now."""
        keepers = [keeper for host in self._hosts.values() for keeper in host.keepers()]
        return [keeper.pid for keeper in keepers if keeper.pid is not None]

    async def close(self) -> None:
        """See the port."""
        await asyncio.gather(*(host.close() for host in self._hosts.values()))

    def _host(self, name: str) -> Host:
        host = self._hosts.get(name)
        if host is None:
            raise ModelUnavailable(f"There is no model {name}.")
        return host
