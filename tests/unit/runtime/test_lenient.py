"""`lenient`: what a schema that is not strict asks for in vain goes by name, and everything else holds."""

from typing import Any

import pytest
from tests.unit.runtime.drawing import ASKED, may_be, may_begin
from tests.unit.runtime.test_grammar import call

from perdure.domain.model import JsonSchema, Places, Prompt, Tool
from perdure.runtime.llamacpp import lenient, schemas
from perdure.runtime.llamacpp.grammar import NoGrammar
from perdure.runtime.llamacpp.lenient import settled
from perdure.runtime.llamacpp.schemas import Untried

ROOT = "text.format.schema"
EMAIL = r"^(?!\.)(?!.*\.\.)([A-Za-z0-9_'+\-\.]*)[A-Za-z0-9_+-]@([A-Za-z0-9][A-Za-z0-9\-]*\.)+[A-Za-z]{2,}$"
LOOSE = [{"type": "object", "properties": {"a": {"type": "string"}}}, {"type": "object", "required": ["b"]}]
PLAIN = [{"type": "string"}, {"type": "integer"}]


def loosened(schema: dict[str, Any]) -> tuple[str, tuple[str, ...]]:
    """The grammar of a format that is not strict, and the places of what went."""
    shape, dropped = settled(Prompt(ASKED, format=JsonSchema("n", schema)), "none", checked=True)
    assert shape.grammar is not None
    return shape.grammar, tuple(place.removeprefix(ROOT + ".") for place in dropped)


def refused(schema: dict[str, Any], *, strict: bool | None = None) -> NoGrammar:
    with pytest.raises(NoGrammar) as caught:
        settled(Prompt(ASKED, format=JsonSchema("n", schema, strict=strict)), "none", checked=True)
    return caught.value


def of_a(**schema: Any) -> dict[str, Any]:
    """An object with one needed property."""
    return {"type": "object", "properties": {"a": schema}, "required": ["a"], "additionalProperties": False}


@pytest.mark.parametrize(
    ("schema", "dropped", "good", "bad"),
    [
        (of_a(type="integer", **{"not": {"const": 3}}), ["properties.a.not"], '{"a":3}', '{"a":"'),
        (of_a(type="array", uniqueItems=True, maxItems=1), ["properties.a.uniqueItems"], '{"a":[1]}', '{"a":[1,'),
        (of_a(type="string", pattern=EMAIL, format="email"), ["properties.a.pattern"], '{"a":"b@c.de"}', '{"a":"@'),
        (of_a(type="string", format="cuid", maxLength=1), ["properties.a.format"], '{"a":"b"}', '{"a":"bc'),
        (
            of_a(propertyNames={"pattern": "^b"}, type="object", additionalProperties={"type": "null"}),
            ["properties.a.propertyNames"],
            '{"a":{"c":null}}',
            '{"a":{"c":1',
        ),
        (
            {**of_a(type="string"), "if": {"properties": {"a": {"not": {}}}}, "then": False, "else": {}},
            ["if", "then", "else"],
            '{"a":"b"}',
            '{"a":1',
        ),
        (of_a(type="object", minProperties=2), ["properties.a.minProperties"], '{"a":{}}', '{"a":1'),
        ({"$ref": "https://example.com/x.json", "type": "integer"}, ["$ref"], "1", '"'),
        ({"anyOf": [{"type": "null"}, {"type": "array", "contains": {}}]}, ["anyOf[1].contains"], "[]", "1"),
        (
            {"$ref": "#/$defs/x", "$defs": {"x": {"type": "array", "items": {"type": "null", "not": {}}}}},
            ["$defs.x.items.not"],
            "[null]",
            "[1",
        ),
        (of_a(oneOf=LOOSE), ["properties.a.oneOf"], '{"a":{"a":"x"}}', '{"a":1'),
        (
            {"type": "object", "properties": {"a": {"oneOf": LOOSE}, "b": {"oneOf": PLAIN}}},
            ["properties.a.oneOf"],
            '{"a":{"b":1},"b":1}',
            '{"b":n',
        ),
        (
            {"type": "array", "items": {"oneOf": [{"type": "array", "items": {"oneOf": LOOSE}}, {"type": "null"}]}},
            ["items.oneOf[0].items.oneOf"],
            '[[{"a":"x"}],null]',
            "[1",
        ),
        (
            {"type": "object", "patternProperties": {"(?=a)": False, "^x": {"type": "null"}}, "minProperties": 1},
            ["patternProperties.(?=a)"],
            '{"ab":1,"x":null}',
            '{"x":1',
        ),
        (
            {"type": "object", "patternProperties": {"(?=a)": {}}, "additionalProperties": False},
            ["patternProperties.(?=a)", "additionalProperties"],
            '{"ab":1}',
            "[",
        ),
        (
            {"$ref": "#/odd/0/of", "odd": [{"of": {"type": "string", "uniqueItems": True}}]},
            ["odd[0].of.uniqueItems"],
            '"x"',
            "1",
        ),
    ],
)
def test_what_is_unknown_goes_by_name_and_the_rest_holds(
    schema: dict[str, Any], dropped: list[str], good: str, bad: str
) -> None:
    """As schemas of zod and of tools have it. Strictly it would be refused at one of these places."""
    grammar, places = loosened(schema)
    assert list(places) == dropped
    assert may_be(grammar, good)
    assert not may_begin(grammar, bad)
    error = refused(schema, strict=True)
    assert error.param.startswith(ROOT)
    assert "without `strict`" in str(error)


def test_nothing_goes_that_only_has_the_name_of_a_keyword() -> None:
    """Properties and values may be called as they like."""
    named = {
        "type": "object",
        "properties": {"not": {"type": "null"}, "if": {"type": "null"}},
        "default": {"not": {}},
        "examples": [{"uniqueItems": True}],
        "required": ["not"],
    }
    assert loosened(named)[1] == ()
    grammar, places = loosened({**named, "not": {}})
    assert places == ("not",)
    assert may_be(grammar, '{"not":null,"if":null}')


@pytest.mark.parametrize(
    ("schema", "place"),
    [
        ({"type": "strin", "not": {}}, "type"),
        (of_a(pattern="(", uniqueItems=True), "properties.a.pattern"),
        (of_a(minLength=-1, **{"not": {}}), "properties.a.minLength"),
        (of_a(**{"$ref": "#/$defs/x", "not": {}}), "properties.a.$ref"),
        ({"type": "integer", "minimum": 5, "maximum": 1, "not": {}}, "minimum"),
        ({"$ref": "#", "not": {}}, "$ref"),
        ({"type": "string", "enum": [1], "not": {}}, "enum"),
    ],
)
def test_what_is_no_schema_or_fits_nothing_is_refused_all_the_same(schema: dict[str, Any], place: str) -> None:
    """With the place of that, also where something else would go."""
    assert refused(schema).param == f"{ROOT}.{place}"


def test_only_schemas_that_are_not_strict_give_way() -> None:
    """Each function for itself, and named by the caller's own paths."""
    odd = {"type": "object", "properties": {"x": {"type": "integer", "not": {"const": 1}}}, "required": ["x"]}
    tools = (Tool("a", None, odd, None), Tool("b", None, {"type": "object"}, True), Tool("c", None, odd, False))
    places = Places(("tools[1]", "tools[2]", "tools[5].function"))
    shape, dropped = settled(Prompt(ASKED, tools, places=places), "none", checked=True)
    assert dropped == ("tools[1].parameters.properties.x.not", "tools[5].function.parameters.properties.x.not")
    assert may_be(shape.grammar or "", call("c", '{"x":1}'))
    assert not may_begin(shape.grammar or "", call("c", '{"x":"'))
    with pytest.raises(NoGrammar) as caught:
        settled(Prompt(ASKED, (*tools, Tool("d", None, odd, True)), places=Places((*"pqrs",))), "none", checked=True)
    assert caught.value.param == "s.parameters.properties.x.not"


def test_the_search_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where it takes too long, nothing goes; which of many choices are loose is not looked for ever."""
    monkeypatch.setattr(schemas, "CPU_SECONDS_MAX", 1)
    monkeypatch.setattr(schemas, "SEARCH_SECONDS", 0.1)
    many = {f"k{n}": True for n in range(3_000)}
    assert refused({**many, "not": {}}).param.startswith(ROOT)
    monkeypatch.setattr(schemas, "CPU_SECONDS_MAX", 3)
    monkeypatch.setattr(lenient, "SEARCH_SECONDS", 0.0)
    both = {"type": "object", "properties": {"a": {"oneOf": LOOSE}, "b": {"oneOf": PLAIN}}}
    assert set(loosened(both)[1]) == {"properties.a.oneOf", "properties.b.oneOf"}


def test_a_search_that_is_ended_from_outside_is_no_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Here by the clock on the wall: what would go is not known, so the schema is not refused for it."""
    monkeypatch.setattr(schemas, "SECONDS_MAX", 1)
    monkeypatch.setattr(schemas, "SEARCH_SECONDS", 0.1)
    many = {f"k{n}": True for n in range(30_000)}
    with pytest.raises(Untried):
        settled(Prompt(ASKED, format=JsonSchema("n", {**many, "not": {}})), "none", checked=True)


def test_many_functions_with_unknown_keywords_are_taken() -> None:
    """As agents have them."""
    record = {"type": "object", "propertyNames": {"type": "string"}, "additionalProperties": {"type": "number"}}
    odd = {"type": "object", "properties": {f"p{n}": record for n in range(5)}}
    shape, dropped = settled(Prompt(ASKED, tuple(Tool(f"f{n}", None, odd) for n in range(64))), "none", checked=True)
    assert shape.grammar is not None
    assert len(dropped) == 64 * 5
