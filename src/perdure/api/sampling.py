"""The fields that say how tokens are drawn. They are the same in every interface."""

from collections.abc import Mapping
from typing import Any

from perdure.api.values import number
from perdure.domain import limits

NUMBERS: Mapping[str, tuple[float, float, float | None]] = {
    "temperature": (0.0, limits.TEMPERATURE_MAX, None),
    "top_p": (0.0, limits.TOP_P_MAX, None),
    "presence_penalty": (-limits.PENALTY_MAX, limits.PENALTY_MAX, 0.0),
    "frequency_penalty": (-limits.PENALTY_MAX, limits.PENALTY_MAX, 0.0),
}
"""The least and the most of each, and its default: None where the model has its own."""


def numbers(body: Mapping[str, Any]) -> dict[str, Any]:
    """Each of `NUMBERS` from a body. Raises `InvalidRequest`."""
    return {
        field: default if body.get(field) is None else number(body[field], field, least, most)
        for field, (least, most, default) in NUMBERS.items()
    }
