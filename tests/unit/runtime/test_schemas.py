"""`schemas`: what cannot be drawn by is refused with its place, and nothing brings the process down."""

import errno
import json
import os
import random
import re
import signal
from collections.abc import Callable
from typing import Any

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.runtime.drawing import ASKED, draw, grammar_of

from perdure.domain.model import JsonSchema, Prompt, Tool
from perdure.runtime.llamacpp import schemas
from perdure.runtime.llamacpp.grammar import NoGrammar
from perdure.runtime.llamacpp.schemas import END_MARK, Tell, Untried, last_word

ROOT = "text.format.schema"
BYTES_MAX = 400


def refusal(schema: dict[str, Any]) -> NoGrammar | None:
    """How a schema is refused, if it is."""
    try:
        grammar_of(Prompt(ASKED, format=JsonSchema("n", schema, strict=True)))
    except NoGrammar as error:
        return error
    return None


def chain(length: int) -> dict[str, Any]:
    """Definitions that each refer to the next."""
    links = {f"d{n}": {"type": "array", "items": {"$ref": f"#/$defs/d{n + 1}"}} for n in range(length)}
    return {"$ref": "#/$defs/d0", "$defs": {**links, f"d{length}": True}}


def nested(depth: int) -> dict[str, Any]:
    """Objects in objects."""
    schema: dict[str, Any] = {"type": "integer"}
    for _ in range(depth):
        schema = {"type": "object", "properties": {"a": schema}, "required": ["a"]}
    return schema


@pytest.mark.parametrize(
    ("schema", "place"),
    [
        ({"type": "strin"}, "type"),
        ({"type": "object", "properties": {"a": {"type": "string", "pattern": "("}}}, "properties.a.pattern"),
        ({"properties": {"a": {"pattern": "^(?=a)b"}}}, "properties.a.pattern"),
        ({"properties": {"a": {"prefixItems": [{}, {"format": "x"}]}}}, "properties.a.prefixItems[1].format"),
        ({"$ref": "#/$defs/x", "$defs": {"x": {"items": {"not": {}}}}}, "$defs.x.items.not"),
        ({"anyOf": [{"type": "null"}, {"uniqueItems": True}]}, "anyOf[1].uniqueItems"),
        ({"properties": {"a": 5}}, "properties.a"),
        ({"properties": {"a": {"minLength": -1}}}, "properties.a.minLength"),
        ({"required": "a"}, "required"),
        ({"enum": []}, "enum"),
        ({"$ref": "#/$defs/x"}, "$ref"),
        ({"$ref": "https://example.com/x.json"}, "$ref"),
        ({"$ref": "#"}, "$ref"),
        ({"allOf": [{"$ref": "#"}]}, "allOf[0].$ref"),
        ({"properties": {"a": {"$ref": "#/$defs/x"}}, "$defs": {"x": {"$ref": "#/$defs/x"}}}, "$defs.x.$ref"),
        ({"type": "integer", "minimum": 5, "maximum": 1}, "minimum"),
        ({"items": {"type": "object", "minProperties": 2}}, "items.minProperties"),
        ({"additionalProperties": {"propertyNames": {}}}, "additionalProperties.propertyNames"),
    ],
)  # fmt: skip
def test_a_schema_that_cannot_be_held_to_is_refused_with_the_place(schema: dict[str, Any], place: str) -> None:
    """The deepest one there is."""
    error = refusal(schema)
    assert error is not None
    assert error.param == f"{ROOT}.{place}"
    assert " " in str(error)


def test_the_place_of_a_functions_schema_names_the_function() -> None:
    """By its number in the request."""
    bad = {"type": "object", "properties": {"x": {"type": "string", "pattern": "["}}}
    with pytest.raises(NoGrammar) as refused:
        grammar_of(Prompt(ASKED, (Tool("one"), Tool("two", None, bad))))
    assert refused.value.param == "tools[1].parameters.properties.x.pattern"


EXCLUDING = [{"pattern": f".*a.{{{n}}}b.*"} for n in range(20, 40)]
FACTORS = [{"multipleOf": 99_991}, {"multipleOf": 99_989}]


@pytest.mark.parametrize(
    "schema",
    [
        pytest.param(chain(20_000), id="overflows the stack"),
        pytest.param({"type": "string", "allOf": EXCLUDING}, id="takes hours"),
        pytest.param({"type": "integer", "allOf": FACTORS}, id="runs out of fuel"),
        pytest.param(nested(100), id="deep"),
        pytest.param({"properties": {f"p{n}": {"description": "x" * 100} for n in range(33_000)}}, id="5 MB"),
        pytest.param({"pattern": "(" * 5_000 + "a" + ")" * 5_000}, id="deep pattern"),
    ],
)
def test_work_without_bounds_is_refused_and_ends(monkeypatch: pytest.MonkeyPatch, schema: dict[str, Any]) -> None:
    """A crash and an endless search alike; the next schema is taken as if nothing had been."""
    monkeypatch.setattr(schemas, "CPU_SECONDS_MAX", 1)
    error = refusal(schema)
    assert error is not None
    assert error.param.startswith(ROOT)
    assert len(str(error)) < 400
    assert refusal({"type": "object"}) is None


def test_a_trial_that_ends_before_its_first_word_says_nothing_of_a_schema(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor does one that could not be started."""
    with monkeypatch.context() as patched:
        patched.setattr(schemas, "MEMORY_MAX_BYTES", 2**70)  # no such bound can be set
        with pytest.raises(Untried):
            refusal({"type": "object"})
    with monkeypatch.context() as patched:
        patched.setattr(os, "fork", _no_fork)
        with pytest.raises(Untried, match="Resource temporarily unavailable"):
            refusal({"type": "object"})
    assert refusal({"type": "object"}) is None


def _no_fork() -> int:
    raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))


def ended_by(number: int) -> bytes | None:
    """What a piece of work has told that a signal ends."""

    def work(tell: Tell) -> None:
        tell("told")
        os.kill(os.getpid(), number)

    return last_word(work)


@pytest.mark.parametrize("name", ["SIGKILL", "SIGALRM", "SIGTERM", "SIGUSR1", "SIGBUS"])
def test_a_trial_that_is_ended_from_outside_says_nothing_of_a_schema(name: str) -> None:
    """By whom, or by what, nobody knows."""
    with pytest.raises(Untried):
        ended_by(signal.Signals[name])


@pytest.mark.parametrize("name", ["SIGXCPU", "SIGSEGV", "SIGABRT"])
def test_a_trial_that_is_its_own_end_has_told_why(name: str) -> None:
    """It has used up its time or its stack, or was refused memory."""
    assert ended_by(signal.Signals[name]) == b'"told"'


def test_a_trial_that_gets_too_little_time_says_nothing_of_a_schema(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its time on the wall is over before that on the processor; the next schema is taken."""
    monkeypatch.setattr(schemas, "SECONDS_MAX", 1)
    with pytest.raises(Untried, match="too little of the processor"):
        refusal({"type": "string", "allOf": EXCLUDING})
    assert refusal({"type": "object"}) is None


@pytest.mark.parametrize(
    "schema",
    [
        pytest.param({"enum": [f"value {n} of many" for n in range(500)]}, id="500 values"),
        pytest.param(nested(40), id="nested"),
        pytest.param({"type": "string", "pattern": "^(a+)+$"}, id="slow for backtracking"),
        pytest.param(chain(50), id="chain"),
        pytest.param({"type": "object", "minProperties": 1}, id="one property or more"),
        pytest.param({"required": ["a", "b"], "properties": {"a": {}, "b": {}}, "minProperties": 2}, id="named ones"),
        pytest.param({"type": "object", "properties": {"next": {"$ref": "#"}}}, id="recursive"),
    ],
)
def test_what_only_looks_costly_is_taken(schema: dict[str, Any]) -> None:
    """Large sets, patterns that other engines choke on, recursion."""
    assert refusal(schema) is None


def test_many_functions_at_once_are_taken() -> None:
    """As agents have them."""
    parameters = {"type": "object", "properties": {f"p{n}": {"type": "string"} for n in range(10)}}
    grammar_of(Prompt(ASKED, tuple(Tool(f"f{n}", None, parameters) for n in range(128))))


# Schemas of every kind that can be held to, and faults to put into them.

Schema = dict[str, Any]
names = st.sampled_from(["a", "b", "Größe", "x y", 'q"'])
values = st.one_of(st.integers(-5, 5), st.text(max_size=4), st.none(), st.booleans(), st.lists(st.integers(0, 3)))


def _between(low: int, more: int) -> Schema:
    return {"type": "integer", "minimum": low, "maximum": low + more}


def _so_long(least: int, more: int) -> Schema:
    return {"type": "string", "minLength": least, "maxLength": least + more}


leaves: st.SearchStrategy[Schema] = st.one_of(
    st.fixed_dictionaries({"type": st.sampled_from(["null", "boolean", "integer", "number", "string"])}),
    st.just({}),
    st.builds(_between, st.integers(-99, 99), st.integers(0, 99)),
    st.builds(_so_long, st.integers(0, 3), st.integers(0, 5)),
    st.just({"type": "string", "pattern": "^[a-f]{2,4}$"}),
    st.just({"type": "string", "format": "date"}),
    st.fixed_dictionaries({"enum": st.lists(values, min_size=1, max_size=4)}),
    st.fixed_dictionaries({"const": values}),
)


def _object(properties: Schema, required: list[int], closed: bool) -> Schema:
    kept = [name for place, name in enumerate(properties) if place in required]
    return {"type": "object", "properties": properties, "required": kept, "additionalProperties": not closed}


def _compound(inner: st.SearchStrategy[Schema]) -> st.SearchStrategy[Schema]:
    arrays: dict[str, st.SearchStrategy[Any]] = {
        "type": st.just("array"),
        "items": inner,
        "minItems": st.integers(0, 1),
        "maxItems": st.integers(1, 3),
    }
    return st.one_of(
        st.builds(_object, st.dictionaries(names, inner, max_size=3), st.lists(st.integers(0, 2)), st.booleans()),
        st.fixed_dictionaries(arrays),
        st.fixed_dictionaries({"anyOf": st.lists(inner, min_size=1, max_size=3)}),
    )


schemas_held_to = st.recursive(leaves, _compound, max_leaves=6)
FAULTS: list[dict[str, Any]] = [
    {"pattern": "(", "type": "string"},
    {"not": {}},
    {"type": "thing"},
    {"format": "no such"},
    {"minimum": 3, "maximum": 1, "type": "integer"},
]


def _wants_to_end(chance: random.Random) -> Callable[[list[int]], int]:
    """A choice that closes what is open more often than not, so that answers end."""
    closing = {*b'"}]0123456789', END_MARK}

    def choose(allowed: list[int]) -> int:
        ends = [token for token in allowed if token in closing]
        return chance.choice(ends if ends and chance.random() < 0.6 else allowed)

    return choose


@settings(max_examples=60, deadline=None)
@given(schema=schemas_held_to, seed=st.integers(0, 2**32))
def test_every_answer_by_a_schema_is_json_of_that_schema(schema: dict[str, Any], seed: int) -> None:
    """Whatever a model does with the freedom it has."""
    grammar = grammar_of(Prompt(ASKED, format=JsonSchema("n", schema, strict=True)))
    assert schemas.fault_of(schema) == ""
    chance = random.Random(seed)
    for _ in range(3):
        text = draw(grammar, _wants_to_end(chance), BYTES_MAX)
        if text is not None:
            jsonschema.Draft202012Validator(schema).validate(json.loads(text))
            assert "\n" not in text


@st.composite
def schemas_with_a_fault(draws: st.DrawFn) -> dict[str, Any]:
    """A sound schema around one that is not."""
    schema = draws(st.sampled_from(FAULTS))
    for _ in range(draws(st.integers(0, 4))):
        name, other = draws(names), draws(leaves)
        schema = draws(
            st.sampled_from(
                [
                    {"type": "object", "properties": {"first": other, name: schema}, "required": [name]},
                    {"type": "array", "items": schema, "minItems": 1},
                    {"type": "array", "prefixItems": [other, schema], "minItems": 2},
                    {"allOf": [schema]},
                ]
            )
        )
    return schema


def at(schema: Any, place: str) -> Any:
    """What stands at a place of a schema; fails where there is none."""
    keys = re.findall(r"\.((?:[^.\[\]])+)|\[(\d+)\]", place)
    for name, number in keys:
        schema = schema[int(number)] if number else schema[name]
    return schema


@settings(max_examples=30, deadline=None)
@given(schema=schemas_with_a_fault())
def test_every_refusal_names_a_place_that_there_is(schema: dict[str, Any]) -> None:
    """In the schema as it was sent."""
    error = refusal(schema)
    assert error is not None
    at(schema, error.param.removeprefix(ROOT))
