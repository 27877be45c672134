"""The models that can be asked."""

from typing import Any, Literal

import msgspec
from litestar import Request, get
from litestar.handlers import HTTPRouteHandler
from litestar.types import ASGIApp

from perdure.api.answers import encoded
from perdure.api.auth import needs
from perdure.api.query import Query
from perdure.domain.errors import NotFound
from perdure.domain.model import ModelCard
from perdure.domain.principal import Scope
from perdure.engine.service import Service


class Model(msgspec.Struct, frozen=True):
    """A model as the API shows it; the fields after `owned_by` are ours.

    `exact_resume` says whether a text that went on after a restart is bit for bit the undisturbed one.
    """

    id: str
    created: int
    context_length: int
    size_bytes: int
    digest: str
    exact_resume: bool
    object: Literal["model"] = "model"
    owned_by: Literal["local"] = "local"


class Models:
    """The routes under `/v1/models`."""

    def __init__(self, service: Service) -> None:
        self._service = service

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
        data = [_shown(card) for card in await self._service.models()]
        return encoded({"object": "list", "data": data})

    async def one(self, request: Request[Any, Any, Any]) -> ASGIApp:
        """One model."""
        Query(request)
        name = request.path_params["model"]
        for card in await self._service.models():
            if card.name == name:
                return encoded(_shown(card))
        raise NotFound(
            "There is no model of that name; GET /v1/models lists them.", param="model", code="model_not_found"
        )


def _shown(card: ModelCard) -> Model:
    return Model(
        id=card.name,
        created=card.created_at,
        context_length=card.context_length,
        size_bytes=card.size_bytes,
        digest=card.digest,
        exact_resume=card.exact,
    )
