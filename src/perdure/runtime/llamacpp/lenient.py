"""What an answer cannot be held to in a schema that is not strict: it goes, and its place is told.

What goes are keywords that llguidance does not know, one by one; the rest of the schema holds. Whether it knows one
is asked of itself, of each on its own. A `oneOf` stays: where its schemas may overlap, one of them has to hold, and
others may. What is no schema is none without these keywords either.
"""

import time
from functools import lru_cache, partial
from typing import Any

import msgspec

from perdure.domain.model import Prompt, Shape
from perdure.runtime.llamacpp.grammar import UNAIDED, Calling, Held, NoGrammar, Reasoning, schemas_of, shape_of
from perdure.runtime.llamacpp.schemas import (
    COSTLY,
    SEARCH_SECONDS,
    Tell,
    check,
    fault_of,
    last_word,
    parts,
    uncounted,
)

_UNKNOWN_KEY = "Unimplemented keys"
_UNKNOWN_FORMAT = "Unknown format"
_ELSEWHERE = "is not present in a registry"
_LOOSE = "oneOf constraints are not supported"
_OTHER_PATTERNS = ("look-around", "lookaround", "backreference", "unrecognized escape", "property not found")
"""What is said of patterns that other engines take."""

_Looser = tuple[tuple[Held, ...], tuple[str, ...]]
"""Schemas, and the places of what is not in them any more."""


def settled(
    prompt: Prompt, reasoning: Reasoning, calling: Calling = UNAIDED, *, checked: bool
) -> tuple[Shape, tuple[str, ...]]:
    """The shape of an answer, and the places of what it is not held to. `reasoning` is what the model would do by
    itself, `calling` how it is helped. Raises `NoGrammar`; where it is not to be `checked`, for what can be seen at
    once only, else `Untried` too.

    May be called by several threads at once.
    """
    held = schemas_of(prompt)
    shape = shape_of(prompt, reasoning, held, calling)
    if shape.grammar is None or not checked:
        return shape, ()
    try:
        check(shape.grammar, held)
    except NoGrammar as error:
        looser, dropped = _loosened(held) if str(error) != COSTLY else (held, ())
        if not dropped:
            raise _with_remedy(error, held) from None
        shape = shape_of(prompt, reasoning, looser, calling)
        check(shape.grammar or "", looser)
        return shape, dropped
    return shape, ()


def _with_remedy(error: NoGrammar, held: tuple[Held, ...]) -> NoGrammar:
    """The same error, with the way out if only strict schemas have no answer."""
    if str(error) == COSTLY or not _loosened(tuple(one._replace(strict=False) for one in held))[1]:
        return error
    return NoGrammar(f"{error}; without `strict` it is left out, and named in the response", error.param)


def _loosened(held: tuple[Held, ...]) -> _Looser:
    """The schemas without what they cannot be held to, but for the strict ones. In a process of its own, with its
    bounds; where they do not suffice, nothing goes."""
    word = last_word(partial(_loosen, held))
    return (held, ()) if word is None else msgspec.json.decode(word, type=_Looser)


def _loosen(held: tuple[Held, ...], tell: Tell) -> None:
    looser, dropped = list[Held](), list[str]()
    for one in held:
        schema = msgspec.json.decode(one.schema)
        gone = [] if one.strict else [*_without(schema, one.place), *_widened(schema, one.place)]
        looser.append(one._replace(schema=msgspec.json.encode(schema).decode()))
        dropped += gone
    tell((looser, dropped))


def _without(root: dict[str, Any], place: str) -> list[str]:
    """Take unknown keywords out of a schema; returns their places."""
    dropped = list[str]()
    for at, part in parts(root, place):
        for key, value in list(part.items()):
            if key not in part:
                continue  # it went with another
            if key == "patternProperties" and isinstance(value, dict):
                dropped += _patterns_without(part, f"{at}.{key}")
            elif uncounted(part) if key == "minProperties" else _unknown(key, _text(value)):
                del part[key]
                dropped.append(f"{at}.{key}")
    return dropped


def _patterns_without(part: dict[str, Any], place: str) -> list[str]:
    """Take out the names that cannot be told. Any other could be one of them, so it may be anything."""
    unknown = [name for name in part["patternProperties"] if _unknown("pattern", name)]
    for name in unknown:
        del part["patternProperties"][name]
    if unknown and "additionalProperties" in part:
        del part["additionalProperties"]
        return [*(f"{place}.{name}" for name in unknown), f"{place.rpartition('.')[0]}.additionalProperties"]
    return [f"{place}.{name}" for name in unknown]


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


@lru_cache(None)  # for as long as the process lives, which is not long
def _unknown(key: str, text: str | None) -> bool:
    """Whether a keyword, with this value if that is a text, is one that nothing can be held to."""
    if key not in ("format", "pattern", "$ref"):
        return fault_of({key: {}}).startswith(_UNKNOWN_KEY)
    if text is None:
        return False
    fault = fault_of({"type": "string", key: text})
    if key == "pattern":
        return any(said in fault for said in _OTHER_PATTERNS)
    return fault.startswith(_UNKNOWN_FORMAT) if key == "format" else _ELSEWHERE in fault


def _widened(root: dict[str, Any], place: str) -> list[str]:
    """Let each `oneOf` whose schemas may overlap be an `anyOf`; returns their places. Where there is no time to look
    which these are, all that were not looked at are named."""
    choices = [(at, part["oneOf"]) for at, part in parts(root, place) if isinstance(part.get("oneOf"), list)]
    if not choices or not fault_of(root).startswith(_LOOSE):
        return []
    root["x-guidance"]["coerce_one_of"] = True
    strict = {**root, "x-guidance": {**root["x-guidance"], "coerce_one_of": False}}
    return [
        f"{at}.oneOf"
        for at, schemas in choices
        if len(choices) == 1 or time.process_time() > SEARCH_SECONDS or fault_of(_with_one(strict, schemas))
    ]


def _with_one(value: Any, kept: list[Any]) -> Any:
    """The same with this one `oneOf`: all others are `anyOf`."""
    if isinstance(value, list):
        return [_with_one(each, kept) for each in value]
    if not isinstance(value, dict):
        return value
    found = {key: _with_one(each, kept) for key, each in value.items()}
    if isinstance(value.get("oneOf"), list) and value["oneOf"] is not kept:
        found["allOf"] = [*found.get("allOf", []), {"anyOf": found.pop("oneOf")}]
    return found
