"""Everything that the service can do, in one place for the floors above: the engine's verbs behind one object."""

from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Protocol, TypeVar

import msgspec
from msgspec import UNSET, UnsetType

from perdure.domain.events import Event
from perdure.domain.items import Item
from perdure.domain.lifecycle import Status
from perdure.domain.model import ModelCard
from perdure.domain.principal import Principal
from perdure.domain.request import CreateRequest
from perdure.domain.response import ResponseError
from perdure.engine.signed import Ask, NotModified, Reading, Signed
from perdure.ports.runtime import Statistics
from perdure.ports.storage import Condition

T = TypeVar("T")


class Step(msgspec.Struct, frozen=True):
    """A line of a task's history. `at` is in seconds since 1970."""

    at: int
    attempt: int
    status: str
    note: str


class Task(msgspec.Struct, frozen=True):
    """A task as the native API shows it. Lists leave the history out."""

    id: str
    response_id: str | None
    status: str
    on_restart: str
    attempt: int
    queue_position: int | None
    created_at: int
    background: bool
    model: str
    error: ResponseError | None
    history: tuple[Step, ...] | UnsetType = UNSET
    kind: str = "response"
    object: str = "task"


class Accepted(msgspec.Struct, frozen=True):
    """What a create is answered with: the name, and the response object as it was kept, as JSON."""

    ident: str
    response: bytes


class Health(msgspec.Struct, frozen=True):
    """Whether the service can take work; `reason` says why not."""

    ready: bool
    reason: str | None = None


class Workload(msgspec.Struct, frozen=True):
    """How many tasks wait, None where the store cannot tell, and how many are worked on."""

    queued: int | None
    running: int


class Page(msgspec.Struct, frozen=True):
    """A page of tasks."""

    data: tuple[Task, ...]
    has_more: bool


class Listed(msgspec.Struct, frozen=True):
    """A page of anything: pairs of its outside name and its JSON."""

    data: tuple[tuple[str, bytes], ...]
    has_more: bool


class Service(Protocol):
    """The verbs. Unknown and foreign names raise `NotFound` alike; scopes are the caller's business.

    A verb that only reads gives a `Reading`: awaited it is made at once, `signed` makes it for who keeps answers.
    """

    async def authenticate(self, token: str) -> Principal:
        """The client of a token. Raises `Unauthenticated`."""
        ...

    async def submit(self, principal: Principal, request: CreateRequest, items: Sequence[Item]) -> Accepted:
        """Accept a request; returns once it is durable. `items` is its input in normal form (`domain.items`); it may
        be empty where the request goes on from another response.

        Raises `NotFound` (code `model_not_found`), `InvalidRequest` (codes `context_length_exceeded` and
        `previous_response_not_found` among others), `QueueFull`, `ModelUnavailable`, `StorageFull`, `StorageFailed`,
        `Unavailable` while the service drains. Errors of an item have the param `input[i]...`, by its place in
        `items`.
        """
        ...

    async def input_tokens(self, principal: Principal, request: CreateRequest, items: Sequence[Item]) -> int:
        """How many tokens the prompt of this request has, after what `truncation` takes away. Nothing is kept. Raises
        what `submit` raises for the same request before it is kept."""
        ...

    async def signed(self, reading: Reading[T], ask: Ask) -> Signed[T] | NotModified:
        """Make a read by the rule of `engine.signed`: with a mark where it has one, or not at all where the client's
        own answer still holds."""
        ...

    def response(self, principal: Principal, ident: str) -> Reading[bytes]:
        """The response object as JSON."""
        ...

    async def cancel(self, principal: Principal, ident: str, *, background_only: bool) -> None:
        """Ask for the end and wait up to `CANCEL_WAIT_SECONDS` for it. A finished task stays as it is.

        Raises `InvalidRequest` for a foreground response when `background_only`.
        """
        ...

    async def delete(self, principal: Principal, ident: str) -> None:
        """Cancel what is unfinished, hide the response from every reader, and remove it."""
        ...

    def follow(
        self, principal: Principal, ident: str, after: int
    ) -> AbstractAsyncContextManager[AsyncIterator[Event | None]]:
        """The events with numbers above `after`, then new ones as they become durable, up to the terminal event.

        Yields None after each `KEEPALIVE_SECONDS` of silence. The iterator ends early, without a terminal event,
        when the service drains. Entering raises `NotFound`. Being inside counts as attending: foreground work stops
        when its last attendant has left.
        """
        ...

    async def outcome(self, principal: Principal, ident: str) -> bytes | None:
        """The response object as JSON, once the response has ended; None when the service stops before (for
        background work: when it drains). Waiting counts as attending, as in `follow`.

        Raises `NotFound`, also where the response was deleted meanwhile.
        """
        ...

    def task(self, principal: Principal, ident: str) -> Reading[Task]:
        """A task."""
        ...

    def tasks(
        self, principal: Principal, *, status: Status | None, limit: int, after: str | None, ascending: bool
    ) -> Reading[Page]:
        """A page of the client's own tasks. `after` is an ident."""
        ...

    def input_items(
        self, principal: Principal, ident: str, *, limit: int, after: str | None, ascending: bool
    ) -> Reading[Listed]:
        """A page of the items that a response answers, those that it goes on from included. `after` is the id of an
        item; one that is not among them raises `NotFound` (param `after`)."""
        ...

    def responses(self, principal: Principal, *, limit: int, after: str | None, ascending: bool) -> Reading[Listed]:
        """A page of the client's own stored responses. It ends early where it would be larger than
        `RESPONSES_PAGE_MAX_BYTES`. `after` is an ident, as for `tasks`."""
        ...

    def events(
        self, principal: Principal, ident: str, after: int, limit: int
    ) -> Reading[tuple[Sequence[Event], int, bool]]:
        """A page of events, the number of the last event of the log, and whether there are more now."""
        ...

    def models(self) -> Reading[Sequence[ModelCard]]:
        """Models that can be asked."""
        ...

    def model(self, name: str) -> Reading[ModelCard]:
        """One of them. Raises `NotFound` (code `model_not_found`)."""
        ...

    def health(self) -> Health:
        """Whether work can be taken."""
        ...

    def statistics(self) -> Sequence[Statistics]:
        """Counters of the runtime."""
        ...

    def condition(self) -> Condition:
        """How the store stands."""
        ...

    async def workload(self) -> Workload:
        """How much there is to do. Never raises: it is asked for when something is wrong, too."""
        ...
