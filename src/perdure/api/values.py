"""Reading one value of a JSON body: strict types, and errors that say what is allowed.

A bool is no number, `"5"` is not 5 and 5.0 is no integer. `where` is the path of the value, as clients get it in
`param`.
"""

import re
from collections.abc import Container, Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from perdure.domain.errors import InvalidRequest
from perdure.domain.limits import UNKNOWN_NAME_MAX_CHARS

_Json = TypeVar("_Json")


def wrong_type(where: str, allowed: str) -> InvalidRequest:
    """The error for a value of another type."""
    return InvalidRequest(f"`{where}` must be {allowed}.", param=where, code="invalid_type")


def wrong_value(where: str, allowed: str) -> InvalidRequest:
    """The error for a value of the right type that is not among the allowed ones."""
    return InvalidRequest(f"`{where}` must be {allowed}.", param=where, code="invalid_value")


def out_of_range(where: str, allowed: str) -> InvalidRequest:
    """The error for too small, too large, too long."""
    return InvalidRequest(f"`{where}` must be {allowed}.", param=where, code="out_of_range")


def missing(where: str, what: str) -> InvalidRequest:
    """The error for what is needed and absent."""
    return InvalidRequest(f"`{where}` is missing: {what}.", param=where, code="missing_required_parameter")


def unsupported(where: str, message: str) -> InvalidRequest:
    """The error for what this API knows and this service does not do."""
    return InvalidRequest(message, param=where, code="unsupported_parameter")


def flag(value: object, where: str) -> bool:
    """A boolean."""
    if not isinstance(value, bool):
        raise wrong_type(where, "a boolean")
    return value


def integer(value: object, where: str, least: int, most: int) -> int:
    """A whole number."""
    allowed = f"an integer from {least} to {most}"
    if not isinstance(value, int) or isinstance(value, bool):
        raise wrong_type(where, allowed)
    if not least <= value <= most:
        raise out_of_range(where, allowed)
    return value


def number(value: object, where: str, least: float, most: float) -> float:
    """A number."""
    allowed = f"a number from {least:g} to {most:g}"
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise wrong_type(where, allowed)
    if not least <= value <= most:
        raise out_of_range(where, allowed)
    return float(value) + 0.0  # minus zero becomes zero


def text(value: object, where: str, most: int) -> str:
    """A string."""
    if not isinstance(value, str):
        raise wrong_type(where, "a string")
    if len(value) > most:
        raise out_of_range(where, f"at most {most} characters long")
    return value


def name(value: object, where: str, most: int, others: str = "_-") -> str:
    """A name of letters, digits and a few `others`."""
    allowed = f"1 to {most} letters, digits or any of `{others}`"
    if value is None:
        raise missing(where, allowed)
    if not re.fullmatch(rf"[a-zA-Z0-9{re.escape(others)}]+", text(value, where, most)):
        raise wrong_value(where, allowed)
    return str(value)


def choice(value: object, where: str, options: Sequence[str]) -> str:
    """One of some strings."""
    allowed = f"one of {', '.join(options)}"
    if not isinstance(value, str):
        raise wrong_type(where, allowed)
    if value not in options:
        raise wrong_value(where, allowed)
    return value


def members(value: object, where: str) -> dict[str, Any]:
    """An object."""
    if not isinstance(value, dict):
        raise wrong_type(where, "an object")
    return value


def elements(value: object, where: str, allowed: str) -> list[Any]:
    """An array."""
    if not isinstance(value, list):
        raise wrong_type(where, allowed)
    return value


def kept(value: _Json, where: str, most_bytes: int) -> _Json:
    """What is kept as it came, whatever is in it, if its JSON is not too long."""
    if len(msgspec.json.encode(value)) > most_bytes:
        raise out_of_range(where, f"at most {most_bytes} bytes of JSON")
    return value


def strangers(given: Mapping[str, Any], known: Container[str], where: str) -> list[str]:
    """The paths of members that nobody reads. One that is null, false or empty asks for nothing."""
    return [
        f"{where}.{member[:UNKNOWN_NAME_MAX_CHARS]}"
        for member, value in given.items()
        if member not in known and value is not False and value not in (None, "", [], {})
    ]
