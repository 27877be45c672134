"""The door to where models run.

The runtime draws tokens; it stores nothing and knows nothing of tasks. What a caller has been given and has not
committed may be drawn again: the same job always draws the same tokens (when the card says `exact`).
"""

from collections.abc import Collection, Sequence
from enum import StrEnum
from typing import Protocol

import msgspec

from perdure.domain.model import Encoded, ModelCard, Prompt, Sampling, Shape
from perdure.domain.parts import Part, Text


class End(StrEnum):
    """Why a generation ended by itself."""

    STOP = "stop"  # the model closed its turn
    LENGTH = "length"  # `tokens_max` were drawn


class Piece(msgspec.Struct, frozen=True):
    """Newly drawn tokens and what they stand for.

    A piece ends where a character ends and where it is certain what its tokens mean (what may be the beginning of a
    call or of a stop text waits), so parts can be joined in any grouping. Tokens that show nothing by themselves (the
    first bytes of a character, the marks around a call, the model's end mark) come with the next piece that shows
    something, or with the last piece, whose `end` is set. Only there may an unfinished character be replaced, once,
    by U+FFFD.
    """

    parts: tuple[Part, ...]
    tokens: tuple[int, ...]
    end: End | None = None

    @property
    def text(self) -> str:
        """The text of messages in it."""
        return "".join(part.text for part in self.parts if isinstance(part, Text))


class Job(msgspec.Struct, frozen=True):
    """One text to draw.

    `prompt` are the token ids to read; `done` the token ids drawn before, in order, always up to the end of a piece:
    the generation goes on after them and gives only what comes next. `tokens_max` bounds `done` and new tokens
    together, the model's end mark counted. `shape` is what `encode` gave with the prompt.
    """

    ident: str
    model: str
    prompt: tuple[int, ...]
    done: tuple[int, ...]
    sampling: Sampling
    tokens_max: int
    shape: Shape = Shape()


class RuntimeCrashed(Exception):
    """The process that drew tokens is gone, or spoke nonsense. The job can be started again from what was kept."""


class JobFailed(Exception):
    """The runtime refuses this job for good (numbers that are not numbers, an impossible token); says why."""


class PromptTooLong(Exception):
    """The prompt cannot fit the window, which was found out before it was encoded. `size` says how long it is:
    "4000000 bytes"."""

    def __init__(self, size: str) -> None:
        super().__init__(size)
        self.size = size


class Statistics(msgspec.Struct, frozen=True):
    """Counters of one model since its process started. `loads` and `starts` count since the service started: how
    often it was loaded, and the processes that this took; more of these is crashes.

    `tokens_read` and `tokens_reused` are of prompts and of what was drawn before a text was taken up again.
    `memory_bytes` is what it takes while it is loaded, None until that is known. `waiting` is how many wait for room
    for it, `fault` why it cannot be used, in one sentence.
    """

    model: str
    loaded: bool
    starts: int
    tokens_drawn: int
    tokens_read: int
    tokens_reused: int
    slots: int
    slots_used: int
    loads: int = 0
    memory_bytes: int | None = None
    waiting: int = 0
    fault: str | None = None


class Generation(Protocol):
    """A job under way, which holds a slot until it has ended, failed or been stopped."""

    async def take(self) -> Sequence[Piece]:
        """Everything drawn since the last call, at least one piece; waits for it.

        Never called again after a piece with `end`. Raises `RuntimeCrashed` or `JobFailed`, after every piece drawn
        before has been taken. Cancelling the waiting loses no piece.
        """
        ...

    async def stop(self) -> None:
        """Stop drawing and free the slot; returns when it is free (or its process gone). May be repeated."""
        ...


class Runtime(Protocol):
    """The models of this service and the processes that run them."""

    @property
    def slots(self) -> int:
        """How many generations may be under way at once; 0 until that is known."""
        ...

    @property
    def usable(self) -> Collection[str]:
        """The names of the models that nothing speaks against; work for others waits."""
        ...

    def fault(self) -> str | None:
        """Why no model can be asked at the moment, in one sentence; `None` when all is well. For `/readyz`."""
        ...

    async def models(self) -> Sequence[ModelCard]:
        """Every model that can be asked, by name; empty while `fault` says why. Waits for a start under way."""
        ...

    async def card(self, name: str) -> ModelCard | None:
        """The model of exactly that name, or `None`. Raises `ModelUnavailable` when it exists and cannot be used."""
        ...

    async def encode(self, model: str, prompt: Prompt) -> Encoded:
        """The token ids of the prompt through the model's own chat template, up to where the answer starts, and the
        shape of the answer. What a schema asks for and an answer cannot be held to is left out of the shape and named
        in `dropped`, unless its function or format is `strict`. `prompt.places` are the caller's paths.

        Raises `InvalidRequest` where the template refuses the messages (param `input`) and where a schema cannot be
        held to (the param is the path of the place in it); `PromptTooLong`, or gives tokens that fill the window;
        `ModelUnavailable` where there is no such process.
        """
        ...

    async def load(self, model: str, user: str = "") -> None:
        """Return when the model can draw, which may have to wait until others leave it their memory. From then on it
        stays loaded until `release` is called with the same user, also where this call ends otherwise. May be
        repeated. Raises `ModelUnavailable` with the reason.
        """
        ...

    def release(self, user: str = "") -> None:
        """The user needs no model any more, and waits for none. May be repeated."""
        ...

    async def generate(self, job: Job) -> Generation:
        """Start drawing. The model has been loaded; more than `slots` at once is a mistake of the caller.

        Raises `RuntimeCrashed` when the process has gone since `load`.
        """
        ...

    def statistics(self) -> Sequence[Statistics]:
        """Counters, one entry a model. Never waits."""
        ...

    async def close(self) -> None:
        """End every process that was started and return when they are gone. May be repeated."""
        ...
