"""Submit: check what only the model can tell, then keep the request durably before the caller is told."""

from collections.abc import Sequence

import msgspec

from perdure.domain.errors import InvalidRequest, NotFound
from perdure.domain.items import Item, named
from perdure.domain.journal import Journal
from perdure.domain.limits import MODEL_NAME_MAX_CHARS
from perdure.domain.model import Encoded, ModelCard
from perdure.domain.principal import Principal
from perdure.domain.request import CreateRequest
from perdure.engine.record import MICROSECONDS
from perdure.ports.ambient import Clock, Names
from perdure.ports.runtime import Runtime
from perdure.ports.storage import NewTask, Store


class Submit:
    """Accepts requests."""

    def __init__(self, store: Store, runtime: Runtime, clock: Clock, names: Names, queue_max: int) -> None:
        self._store = store
        self._runtime = runtime
        self._clock = clock
        self._names = names
        self._queue_max = queue_max

    def name(self) -> str:
        """A name for the next response."""
        return self._names.ident(self._clock.now())

    async def check(self, request: CreateRequest, items: Sequence[Item]) -> tuple[ModelCard, Encoded]:
        """The model and the prompt. Raises what the caller should read; nothing is kept."""
        card = await self._runtime.card(request.model)
        if card is None:
            names = ", ".join(sorted(card.name for card in await self._runtime.models())) or "none"
            wanted = request.model[:MODEL_NAME_MAX_CHARS]
            raise NotFound(
                f"The model {wanted!r} is not here; this service has: {names}.",
                param="model",
                code="model_not_found",
            )
        encoded = await self._runtime.encode(card.name, request.prompt(items))
        if len(encoded.tokens) >= card.context_length:
            raise InvalidRequest(
                f"The input is {len(encoded.tokens)} tokens long; {card.name} holds {card.context_length} tokens of "
                "input and output together. Shorten the input.",
                param="input",
                code="context_length_exceeded",
            )
        return card, encoded

    async def keep(
        self,
        ident: str,
        principal: Principal,
        request: CreateRequest,
        items: Sequence[Item],
        card: ModelCard,
        encoded: Encoded,
    ) -> bytes:
        """Store the response, its task and its first events in one transaction; returns the response as JSON."""
        now, prompt = self._clock.now(), encoded.tokens
        request = msgspec.structs.replace(request, shape=encoded.shape)
        room = card.context_length - len(prompt)
        events = Journal(ident, now // MICROSECONDS, request, len(prompt), exact=card.exact).create()
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
            received=msgspec.json.encode(named(items, ident)),
            prompt=prompt,
            tokens_max=min(room, request.max_output_tokens or room),
            events=tuple(events),
        )
        response = events[-1].snapshot
        if response is None:
            raise AssertionError("a log begins with events that carry the response")
        await self._store.submit(new, self._queue_max)
        return response
