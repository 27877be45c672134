"""Cases out of the types that the official client declares: one for every field, literal value and kind of object.

A case has a label, such as `text.format[json_schema].strict=True`: the path, the `type` of a member of a union in
brackets, and the value where the type names its values. It has a value, and the same value without the last member of
the path (None where that is the whole).
"""

import collections.abc
import types
from collections.abc import Container, Iterator, Mapping
from typing import Any, Literal, NotRequired, Required, Union, get_args, get_origin, get_type_hints

Case = tuple[str, Any, Any]

_SCALARS: Mapping[Any, Any] = {str: "x", int: 1, float: 0.5, object: {}}
_WRAPPERS = (Required, NotRequired)
_LISTS = (list, collections.abc.Iterable, collections.abc.Sequence)


def labels(table: dict[str, str]) -> dict[str, str]:
    """Each label of a table of fates, with the path under which it stands."""
    return {label: path for path, listed in table.items() for label in listed.split()}


def fields_of(*requests: type) -> Iterator[tuple[str, Any]]:
    """The fields that the official client declares for these requests, with their types."""
    for each in requests:
        yield from get_type_hints(each, include_extras=True).items()


class Cases:
    """Walks types. `examples` are values for paths whose type says too little; below a label of `closed` nothing is
    looked at, as the whole is decided there."""

    def __init__(self, examples: Mapping[str, Any], closed: Container[str]) -> None:
        self._examples = examples
        self._closed = closed

    def of(self, hint: Any, path: str) -> Iterator[Case]:
        """Every case of a type."""
        origin, parts = get_origin(hint), get_args(hint)
        if path in self._examples:
            yield path, self._examples[path], None
        elif origin in _WRAPPERS:
            yield from self.of(parts[0], path)
        elif origin in (Union, types.UnionType):
            for part in parts:
                yield from self.of(part, path)
        elif origin is Literal:
            yield from ((f"{path}={value}", value, None) for value in parts)
        elif hint is bool:
            yield from ((f"{path}={value}", value, None) for value in (True, False))
        elif hint in _SCALARS:
            yield path, _SCALARS[hint], None
        elif hasattr(hint, "__required_keys__"):
            yield from self._of_object(hint, path)
        elif hint is not type(None):
            yield from self._of_container(origin, parts, path)

    def _of_container(self, origin: Any, parts: tuple[Any, ...], path: str) -> Iterator[Case]:
        if origin is dict:
            yield path, {"x": "x"}, None
            return
        if not (origin in _LISTS or getattr(origin, "__name__", "") == "SequenceNotStr"):
            raise AssertionError(f"{path}: {origin} is no type that is known here")
        for label, value, rest in self.of(parts[0], path):
            yield label, [value], None if rest is None else [rest]

    def _of_object(self, hint: Any, path: str) -> Iterator[Case]:
        members = get_type_hints(hint, include_extras=True)
        kinds = [value for _, value, _ in self.of(members["type"], "")] if "type" in members else [None]
        for kind in kinds:
            label = path if kind is None else f"{path}[{kind}]"
            base = {} if kind is None else {"type": kind}
            base |= {name: self._first(members[name], f"{label}.{name}") for name in self._needed(members, label)}
            yield label, base, None
            if label not in self._closed:
                yield from self._of_members(members, label, base)

    def _needed(self, members: dict[str, Any], label: str) -> Iterator[str]:
        """Members that are declared so (which annotations in strings hide from the class), or have an example."""
        for name in (each for each in members if each != "type"):
            if get_origin(members[name]) is Required or f"{label}.{name}" in self._examples:
                yield name

    def _of_members(self, members: dict[str, Any], label: str, base: dict[str, Any]) -> Iterator[Case]:
        for name in (each for each in members if each != "type"):
            for inner, value, rest in self.of(members[name], f"{label}.{name}"):
                yield inner, {**base, name: value}, base if rest is None else {**base, name: rest}

    def _first(self, hint: Any, path: str) -> Any:
        return next(value for _, value, _ in self.of(hint, path))
