"""How the tests of a store are run."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from functools import wraps
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

import pytest

from perdure.ports.storage import Store, TaskRecord

P = ParamSpec("P")
S = TypeVar("S")


async def outcomes(calls: Sequence[Awaitable[object]]) -> list[object]:
    """What became of calls made at the same time: None or an exception each."""
    return list(await asyncio.gather(*calls, return_exceptions=True))


def idents(tasks: Sequence[TaskRecord]) -> list[str]:
    """Their names."""
    return [task.ident for task in tasks]


class Place:
    """Where a store lives for one test; what is still open at the end is closed."""

    def __init__(self, opener: Callable[[], Awaitable[Store]]) -> None:
        self._opener = opener
        self._store: Store | None = None

    async def open(self) -> Store:
        """Open the store, closing the one before."""
        await self.leave()
        self._store = await self._opener()
        return self._store

    async def leave(self) -> None:
        """Close what is open."""
        if self._store is not None:
            await self._store.close()


def scenario(
    test: Callable[Concatenate[S, Place, P], Coroutine[Any, Any, None]],
) -> Callable[Concatenate[S, Place, P], None]:
    """Run an async test on an event loop of its own."""

    @wraps(test)
    def run(self: S, place: Place, *args: P.args, **parameters: P.kwargs) -> None:
        async def play() -> None:
            try:
                await test(self, place, *args, **parameters)
            finally:
                await place.leave()

        asyncio.run(play())

    return run


class Suite(ABC):
    """Tests of a store; each gets a folder of its own."""

    @abstractmethod
    async def open_store(self, folder: Path) -> Store:
        """Open the store that lives in `folder`, making it the first time."""

    @pytest.fixture
    def place(self, tmp_path: Path) -> Place:
        """An empty place."""
        return Place(lambda: self.open_store(tmp_path))
