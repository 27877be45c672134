"""A runtime that plays scripts: what the engine is tested against.

It keeps the whole contract of `Runtime` without a model or a process. The text is a function: (prompt, position)
gives the token, so a job that goes on after `done` draws what an undisturbed one would have drawn; a `done` that was
never drawn is refused. A script says how long the text is, where it waits, and what goes wrong where.
"""

import asyncio
import hashlib
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field

import msgspec

from perdure.domain.errors import ModelUnavailable
from perdure.domain.model import Encoded, ModelCard, Prompt
from perdure.domain.parts import Part, Text, joined
from perdure.ports.runtime import End, Generation, Job, JobFailed, Piece, Statistics

END_MARK = 0
TOKENS = 997
MODEL = "tiny"


@dataclass
class Script:
    """How the answer to one prompt goes.

    The model closes its turn with the token number `length`, whose text is empty; `silent` are positions of tokens
    that show no text by themselves, `shows` what others stand for instead of a word. Before position `p` is drawn,
    `gates[p]` has to be set. `troubles` are used up in turn: each is raised instead of drawing its position or a
    later one; with `fells_all` every other text under way meets it too, as when a process dies. `stop_gate` has to be
    set before a stop returns; `stop_trouble` is raised by it.
    """

    length: int = 6
    gates: dict[int, asyncio.Event] = field(default_factory=dict[int, asyncio.Event])
    silent: frozenset[int] = frozenset()
    shows: dict[int, tuple[Part, ...]] = field(default_factory=dict[int, tuple[Part, ...]])
    troubles: list[tuple[int, Exception]] = field(default_factory=list[tuple[int, Exception]])
    fells_all: bool = False
    stop_gate: asyncio.Event | None = None
    stop_trouble: Exception | None = None


def encoded(text: str) -> tuple[int, ...]:
    """The token ids of a prompt: one a letter."""
    return tuple(ord(letter) for letter in text)


def token(prompt: tuple[int, ...], position: int) -> int:
    """The token at a position of the answer."""
    digest = hashlib.sha256(msgspec.json.encode((prompt, position))).digest()
    return 1 + int.from_bytes(digest[:4], "little") % TOKENS


def text(prompt: tuple[int, ...], tokens: int) -> str:
    """What an undisturbed run shows with so many tokens."""
    return "".join(_word(token(prompt, position)) for position in range(tokens))


def _word(number: int) -> str:
    return f"w{number} "


class ScriptedGeneration:
    """Implements `Generation`: draws in a task of its own, a token a turn of the event loop."""

    def __init__(
        self,
        job: Job,
        script: Script,
        drawn: Callable[[], None],
        freed: Callable[[], None],
        felled: Callable[[Exception], None],
    ) -> None:
        self._job = job
        self._script = script
        self._drawn = drawn
        self._freed = freed
        self._felled = felled
        self._fault: Exception | None = None
        self._pieces: list[Piece] = []
        self._news = asyncio.Event()
        self._stopped = False
        self._drawing = asyncio.create_task(self._draw(), name=f"draw {job.ident}")

    async def take(self) -> Sequence[Piece]:
        """Everything drawn since the last call."""
        while not self._pieces:
            if self._drawing.done():
                await self._drawing  # raises what went wrong
                if self._fault is not None:
                    raise self._fault
                raise JobFailed("the generation was stopped")
            self._news.clear()
            await self._news.wait()
        pieces, self._pieces = self._pieces, []
        return pieces

    def fell(self, fault: Exception) -> None:
        """Another text has brought the process down."""
        self._fault = fault
        self._drawing.cancel()

    async def stop(self) -> None:
        """Stop drawing and free the slot."""
        self._drawing.cancel()
        await asyncio.gather(self._drawing, return_exceptions=True)
        if self._script.stop_gate is not None:
            await self._script.stop_gate.wait()
        if not self._stopped:
            self._stopped = True
            self._freed()
        if self._script.stop_trouble is not None:
            raise self._script.stop_trouble

    async def _draw(self) -> None:
        try:
            await self._draw_on()
        except asyncio.CancelledError:
            return
        finally:
            self._news.set()

    async def _draw_on(self) -> None:
        done, gathered = list(self._job.done), list[int]()
        while True:
            position, end = len(done), self._end(len(done))
            if end is not None:
                self._give(Piece(self._shown(gathered, position), tuple(gathered), end))
                return
            await self._obstacles(position)
            self._drawn()
            closing = position == self._script.length - 1
            gathered.append(END_MARK if closing else token(self._job.prompt, position))
            done.append(gathered[-1])
            if not closing and position not in self._script.silent and self._end(len(done)) is None:
                self._give(Piece(self._shown(gathered, len(done)), tuple(gathered)))
                gathered = []
            await asyncio.sleep(0)

    def _end(self, drawn: int) -> End | None:
        if drawn >= self._script.length:
            return End.STOP
        return End.LENGTH if drawn >= self._job.tokens_max else None

    async def _obstacles(self, position: int) -> None:
        gate = self._script.gates.get(position)
        if gate is not None:
            await gate.wait()
        if self._script.troubles and self._script.troubles[0][0] <= position:
            trouble = self._script.troubles.pop(0)[1]
            if self._script.fells_all:
                self._felled(trouble)
            raise trouble

    def _shown(self, tokens: Sequence[int], end: int) -> tuple[Part, ...]:
        """What tokens stand for that end before the position `end`."""
        words = {place: (Text(_word(number)),) for place, number in enumerate(tokens, end - len(tokens)) if number}
        return tuple(joined(part for place, word in words.items() for part in self._script.shows.get(place, word)))

    def _give(self, piece: Piece) -> None:
        self._pieces.append(piece)
        self._news.set()


class ScriptedRuntime:
    """Implements `Runtime`. Attributes are what a test sets before, and looks at after.

    `cards` are the models; `unavailable` says of a model why it cannot be used; `dropped` is told of every prompt.
    `prompts` are what was encoded so far and `jobs` the starts, `drawn` counts tokens, `loads` loads, `users` are who
    holds a model, `busiest` the most generations that were under way at once.
    """

    def __init__(self, slots: int = 1, window: int = 4096) -> None:
        self.cards = {MODEL: card(MODEL, window)}
        self.unavailable: dict[str, str] = {}
        self.jobs: list[Job] = []
        self.prompts: list[Prompt] = []
        self.dropped: tuple[str, ...] = ()
        self.drawn = 0
        self.loads = 0
        self.users: set[str] = set()
        self.busy = 0
        self.busiest = 0
        self._slots = slots
        self._scripts: dict[tuple[int, ...], Script] = {}
        self._under_way: dict[str, ScriptedGeneration] = {}
        self.load_gate: asyncio.Event | None = None
        self.models_gate: asyncio.Event | None = None

    def play(self, prompt: str, script: Script) -> Script:
        """Answer a prompt by a script; returns it."""
        self._scripts[encoded(prompt)] = script
        return script

    def resize(self, slots: int) -> None:
        """Have another number of slots from now on."""
        self._slots = slots

    @property
    def slots(self) -> int:
        """How many generations may be under way at once."""
        return self._slots

    @property
    def usable(self) -> Collection[str]:
        """The models that nothing speaks against."""
        return self.cards.keys() - self.unavailable.keys()

    def fault(self) -> str | None:
        """Why no model can be asked."""
        return next(iter(self.unavailable.values()), None)

    async def models(self) -> Sequence[ModelCard]:
        """Every model that can be asked."""
        if self.models_gate is not None:
            await self.models_gate.wait()
        return [self.cards[name] for name in sorted(self.cards) if name not in self.unavailable]

    async def card(self, name: str) -> ModelCard | None:
        """The model of that name."""
        await asyncio.sleep(0)
        self._check(name)
        return self.cards.get(name)

    async def encode(self, model: str, prompt: Prompt) -> Encoded:
        """The token ids of the conversation."""
        self._check(model)
        self.prompts.append(prompt)
        return Encoded(encoded("".join(message.content for message in prompt.messages)), dropped=self.dropped)

    async def load(self, model: str, user: str = "") -> None:
        """Return when the model can draw."""
        self.loads += 1
        self.users.add(user)
        await asyncio.sleep(0)
        self._check(model)
        if model not in self.cards:
            raise ModelUnavailable(f"There is no model {model}.")
        if self.load_gate is not None:
            await self.load_gate.wait()

    def release(self, user: str = "") -> None:
        """The user needs it no more."""
        self.users.discard(user)

    async def generate(self, job: Job) -> Generation:
        """Start drawing."""
        assert job.ident in self.users, "a model that is not held may be unloaded"  # noqa: S101 -- a check of the caller
        script = self._scripts.setdefault(job.prompt, Script())
        drawn_before = tuple(self._token(job, script, position) for position in range(len(job.done)))
        assert job.done == drawn_before, "a job goes on after tokens that were never drawn"  # noqa: S101 -- a check of the caller
        assert self.busy < self._slots, "more generations than slots"  # noqa: S101 -- a check of the caller
        self.jobs.append(job)
        self.busy += 1
        self.busiest = max(self.busiest, self.busy)
        generation = ScriptedGeneration(
            job, script, self._count, lambda: self._free(job.ident), lambda fault: self._fell(job.ident, fault)
        )
        self._under_way[job.ident] = generation
        return generation

    def statistics(self) -> Sequence[Statistics]:
        """Counters."""
        return [Statistics(name, True, 1, self.drawn, 0, 0, self._slots, self.busy) for name in sorted(self.cards)]

    async def close(self) -> None:
        """There is no process to end."""

    def _token(self, job: Job, script: Script, position: int) -> int:
        return END_MARK if position == script.length - 1 else token(job.prompt, position)

    def _check(self, name: str) -> None:
        if name in self.unavailable:
            raise ModelUnavailable(self.unavailable[name])

    def _count(self) -> None:
        self.drawn += 1

    def _free(self, ident: str) -> None:
        self.busy -= 1
        self._under_way.pop(ident, None)

    def _fell(self, ident: str, fault: Exception) -> None:
        for other, generation in self._under_way.items():
            if other != ident:
                generation.fell(fault)


def card(name: str, window: int = 4096, digest: str = "d" * 64, fingerprint: str = '{"threads":1}') -> ModelCard:
    """A model that draws exactly."""
    return ModelCard(
        name=name,
        digest=digest,
        size_bytes=1,
        context_length=window,
        exact=True,
        fingerprint=fingerprint,
        created_at=1_700_000_000,
    )
