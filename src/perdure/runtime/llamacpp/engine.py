"""The engine of one model as the service sees it: texts in, pieces out, over a child that may die at any time."""

from collections.abc import Awaitable, Callable

from perdure.ports.runtime import End, Job, JobFailed, Piece, RuntimeCrashed, Statistics
from perdure.runtime.llamacpp import wire
from perdure.runtime.llamacpp.generation import LlamaGeneration, Trouble
from perdure.runtime.llamacpp.keeper import Keeper

_MODULE = "perdure.runtime.llamacpp.engine_child"


class Engine:
    """Runs texts in the engine child of the model `name`. `opening`, `log` and `failed` are as in
    `Keeper`.

    `slots` is how many texts at once: 0 until it is known what fits.
    """

    def __init__(
        self,
        name: str,
        *,
        opening: Callable[[], Awaitable[wire.Order]],
        log: Callable[[str], None],
        failed: Callable[[], None],
    ) -> None:
        self._name = name
        self.slots = 0
        self.loads = 0
        self._runs: dict[int, LlamaGeneration] = {}
        self._last_run = 0
        self._tokens_drawn = 0
        self._tokens_read = 0
        self._tokens_reused = 0
        self.keeper = Keeper(
            _MODULE,
            wire.EngineReady,
            opening=opening,
            receive=self._receive,
            lost=self._lose,
            log=log,
            failed=failed,
        )

    def load(self) -> None:
        """Begin to load the model; returns at once."""
        self.loads += 1
        self.keeper.start()

    async def ready(self) -> wire.EngineReady:
        """Wait until the engine can draw. Raises `ModelUnavailable`."""
        ready = await self.keeper.ready()
        self.slots = ready.slots
        return ready

    def generate(self, job: Job) -> LlamaGeneration:
        """Start a text. Raises `RuntimeCrashed` where no child is ready."""
        child = self.keeper.child
        if child is None:
            raise RuntimeCrashed(f"the engine of {self._name} is not running")
        if len(self._runs) >= self.slots:
            raise AssertionError(f"more than {self.slots} generations at once")
        self._last_run += 1
        run = self._last_run
        generation = LlamaGeneration(lambda: child.send(wire.Stop(run)))
        child.send(_draw(run, job))
        self._runs[run] = generation
        return generation

    def statistics(self) -> Statistics:
        """The counters."""
        return Statistics(
            model=self._name,
            loaded=self.keeper.child is not None,
            starts=self.keeper.starts,
            tokens_drawn=self._tokens_drawn,
            tokens_read=self._tokens_read,
            tokens_reused=self._tokens_reused,
            slots=self.slots,
            slots_used=len(self._runs),
            loads=self.loads,
        )

    def _receive(self, answer: wire.Answer) -> None:
        if not isinstance(answer, wire.Step):
            raise wire.Nonsense(f"{type(answer).__name__} from an engine")
        self._tokens_drawn, self._tokens_read = answer.tokens_drawn, answer.tokens_read
        self._tokens_reused = answer.tokens_reused
        for drawn in answer.drawn:
            self._show(drawn)
        for failed in answer.failed:
            self._finish(failed.run, JobFailed, failed.reason)
        for run in answer.freed:
            self._finish(run, JobFailed, "the generation was stopped")

    def _show(self, drawn: wire.Drawn) -> None:
        generation = self._runs.get(drawn.run)
        if generation is None:
            return
        end = End(drawn.end) if drawn.end is not None else None
        generation.give(Piece(parts=drawn.parts, tokens=drawn.tokens, end=end))
        if end is not None:
            self._finish(drawn.run, JobFailed, "the generation has ended")

    def _finish(self, run: int, trouble: type[Trouble], reason: str) -> None:
        """The text is over and its slot free. A text may be over twice: stopped, and ended in the same moment."""
        generation = self._runs.pop(run, None)
        if generation is not None:
            generation.fail(trouble, reason)
            generation.free()

    def _lose(self, how: str) -> None:
        self._tokens_drawn = self._tokens_read = self._tokens_reused = 0
        for run in list(self._runs):
            self._finish(run, RuntimeCrashed, f"the engine of {self._name} ended with {how}")


def _draw(run: int, job: Job) -> wire.Draw:
    return wire.Draw(
        run=run,
        prompt=job.prompt,
        done=job.done,
        sampling=job.sampling,
        tokens_max=job.tokens_max,
        shape=job.shape,
    )
