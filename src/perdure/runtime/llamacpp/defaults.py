"""How a model is sampled where a request does not say: by what its file recommends, by what its publisher does, or as
the API has it. Each of the two numbers for itself."""

from collections.abc import Callable
from typing import NamedTuple

from perdure.domain import limits
from perdure.runtime.llamacpp.grammar import UNAIDED, Calling
from perdure.runtime.llamacpp.wire import TokenizerReady

TEMPERATURE_KEY = "general.sampling.temp"
TOP_P_KEY = "general.sampling.top_p"
_SHOWN_MAX_CHARS = 40


class Recommended(NamedTuple):
    """What somebody recommends for a model; None where he says nothing. Both are in the range of a request.

    `calling` is how it is helped to call functions.
    """

    temperature: float | None = None
    top_p: float | None = None
    calling: Calling = UNAIDED


def default_sampling(
    facts: TokenizerReady, published: Recommended, log: Callable[[str], None]
) -> tuple[float, float]:
    """The temperature and the `top_p` of a model. What cannot be taken from the file is told to `log`."""
    temperature = _number(TEMPERATURE_KEY, facts.sampling_temp, limits.TEMPERATURE_MAX, log)
    top_p = _number(TOP_P_KEY, facts.sampling_top_p, limits.TOP_P_MAX, log)
    return (
        _first(temperature, published.temperature, limits.TEMPERATURE_DEFAULT),
        _first(top_p, published.top_p, limits.TOP_P_DEFAULT),
    )


def _number(key: str, told: str | None, most: float, log: Callable[[str], None]) -> float | None:
    """The number in a value of the file, if it is one that a request may have."""
    if told is None:
        return None
    try:
        value = float(told)
    except ValueError:
        value = -1.0
    if 0 <= value <= most:
        return value + 0.0  # minus zero becomes zero
    log(f"{key} of its file is {told[:_SHOWN_MAX_CHARS]!r}, which is no number from 0 to {most:g}: ignored")
    return None


def _first(told: float | None, published: float | None, otherwise: float) -> float:
    return next(value for value in (told, published, otherwise) if value is not None)
