"""Signed reads: the one rule by which an answer gets its mark, and by which a mark is recognised again (S3).

A mark stands for one answer to one client. Who brings it back is told that his answer still holds, so the one thing
that must never happen is a mark on an answer that it does not stand for.

* The version is taken before and after the read, and the answer is marked only if both are equal: then nothing was
  committed in between, and every row was read in that one state (S1). A version from after the read alone would lock
  a client on an older answer for ever, one from before it alone would stand for two answers (S2).
* What cannot change any more has a validator of its own, which other work does not void. It is as good before the
  read as after it, so no second version is needed. Such a read gives the answer that it stands for, or fails.
* A version that cannot be told is no version: the answer goes out without a mark (S4). What fails in the read itself
  is the caller's (S5).
* Whether the caller may see the thing is looked at first, each time, and may depend on the clock.
"""

import base64
import hashlib
from collections.abc import Awaitable, Callable, Generator
from typing import Any, Generic, Protocol, TypeVar

import msgspec

from perdure.domain.errors import Unavailable

T = TypeVar("T")

_MARK_BYTES = 18


class Versioned(Protocol):
    """What has a version; the contract stands at `ports.storage.Store`."""

    async def version(self) -> str:
        """The version now."""
        ...


class Found(Generic[T]):
    """What was found, not rendered yet. The caller may see it.

    `settled` identifies a state that cannot change any more, or a content: for ever, whatever else is committed,
    `render` gives the same value wherever `settled` is the same, or raises. None where the state may change.
    """

    __slots__ = ("render", "settled")

    def __init__(self, render: Callable[[], Awaitable[T]], settled: str | None = None) -> None:
        self.render = render
        self.settled = settled


class Reading(Generic[T]):
    """A read that is still to be made: awaited for its value alone, or handed to the rule.

    `find` is the cheap part, which raises `NotFound` for what the caller may not see.
    """

    __slots__ = ("find",)

    def __init__(self, find: Callable[[], Awaitable[Found[T]]]) -> None:
        self.find = find

    def __await__(self) -> Generator[Any, Any, T]:
        return self._value().__await__()

    async def _value(self) -> T:
        return await (await self.find()).render()


class Ask(msgspec.Struct, frozen=True):
    """Who asks for what. A mark holds for this client, this whole target and this build of the program only, since
    another build may render the same rows otherwise. `known` are the marks that the client has."""

    client_id: int
    target: str
    build: str
    known: frozenset[str] = frozenset()

    def mark(self, kind: str, validator: str) -> str:
        """The mark of the answer that `validator` stands for. It tells nothing of what it was made of."""
        parts = msgspec.json.encode((kind, validator, self.client_id, self.target, self.build))
        return base64.urlsafe_b64encode(hashlib.blake2b(parts, digest_size=_MARK_BYTES).digest()).decode()


class Signed(msgspec.Struct, Generic[T], frozen=True):
    """An answer, with its mark where it has one."""

    value: T
    mark: str | None


class NotModified(msgspec.Struct, frozen=True):
    """The answer that the client has under this mark is the answer now."""

    mark: str


class Signer:
    """The rule."""

    def __init__(self, store: Versioned, report: Callable[[str, BaseException], None]) -> None:
        self._store = store
        self._report = report

    async def __call__(self, reading: Reading[T], ask: Ask) -> Signed[T] | NotModified:
        """Make a read, unless the client has its answer already."""
        before = await self._version()
        found = await reading.find()
        mark = _mark(ask, found.settled, before)
        if mark in ask.known:
            return NotModified(mark)
        value = await found.render()
        if found.settled is None and (before is None or await self._version() != before):
            mark = None
        return Signed(value, mark)

    async def _version(self) -> str | None:
        try:
            return await self._store.version()
        except Unavailable:
            return None  # the store is in trouble, or closed, which is told elsewhere
        except Exception as error:  # noqa: BLE001 -- whatever is wrong with the version, the read goes on without it
            self._report("version", error)
            return None


def _mark(ask: Ask, settled: str | None, version: str | None) -> str | None:
    if settled is not None:
        return ask.mark("settled", settled)
    return None if version is None else ask.mark("version", version)
