"""The body of POST /v1/responses: from received JSON to the request of the domain, with every default that is not the
model's own."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from perdure.api import fields, input_items, options, sampling, text_format, tools
from perdure.api.values import choice, flag, integer, members, missing, out_of_range, text, wrong_type, wrong_value
from perdure.domain import limits
from perdure.domain.errors import InvalidRequest
from perdure.domain.items import Item
from perdure.domain.model import Places
from perdure.domain.recovery import OnRestart
from perdure.domain.request import CreateRequest

TRUNCATIONS = ("auto", "disabled")


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
        """The request, and items that there is something to answer in, unless it goes on from another response.

        Raises `InvalidRequest` with the path of the first value at fault.
        """
        asked = self.read_part(body)
        if asked.request.previous_response_id is None:
            if body.get("input") is None:
                raise missing("input", "a string or an array of items")
            if not any(map(input_items.says_something, asked.items)):
                raise InvalidRequest(
                    "`input` is empty: there is nothing to answer.", param="input", code="empty_input"
                )
        return asked

    def read_count(self, body: dict[str, Any]) -> Asked:
        """The same for a count of tokens: instructions are enough, and nothing has to be answered."""
        asked = self.read_part(body)
        if not (asked.items or asked.request.previous_response_id or asked.request.instructions):
            raise missing("input", "a string or an array of items that is not empty")
        return asked

    def read_part(self, body: dict[str, Any]) -> Asked:
        """The same of a body that somebody else completes: nothing but the model has to be there."""
        ignored = fields.sort_out(body)
        request = CreateRequest(
            model=_model(body.get("model")),
            instructions=_instructions(body.get("instructions")),
            store=_given(body, "store", flag, default=True),
            max_output_tokens=_count(body, "max_output_tokens", limits.OUTPUT_TOKENS_MIN, limits.OUTPUT_TOKENS_MAX),
            metadata=_metadata(body.get("metadata")),
            seed=self._seed(body.get("seed")),
            previous_response_id=_previous(body.get("previous_response_id")),
            truncation=_truncation(body.get("truncation")),
            **self._background_fields(body, ignored),
            **_tool_fields(body, ignored),
            **_text_fields(body, ignored),
            **sampling.numbers(body),
            **options.identifiers(body),
        )
        options.stream_options(body.get("stream_options"), ignored)
        options.prompt_cache_options(body.get("prompt_cache_options"), ignored)
        given = input_items.read(body.get("input"))
        request = msgspec.structs.replace(request, ignored=(*ignored, *given.ignored))
        return Asked(request, given.items, _given(body, "stream", flag, default=False))

    def _background_fields(self, body: dict[str, Any], ignored: list[str]) -> dict[str, Any]:
        background = _given(body, "background", flag, default=False)
        options.background_options(body.get("background_options"), ignored)
        return {"background": background, "on_restart": self._on_restart(body.get("on_restart"), background)}

    def _seed(self, value: object) -> int:
        return self._draw_seed() if value is None else integer(value, "seed", 0, limits.SEED_MAX)

    def _on_restart(self, value: object, background: bool) -> OnRestart:
        if value is None:
            return self._background if background else self._foreground
        return OnRestart(choice(value, "on_restart", tuple(OnRestart)))


def _tool_fields(body: dict[str, Any], ignored: list[str]) -> dict[str, Any]:
    functions, places = tools.read(body.get("tools"), ignored)
    chosen = tools.choose(body.get("tool_choice"), functions, ignored)
    calls = _count(body, "max_tool_calls", 1, limits.TOOL_CALLS_MAX)
    if calls is not None:
        ignored.append("max_tool_calls")  # it bounds the calls of hosted tools
    return {
        "tools": functions,
        "places": Places(places),
        "tool_choice": chosen.shown,
        "choice": chosen.meant,
        "parallel_tool_calls": _given(body, "parallel_tool_calls", flag, default=True),
        "max_tool_calls": calls,
    }


def _text_fields(body: dict[str, Any], ignored: list[str]) -> dict[str, Any]:
    shape = text_format.read(body.get("text"), ignored)
    likely = _count(body, "top_logprobs", 0, limits.TOP_LOGPROBS_MAX) or 0
    return {
        "format": shape.format,
        "verbosity": shape.verbosity,
        "logprobs": options.include(body.get("include"), ignored) or likely > 0,
        "top_logprobs": likely,
        "reasoning": options.reasoning(body.get("reasoning"), ignored),
    }


def _given(body: dict[str, Any], name: str, read: Callable[[object, str], bool], *, default: bool) -> bool:
    value = body.get(name)
    return default if value is None else read(value, name)


def _count(body: dict[str, Any], name: str, least: int, most: int) -> int | None:
    value = body.get(name)
    return None if value is None else integer(value, name, least, most)


def _model(value: object) -> str:
    if value is None or value == "":
        raise missing("model", "the name of a model; GET /v1/models lists them")
    return text(value, "model", limits.MODEL_NAME_MAX_CHARS)


def _instructions(value: object) -> str | None:
    return None if value is None else text(value, "instructions", limits.INPUT_TEXT_MAX_CHARS) or None


def _previous(value: object) -> str | None:
    if value == "":
        raise wrong_value("previous_response_id", "the id of a response, or null")
    return None if value is None else text(value, "previous_response_id", input_items.NAME_MAX_CHARS)


def _truncation(value: object) -> Any:
    return "disabled" if value is None else choice(value, "truncation", TRUNCATIONS)


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
