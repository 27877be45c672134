"""Strict query parameters: each known, each at most once, each of its type."""

import re
from collections.abc import Iterable
from typing import Any
from urllib.parse import parse_qsl

from litestar import Request

from perdure.domain.errors import InvalidRequest

_INTEGER = re.compile(r"-?[0-9]{1,19}")
_FLAGS = {"true": True, "false": False}


class Query:
    """The query of a request that may hold the parameters `known`. Raises `InvalidRequest` for any other, and for one
    that stands there twice, unless it is among `repeated`."""

    def __init__(self, request: Request[Any, Any, Any], *known: str, repeated: tuple[str, ...] = ()) -> None:
        query = request.scope["query_string"]
        self._lists = _parse(query, (*known, *repeated), repeated) if query else {}
        self._values = {name: values[0] for name, values in self._lists.items()}

    def text(self, name: str) -> str | None:
        """A parameter as it stands; an absent or empty one is None."""
        return self._values.get(name) or None

    def all_of(self, name: str, options: Iterable[str]) -> list[str]:
        """Every value of a repeated parameter, each one of `options`. Clients write the name with brackets or
        without."""
        given = [value for each in (name, f"{name}[]") for value in self._lists.get(each, ()) if value]
        for value in given:
            if value not in options:
                raise InvalidRequest(f"`{name}` takes only {', '.join(options)}.", param=name, code="invalid_value")
        return given

    def integer(self, name: str, default: int, least: int, most: int) -> int:
        """A whole number from `least` to `most`."""
        given = self._values.get(name)
        if given is None:
            return default
        number = int(given) if _INTEGER.fullmatch(given) else None
        if number is None or not least <= number <= most:
            raise InvalidRequest(
                f"`{name}` must be an integer from {least} to {most}.", param=name, code="invalid_value"
            )
        return number

    def flag(self, name: str) -> bool:
        """`true` or `false`; absent means false."""
        given = self._values.get(name, "false")
        if given not in _FLAGS:
            raise InvalidRequest(f"`{name}` must be true or false.", param=name, code="invalid_value")
        return _FLAGS[given]

    def choice(self, name: str, options: Iterable[str], default: str | None) -> str | None:
        """One of `options`."""
        given = self._values.get(name, default)
        if given is not None and given not in options:
            raise InvalidRequest(f"`{name}` must be one of {', '.join(options)}.", param=name, code="invalid_value")
        return given


def _parse(query: bytes, known: tuple[str, ...], repeated: tuple[str, ...]) -> dict[str, list[str]]:
    values: dict[str, list[str]] = {}
    for name, value in parse_qsl(query.decode("latin-1"), keep_blank_values=True):
        if name not in known:
            allowed = f"it takes {', '.join(known)}" if known else "it takes none"
            shown = name[:64]
            raise InvalidRequest(
                f"This route has no query parameter of that name; {allowed}.", param=shown, code="unknown_parameter"
            )
        if name in values and name not in repeated:
            raise InvalidRequest(f"`{name}` stands in the query twice.", param=name, code="invalid_value")
        values.setdefault(name, []).append(value)
    return values
