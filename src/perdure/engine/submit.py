"""Submit: check what only the model can tell, then keep the request durably before the caller is told."""

from collections.abc import Sequence

import msgspec

from perdure.domain.errors import InvalidRequest, NotFound
from perdure.domain.items import Item
from perdure.domain.journal import Journal
from perdure.domain.limits import CONTEXT_MAX_BYTES, IGNORED_MAX, MODEL_NAME_MAX_CHARS
from perdure.domain.model import ModelCard
from perdure.domain.principal import Principal
from perdure.domain.request import CreateRequest
from perdure.engine.context import Context
from perdure.engine.fit import fit
from perdure.engine.record import MICROSECONDS
from perdure.ports.ambient import Clock, Names
from perdure.ports.runtime import Runtime
from perdure.ports.storage import NewTask, Store


class Prepared(msgspec.Struct, frozen=True):
    """A request that can be kept: its name, what is known of it, its items as JSON and its prompt as token ids."""

    ident: str
    card: ModelCard
    request: CreateRequest
    received: bytes
    prompt: tuple[int, ...]


class Submit:
    """Accepts requests."""

    def __init__(
        self, store: Store, runtime: Runtime, context: Context, clock: Clock, names: Names, queue_max: int
    ) -> None:
        self._store = store
        self._runtime = runtime
        self._context = context
        self._clock = clock
        self._names = names
        self._queue_max = queue_max

    async def prepare(self, principal: Principal, request: CreateRequest, items: Sequence[Item]) -> Prepared:
        """Everything about a request that can be told before it is kept. Raises what the caller should read; nothing
        is kept."""
        card = await self._card(request.model)
        request = request.settled(card)
        ident = self._names.ident(self._clock.now())
        found = await self._context(principal, request, items, ident)
        received = msgspec.json.encode(found.items)
        if len(received) > CONTEXT_MAX_BYTES:
            raise InvalidRequest(
                f"The conversation is {len(received)} bytes long; at most {CONTEXT_MAX_BYTES} are kept. Begin a new "
                "one.",
                param="input",
                code="out_of_range",
            )
        encoded, left_out = await fit(self._runtime, card, request, found.items)
        request = msgspec.structs.replace(
            request,
            ignored=_bounded([*request.ignored, *found.left_out, *encoded.dropped]),
            truncated=left_out,
            shape=encoded.shape,
        )
        return Prepared(ident, card, request, received, encoded.tokens)

    async def keep(self, principal: Principal, prepared: Prepared) -> bytes:
        """Store the response, its task and its first events in one transaction; returns the response as JSON."""
        now, ident, card, request = self._clock.now(), prepared.ident, prepared.card, prepared.request
        room = card.context_length - len(prepared.prompt)
        events = Journal(ident, now // MICROSECONDS, request, len(prepared.prompt), exact=card.exact).create()
        new = NewTask(
            ident=ident,
            client_id=principal.client_id,
            model=card.name,
            on_restart=request.on_restart,
            background=request.background,
            stored=request.store,
            exact=card.exact,
            created_at=now,
            request=msgspec.json.encode(request),
            received=prepared.received,
            prompt=prepared.prompt,
            tokens_max=min(room, request.max_output_tokens or room),
            events=tuple(events),
        )
        response = events[-1].snapshot
        if response is None:
            raise AssertionError("a log begins with events that carry the response")
        await self._store.submit(new, self._queue_max)
        return response

    async def _card(self, name: str) -> ModelCard:
        card = await self._runtime.card(name)
        if card is None:
            names = ", ".join(sorted(card.name for card in await self._runtime.models())) or "none"
            raise NotFound(
                f"The model {name[:MODEL_NAME_MAX_CHARS]!r} is not here; this service has: {names}.",
                param="model",
                code="model_not_found",
            )
        return card


def _bounded(ignored: list[str]) -> tuple[str, ...]:
    """As many as a snapshot may hold, and how many more there were."""
    more = len(ignored) - IGNORED_MAX
    return tuple(ignored) if more <= 0 else (*ignored[:IGNORED_MAX], f"and {more} more")
