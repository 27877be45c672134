"""A service that plays a script in memory: what the HTTP door is tested against.

It keeps the whole `Service` contract with the real events of the domain and nothing durable. A response says `TEXTS`
and completes at once; with `hold` it stops after the first text, until the test calls `finish`, `fail` or `drain`.
"""

import asyncio
import math
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

import msgspec

from perdure.domain.errors import InvalidRequest, NotFound, PerdureError, Unauthenticated
from perdure.domain.events import TERMINAL_TYPES, Event
from perdure.domain.items import Item, named
from perdure.domain.journal import Journal
from perdure.domain.lifecycle import TERMINAL, Status, shown
from perdure.domain.model import ModelCard
from perdure.domain.parts import Text
from perdure.domain.principal import ALL_SCOPES, Principal, Scope
from perdure.domain.request import CreateRequest
from perdure.domain.response import ResponseError
from perdure.engine.service import Accepted, Health, Listed, Page, Service, Step, Task, Workload
from perdure.engine.signed import Ask, Found, NotModified, Reading, Signed, Signer
from perdure.ports.runtime import Statistics
from perdure.ports.storage import Condition, WalCondition

T = TypeVar("T")

MODEL = "scripted-model"
TEXTS = ("Hello", ", wörld", "!")
NOW = 1_790_000_000
OWNER_TOKEN = "owner-token"  # noqa: S105 -- a name in a script
OTHER_TOKEN = "other-token"  # noqa: S105 -- as above
WINDOW_CHARS = 4096
SOUND = Condition(
    engine="SQLite 3.99.1",
    trouble=None,
    reason=None,
    commits=4,
    writes=9,
    writes_refused=1,
    write_waits=((0.001, 6), (0.1, 8), (math.inf, 9)),
    write_wait_seconds_sum=1.5,
    wal=WalCondition(
        state="ok",
        pages=12,
        checkpointed_pages=11,
        limit_pages=16_384,
        size_bytes=49_472,
        size_limit_bytes=67_108_864,
        last_checkpoint_at=NOW * 1_000_000,
        checkpoints=3,
        checkpoints_failed=2,
        checkpoints_unmeasured=1,
    ),
)
CARD = ModelCard(MODEL, "ab" * 32, 125_000, WINDOW_CHARS, True, "{}", created_at=NOW, temperature=0.6, top_p=0.8)


@dataclass
class Kept:
    """A response of the script."""

    principal: Principal
    request: CreateRequest
    items: Sequence[Item]
    journal: Journal
    status: Status = Status.QUEUED
    events: list[Event] = field(default_factory=list[Event])
    error: ResponseError | None = None
    attendants: int = 0
    left: int = 0
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    def record(self, events: Sequence[Event], status: Status) -> None:
        """Make events visible and wake who waits for them."""
        self.events.extend(events)
        self.status = status
        self.changed.set()
        self.changed = asyncio.Event()


class ScriptedService:
    """The script. Attributes are what a test sets before, and looks at after."""

    def __init__(self) -> None:
        self.hold = False
        self.draining = False
        self.keepalive_seconds = 30.0
        self.refusal: Exception | None = None
        self.unready: str | None = None
        self.queued: int | None = 2
        self.condition_now = SOUND
        self.version_trouble: Exception | None = None
        self.reports: list[tuple[str, BaseException]] = []
        self.kept: dict[str, Kept] = {}
        self.tokens = {
            OWNER_TOKEN: Principal(1, "owner", ALL_SCOPES),
            OTHER_TOKEN: Principal(2, "other", ALL_SCOPES),
        }

    def allow(self, token: str, *scopes: Scope) -> None:
        """Add a client with some scopes."""
        self.tokens[token] = Principal(len(self.tokens) + 1, token, frozenset(scopes))

    def finish(self, ident: str) -> None:
        """Let a held response complete."""
        kept = self.kept[ident]
        for text in TEXTS[1:]:
            kept.record(kept.journal.write([Text(text)], (2,)), Status.RUNNING)
        kept.record(kept.journal.finish(NOW + 1), Status.COMPLETED)

    def fail(self, ident: str) -> None:
        """Let a held response fail."""
        kept = self.kept[ident]
        kept.error = ResponseError("server_error", "The script says so.")
        kept.record(kept.journal.fail(kept.error), Status.FAILED)

    def drain(self) -> None:
        """Stop as a service does: readers are let go, nothing is invented."""
        self.draining = True
        for kept in self.kept.values():
            kept.record((), kept.status)

    # The contract.

    async def authenticate(self, token: str) -> Principal:
        if token not in self.tokens:
            raise Unauthenticated("No client has this token.")
        return self.tokens[token]

    async def submit(self, principal: Principal, request: CreateRequest, items: Sequence[Item]) -> Accepted:
        await self.input_tokens(principal, request, items)
        request = request.settled(CARD)
        ident = f"{len(self.kept):026d}"
        kept = self.kept[ident] = Kept(principal, request, items, Journal(ident, NOW, request, 3))
        first = kept.journal.create()
        kept.record(first, Status.QUEUED)
        kept.record(kept.journal.claim(), Status.LOADING)
        kept.record(kept.journal.write([Text(TEXTS[0])], (1,)), Status.RUNNING)
        if not self.hold:
            self.finish(ident)
        response = first[-1].snapshot
        assert response is not None
        return Accepted(ident, response)

    async def input_tokens(self, principal: Principal, request: CreateRequest, items: Sequence[Item]) -> int:
        if self.refusal is not None:
            raise self.refusal
        if request.model != MODEL:
            raise NotFound(f"There is no such model; there is {MODEL}.", param="model", code="model_not_found")
        length = sum(len(message.content) for message in request.prompt(items).messages)
        if length > WINDOW_CHARS:
            raise InvalidRequest("Too long.", param="input", code="context_length_exceeded")
        return length

    async def version(self) -> str:
        if self.version_trouble is not None:
            raise self.version_trouble
        return "version " + str([(len(kept.events), kept.status) for kept in self.kept.values()])

    async def signed(self, reading: Reading[T], ask: Ask) -> Signed[T] | NotModified:
        return await Signer(self, lambda what, error: self.reports.append((what, error)))(reading, ask)

    def response(self, principal: Principal, ident: str) -> Reading[bytes]:
        return self._reading(principal, ident, _response)

    async def cancel(self, principal: Principal, ident: str, *, background_only: bool) -> None:
        kept = self._own(principal, ident)
        if background_only and not kept.request.background:
            raise InvalidRequest("Only background responses can be cancelled.", code="not_cancellable")
        if kept.status not in TERMINAL:
            kept.record(kept.journal.cancel(), Status.CANCELLED)

    async def delete(self, principal: Principal, ident: str) -> None:
        await self.cancel(principal, ident, background_only=False)
        del self.kept[ident]

    @asynccontextmanager
    async def follow(
        self, principal: Principal, ident: str, after: int
    ) -> AsyncGenerator[AsyncIterator[Event | None]]:
        kept = self._own(principal, ident)
        kept.attendants += 1
        try:
            yield self._events(kept, after)
        finally:
            kept.attendants -= 1
            kept.left += 1

    async def outcome(self, principal: Principal, ident: str) -> bytes | None:
        async with self.follow(principal, ident, -1) as events:
            ended = [event for event in [each async for each in events] if event and event.type in TERMINAL_TYPES]
        return await self.response(principal, ident) if ended else None

    async def _events(self, kept: Kept, after: int) -> AsyncIterator[Event | None]:
        while True:
            changed = kept.changed
            for event in kept.events[after + 1 :]:
                after = event.seq
                yield event
                if event.type in TERMINAL_TYPES:
                    return
            if self.draining or kept.status in TERMINAL:
                return
            try:
                await asyncio.wait_for(changed.wait(), self.keepalive_seconds)
            except TimeoutError:
                yield None

    def task(self, principal: Principal, ident: str) -> Reading[Task]:
        history = (Step(NOW, 1, "queued", "submitted"),)
        return self._reading(
            principal, ident, lambda kept: msgspec.structs.replace(_task(ident, kept), history=history)
        )

    def tasks(
        self, principal: Principal, *, status: Status | None, limit: int, after: str | None, ascending: bool
    ) -> Reading[Page]:
        return _plain(lambda: self._page(principal, status, limit, after, ascending=ascending))

    def _page(
        self, principal: Principal, status: Status | None, limit: int, after: str | None, *, ascending: bool
    ) -> Page:
        own = [
            ident
            for ident, kept in self.kept.items()
            if kept.principal == principal and status in (None, kept.status)
        ]
        names, more = _cut(own, limit, after, ascending=ascending)
        return Page(tuple(_task(ident, self.kept[ident]) for ident in names), more)

    def input_items(
        self, principal: Principal, ident: str, *, limit: int, after: str | None, ascending: bool
    ) -> Reading[Listed]:
        def render(kept: Kept) -> Listed:
            items = {item["id"]: item for item in named(kept.items, ident)}
            names, more = _cut(list(items), limit, after, ascending=ascending)
            return Listed(tuple((name, msgspec.json.encode(items[name])) for name in names), more)

        return self._reading(principal, ident, render)

    def responses(self, principal: Principal, *, limit: int, after: str | None, ascending: bool) -> Reading[Listed]:
        def render() -> Listed:
            own = [name for name, kept in self.kept.items() if kept.principal == principal and kept.request.store]
            names, more = _cut(own, limit, after, ascending=ascending)
            return Listed(tuple((f"resp_{name}", _response(self.kept[name])) for name in names), more)

        return _plain(render)

    def events(
        self, principal: Principal, ident: str, after: int, limit: int
    ) -> Reading[tuple[Sequence[Event], int, bool]]:
        def render(kept: Kept) -> tuple[Sequence[Event], int, bool]:
            later = kept.events[after + 1 :]
            return later[:limit], kept.events[-1].seq, len(later) > limit

        return self._reading(principal, ident, render)

    def models(self) -> Reading[Sequence[ModelCard]]:
        return _plain(lambda: [CARD])

    def model(self, name: str) -> Reading[ModelCard]:
        def render() -> ModelCard:
            if name != MODEL:
                raise NotFound("There is no model of that name.", param="model", code="model_not_found")
            return CARD

        return _plain(render)

    def health(self) -> Health:
        return Health(self.unready is None, self.unready)

    def statistics(self) -> Sequence[Statistics]:
        return [Statistics(MODEL, True, 1, tokens_drawn=3, tokens_read=4, tokens_reused=5, slots=4, slots_used=0)]

    def condition(self) -> Condition:
        return self.condition_now

    async def workload(self) -> Workload:
        return Workload(self.queued, 1)

    def _reading(self, principal: Principal, ident: str, render: Callable[[Kept], T]) -> Reading[T]:
        async def find() -> Found[T]:
            kept = self._own(principal, ident)
            settled = f"{ident} has ended" if kept.status in TERMINAL else None
            return Found(partial(_at_once, partial(render, kept)), settled)

        return Reading(find)

    def _own(self, principal: Principal, ident: str) -> Kept:
        kept = self.kept.get(ident)
        if kept is None or kept.principal != principal:
            raise NotFound("There is nothing of this id that this token may see.")
        return kept


def _cut(names: list[str], limit: int, after: str | None, *, ascending: bool) -> tuple[list[str], bool]:
    """A page of names that stand in the order of their making, and whether there are more."""
    ordered = names if ascending else names[::-1]
    if after is not None:
        if after not in ordered:
            raise NotFound("There is nothing of that id.", param="after")
        ordered = ordered[ordered.index(after) + 1 :]
    return ordered[:limit], len(ordered) > limit


async def _at_once(render: Callable[[], T]) -> T:
    return render()


def _plain(render: Callable[[], T]) -> Reading[T]:
    async def find() -> Found[T]:
        return Found(partial(_at_once, render))

    return Reading(find)


def _response(kept: Kept) -> bytes:
    if kept.status in TERMINAL:
        snapshot = kept.events[-1].snapshot
        assert snapshot is not None
        return snapshot
    return msgspec.json.encode(kept.journal.response(shown(kept.status)))


def _task(ident: str, kept: Kept) -> Task:
    error = kept.error
    return Task(
        id=f"task_{ident}",
        response_id=f"resp_{ident}",
        status=kept.status,
        on_restart=kept.request.on_restart,
        attempt=1,
        queue_position=None,
        created_at=NOW,
        background=kept.request.background,
        model=kept.request.model,
        error=error,
    )


def keeps_the_contract(service: ScriptedService) -> Service:
    """The type checker's word that the script has every verb of the contract."""
    return service


class Refusal(PerdureError):
    """An error of a kind that no table knows."""

    code = "novel"
