"""The body of POST /v1/responses: from received JSON to the request of the domain, every default resolved."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from perdure.api import fields, input_items
from perdure.api.values import choice, flag, integer, members, missing, number, out_of_range, text, wrong_type
from perdure.domain import limits
from perdure.domain.items import Item
from perdure.domain.recovery import OnRestart
from perdure.domain.request import CreateRequest

OUTPUT_TOKENS_MAX = 2**31 - 1


@dataclass(frozen=True)
class Asked:
    """What a create asks for. `items` are its input in normal form; `stream` says how the answer is delivered."""

    request: CreateRequest
    items: Sequence[Item]
    stream: bool


class CreateBody:
    """Reads bodies. The two policies are the defaults of `on_restart`; `draw_seed` draws where none is given."""

    def __init__(self, background: OnRestart, foreground: OnRestart, draw_seed: Callable[[], int]) -> None:
        self._background = background
        self._foreground = foreground
        self._draw_seed = draw_seed

    def read(self, body: dict[str, Any]) -> Asked:
        """The request. Raises `InvalidRequest` with the path of the first value at fault."""
        ignored = fields.sort_out(body)
        model = _model(body.get("model"))
        given = input_items.read(body.get("input"))
        background = _given(body, "background", flag, default=False)
        request = CreateRequest(
            model=model,
            instructions=_instructions(body.get("instructions")),
            background=background,
            store=_given(body, "store", flag, default=True),
            temperature=_number(body, "temperature", limits.TEMPERATURE_MAX, limits.TEMPERATURE_DEFAULT),
            top_p=_number(body, "top_p", limits.TOP_P_MAX, limits.TOP_P_DEFAULT),
            max_output_tokens=_output_tokens(body.get("max_output_tokens")),
            metadata=_metadata(body.get("metadata")),
            seed=self._seed(body.get("seed")),
            on_restart=self._on_restart(body.get("on_restart"), background),
            ignored=(*ignored, *given.ignored),
        )
        return Asked(request, given.items, _given(body, "stream", flag, default=False))

    def _seed(self, value: object) -> int:
        return self._draw_seed() if value is None else integer(value, "seed", 0, limits.SEED_MAX)

    def _on_restart(self, value: object, background: bool) -> OnRestart:
        if value is None:
            return self._background if background else self._foreground
        return OnRestart(choice(value, "on_restart", tuple(OnRestart)))


def _given(body: dict[str, Any], name: str, read: Callable[[object, str], bool], *, default: bool) -> bool:
    value = body.get(name)
    return default if value is None else read(value, name)


def _number(body: dict[str, Any], name: str, most: float, default: float) -> float:
    value = body.get(name)
    return default if value is None else number(value, name, most)


def _model(value: object) -> str:
    if value is None or value == "":
        raise missing("model", "the name of a model; GET /v1/models lists them")
    return text(value, "model", limits.MODEL_NAME_MAX_CHARS)


def _instructions(value: object) -> str | None:
    return None if value is None else text(value, "instructions", limits.INPUT_TEXT_MAX_CHARS) or None


def _output_tokens(value: object) -> int | None:
    if value is None:
        return None
    return integer(value, "max_output_tokens", limits.OUTPUT_TOKENS_MIN, OUTPUT_TOKENS_MAX)


def _metadata(value: object) -> dict[str, str]:
    pairs = {} if value is None else members(value, "metadata")
    if len(pairs) > limits.METADATA_PAIRS_MAX:
        raise out_of_range("metadata", f"an object of at most {limits.METADATA_PAIRS_MAX} pairs")
    for key, given in pairs.items():
        if len(key) > limits.METADATA_KEY_MAX_CHARS:
            raise out_of_range("metadata", f"without keys of more than {limits.METADATA_KEY_MAX_CHARS} characters")
        if not isinstance(given, str):
            raise wrong_type(f"metadata.{key}", "a string")
        text(given, f"metadata.{key}", limits.METADATA_VALUE_MAX_CHARS)
    return pairs
