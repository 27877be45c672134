"""A service that plays a script in memory: what the HTTP door is tested against.

It keeps the whole `Service` contract with the real events of the domain and nothing durable. A response says `TEXTS`
and completes at once; with `hold` it stops after the first text, until the test calls `finish`, `fail` or `drain`.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import msgspec

from perdure.domain.errors import InvalidRequest, NotFound, PerdureError, Unauthenticated
from perdure.domain.events import TERMINAL_TYPES, Event
from perdure.domain.journal import Journal
from perdure.domain.lifecycle import TERMINAL, Status, shown
from perdure.domain.model import ModelCard
from perdure.domain.principal import ALL_SCOPES, Principal, Scope
from perdure.domain.request import CreateRequest
from perdure.domain.response import ResponseError
from perdure.engine.service import Accepted, Health, Page, Service, Step, Task
from perdure.ports.runtime import Statistics

MODEL = "scripted-model"
TEXTS = ("Hello", ", wörld", "!")
NOW = 1_790_000_000
OWNER_TOKEN = "owner-token"  # noqa: S105 -- a name in a script
OTHER_TOKEN = "other-token"  # noqa: S105 -- as above
WINDOW_CHARS = 4096


@dataclass
class Kept:
    """A response of the script."""

    principal: Principal
    request: CreateRequest
    received: bytes
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
            kept.record(kept.journal.write(text, (2,)), Status.RUNNING)
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

    async def submit(self, principal: Principal, request: CreateRequest, received: bytes) -> Accepted:
        if self.refusal is not None:
            raise self.refusal
        if request.model != MODEL:
            raise NotFound(f"There is no such model; there is {MODEL}.", param="model", code="model_not_found")
        if sum(len(message.content) for message in request.messages) > WINDOW_CHARS:
            raise InvalidRequest("Too long.", param="input", code="context_length_exceeded")
        ident = f"{len(self.kept):026d}"
        kept = self.kept[ident] = Kept(principal, request, received, Journal(ident, NOW, request, 3))
        first = kept.journal.create()
        kept.record(first, Status.QUEUED)
        kept.record(kept.journal.claim(), Status.LOADING)
        kept.record(kept.journal.write(TEXTS[0], (1,)), Status.RUNNING)
        if not self.hold:
            self.finish(ident)
        response = first[-1].snapshot
        assert response is not None
        return Accepted(ident, response)

    async def response(self, principal: Principal, ident: str) -> bytes:
        kept = self._own(principal, ident)
        if kept.status in TERMINAL:
            snapshot = kept.events[-1].snapshot
            assert snapshot is not None
            return snapshot
        return msgspec.json.encode(kept.journal.response(shown(kept.status)))

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

    async def task(self, principal: Principal, ident: str) -> Task:
        task = _task(ident, self._own(principal, ident))
        return msgspec.structs.replace(task, history=(Step(NOW, 1, "queued", "submitted"),))

    async def tasks(
        self, principal: Principal, *, status: Status | None, limit: int, after: str | None, ascending: bool
    ) -> Page:
        names = sorted(
            (
                ident
                for ident, kept in self.kept.items()
                if kept.principal == principal and status in (None, kept.status)
            ),
            reverse=not ascending,
        )
        if after is not None:
            if after not in names:
                raise NotFound("There is no task of that id.", param="after")
            names = names[names.index(after) + 1 :]
        page = tuple(_task(ident, self.kept[ident]) for ident in names[:limit])
        return Page(page, len(names) > limit)

    async def events(
        self, principal: Principal, ident: str, after: int, limit: int
    ) -> tuple[Sequence[Event], int, bool]:
        events = self._own(principal, ident).events
        later = events[after + 1 :]
        return later[:limit], events[-1].seq, len(later) > limit

    async def models(self) -> Sequence[ModelCard]:
        return [ModelCard(MODEL, "ab" * 32, 125_000, WINDOW_CHARS, exact=True, fingerprint="{}", created_at=NOW)]

    def health(self) -> Health:
        return Health(self.unready is None, self.unready)

    def statistics(self) -> Sequence[Statistics]:
        return [Statistics(MODEL, loaded=True, starts=1, tokens_drawn=3, tokens_read=3, slots=4, slots_used=0)]

    def _own(self, principal: Principal, ident: str) -> Kept:
        kept = self.kept.get(ident)
        if kept is None or kept.principal != principal:
            raise NotFound("There is nothing of this id that this token may see.")
        return kept


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
