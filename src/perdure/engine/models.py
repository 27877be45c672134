"""Models: what can be asked. The runtime has it in memory, so the content itself is what an answer is known by."""

import hashlib
from collections.abc import Sequence
from typing import TypeVar

import msgspec

from perdure.domain.errors import NotFound
from perdure.domain.model import ModelCard
from perdure.engine.signed import Found, Reading
from perdure.ports.runtime import Runtime

T = TypeVar("T")


class Models:
    """Answers what models there are."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    def all(self) -> Reading[Sequence[ModelCard]]:
        """Every model."""

        async def find() -> Found[Sequence[ModelCard]]:
            return _found(await self._runtime.models())

        return Reading(find)

    def one(self, name: str) -> Reading[ModelCard]:
        """The model of that name. Raises `NotFound`."""

        async def find() -> Found[ModelCard]:
            for card in await self._runtime.models():
                if card.name == name:
                    return _found(card)
            raise NotFound(
                "There is no model of that name; GET /v1/models lists them.", param="model", code="model_not_found"
            )

        return Reading(find)


def _found(content: T) -> Found[T]:
    async def render() -> T:
        return content

    return Found(render, settled=hashlib.sha256(msgspec.json.encode(content)).hexdigest())
