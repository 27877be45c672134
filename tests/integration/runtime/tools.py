"""A runtime with its child processes, and the small steps that every test of it takes."""

import asyncio
import os
import select
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from perdure.domain.model import Sampling, Shape
from perdure.ports.runtime import Generation, Job, Piece
from perdure.runtime.llamacpp.defaults import Recommended
from perdure.runtime.llamacpp.host import ModelFile
from perdure.runtime.llamacpp.supervisor import LlamaRuntime

PATIENCE_SECONDS = 30.0
PROMPT = tuple(range(40, 60))
FREE = Shape()


def run(test: Coroutine[Any, Any, None]) -> None:
    """Run a test to its end, which it must reach in time."""

    async def bounded() -> None:
        async with asyncio.timeout(PATIENCE_SECONDS):
            await test

    asyncio.run(bounded())


@asynccontextmanager
async def running(
    path: Path, recommended: Recommended | None = None, **settings: Any
) -> AsyncGenerator[LlamaRuntime]:
    """A runtime of one model, named `m`, closed at the end."""
    runtime = LlamaRuntime([ModelFile("m", path, recommended or Recommended())], **settings)
    runtime.start()
    try:
        yield runtime
    finally:
        await runtime.close()


def make_job(
    seed: int = 1,
    *,
    prompt: tuple[int, ...] = PROMPT,
    done: tuple[int, ...] = (),
    tokens: int = 50,
    temperature: float = 1.0,
    shape: Shape = FREE,
) -> Job:
    """A job for the model `m`."""
    sampling = Sampling(temperature=temperature, top_p=1.0, seed=seed)
    return Job(f"job {seed}", "m", prompt, done, sampling, tokens, shape)


async def rest_of(generation: Generation) -> list[Piece]:
    """Every piece up to the end."""
    pieces: list[Piece] = []
    while not pieces or pieces[-1].end is None:
        pieces += await generation.take()
    return pieces


async def rest_until(generation: Generation, trouble: type[Exception]) -> tuple[list[Piece], str]:
    """Every piece up to the trouble that is expected, and its words."""
    pieces: list[Piece] = []
    try:
        while not pieces or pieces[-1].end is None:
            pieces += await generation.take()
    except trouble as error:
        return pieces, str(error)
    raise AssertionError(f"the text ended without {trouble.__name__}")


async def until(condition: Callable[[], object]) -> None:
    """Wait for something that other tasks of this loop bring about."""
    while not condition():  # noqa: ASYNC110 - what is waited for are counters of the runtime, not events
        await asyncio.sleep(0)


async def draw(runtime: LlamaRuntime, job: Job) -> list[Piece]:
    """A whole text."""
    return await rest_of(await runtime.generate(job))


def tokens_of(pieces: Iterable[Piece]) -> tuple[int, ...]:
    """The token ids of pieces, in order."""
    return tuple(token for piece in pieces for token in piece.tokens)


def text_of(pieces: Iterable[Piece]) -> str:
    """The text of pieces."""
    return "".join(piece.text for piece in pieces)


def is_gone(pid: int, seconds: float = 0.0) -> bool:
    """Whether a process ends within a time. One that has ended and that nobody has collected counts as gone."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([descriptor], [], [], seconds)[0])
    finally:
        os.close(descriptor)
