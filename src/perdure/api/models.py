"""The models that can be asked."""

from collections.abc import Sequence
from typing import Any, Literal

import msgspec
from litestar import Request, get
from litestar.handlers import HTTPRouteHandler
from litestar.types import ASGIApp

from perdure.api.auth import needs
from perdure.api.conditional import Conditional
from perdure.api.query import Query
from perdure.domain.model import ModelCard
from perdure.domain.principal import Scope
from perdure.engine.service import Service


class Model(msgspec.Struct, frozen=True):
    """A model as the API shows it; the fields after `owned_by` are ours.

    `exact_resume` says whether a text that went on after a restart is bit for bit the undisturbed one. `temperature`
    and `top_p` are what a request gets that names none.
    """

    id: str
    created: int
    context_length: int
    size_bytes: int
    digest: str
    exact_resume: bool
    temperature: float
    top_p: float
    object: Literal["model"] = "model"
    owned_by: Literal["local"] = "local"


class Models:
    """The routes under `/v1/models`."""

    def __init__(self, service: Service, conditional: Conditional) -> None:
        self._service = service
        self._conditional = conditional

    def routes(self) -> list[HTTPRouteHandler]:
        """The handlers."""
        read = needs(Scope.MODELS_READ)
        return [
            get("/v1/models", operation_id="list_models", opt=read)(self.listed),
            get("/v1/models/{model:str}", operation_id="get_model", opt=read)(self.one),
        ]

    async def listed(self, request: Request[Any, Any, Any]) -> ASGIApp:
        """Every model."""
        Query(request)
        return await self._conditional(request, self._service.models(), _listed)

    async def one(self, request: Request[Any, Any, Any]) -> ASGIApp:
        """One model."""
        Query(request)
        model = self._service.model(request.path_params["model"])
        return await self._conditional(request, model, lambda card: msgspec.json.encode(_shown(card)))


def _listed(cards: Sequence[ModelCard]) -> bytes:
    return msgspec.json.encode({"object": "list", "data": [_shown(card) for card in cards]})


def _shown(card: ModelCard) -> Model:
    return Model(
        id=card.name,
        created=card.created_at,
        context_length=card.context_length,
        size_bytes=card.size_bytes,
        digest=card.digest,
        exact_resume=card.exact,
        temperature=card.temperature,
        top_p=card.top_p,
    )
