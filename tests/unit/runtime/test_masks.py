"""`masks`: what a grammar allows, over the vocabularies of real models."""

import json
import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from llguidance import LLMatcher, LLParserLimits

from perdure.runtime.llamacpp.masks import Grammars, Guide
from perdure.runtime.llamacpp.model import Model
from perdure.runtime.llamacpp.notation import CALL_ARGUMENTS, CALL_CLOSE, CALL_OPEN
from perdure.runtime.llamacpp.text import TextFailed

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 6},
        "kind": {"enum": ["alpha", "alphabet", "日本", "日曜"]},
        "sizes": {"type": "array", "items": {"type": "integer", "minimum": 0, "maximum": 99}, "maxItems": 3},
    },
    "required": ["name", "kind", "sizes"],
    "additionalProperties": False,
}
_COMPACT = {**SCHEMA, "x-guidance": {"whitespace_flexible": False}}
_CALL = f"{json.dumps(CALL_OPEN)} NAME {json.dumps(CALL_ARGUMENTS)} args {json.dumps(CALL_CLOSE)}"
GRAMMARS = {
    "json": f"%llguidance {{}}\nstart: %json {json.dumps(_COMPACT)}",
    "calls": f'%llguidance {{}}\nstart: call ("\\n" call)?\ncall: {_CALL}\nNAME: "f" | "foo" | "get"\n'
    f"args: %json {json.dumps(_COMPACT)}",
    "words": 'start: "one" (" " W)* "."\nW: /[a-z]{1,5}/',
}


class Words:
    """A model's vocabulary, the guides over it, and how long each token is."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.grammars = Grammars(model)
        self.bytes = [model.bytes_of(token) for token in range(model.tokens)]
        self.weights = 1 / (1 + np.array([len(data) for data in self.bytes]))
        self.ends = [token for token in range(model.tokens) if model.ends(token)]


@pytest.fixture(scope="module", params=["tiny", "real_words"])
def words(request: pytest.FixtureRequest) -> Words:
    """One token a byte, and forty-nine thousand with merges."""
    return Words(request.getfixturevalue(request.param))


def draws(words: Words, grammar: str, seed: int, length: int) -> Iterator[tuple[int, bytes]]:
    """Random tokens among those allowed, mostly short ones, each with the mask that allowed it, up to an end mark."""
    chance = random.Random(seed)
    guide = words.grammars.guide(grammar, ())
    for _ in range(length):
        bias = guide.bias()
        mass = np.cumsum(np.where(bias == 0, words.weights, 0))
        token = int(np.searchsorted(mass, chance.random() * mass[-1], side="right"))
        yield token, bias.tobytes()
        if token in words.ends:
            return
        guide.add(token)


@pytest.mark.parametrize("name", GRAMMARS)
def test_a_guide_can_go_on_after_any_token(words: Words, name: str) -> None:
    """One that is fed what was drawn before allows, bit for bit, what the first one allowed."""
    for seed in range(3):
        drawn = list(draws(words, GRAMMARS[name], seed, 60))
        tokens = [token for token, _ in drawn]
        assert len(tokens) > 5
        for cut in range(0, len(tokens), 1 + seed):
            assert words.grammars.guide(GRAMMARS[name], tokens[:cut]).bias().tobytes() == drawn[cut][1]


def test_json_is_of_its_schema(words: Words) -> None:
    """However it was drawn; it ends with an end mark, which is allowed where it is whole and nowhere else."""
    ended = 0
    for seed in range(12):
        tokens = [token for token, _ in draws(words, GRAMMARS["json"], seed, 200)]
        if tokens[-1] not in words.ends:
            continue
        ended += 1
        value = json.loads(b"".join(words.bytes[token] for token in tokens))
        assert list(value) == ["name", "kind", "sizes"]
        assert len(value["name"]) <= 6
        assert value["kind"] in SCHEMA["properties"]["kind"]["enum"]
        assert len(value["sizes"]) <= 3
        assert all(0 <= size <= 99 for size in value["sizes"])
    assert ended > 6


def test_only_end_marks_follow_what_is_complete(words: Words) -> None:
    """All that the model has; tokens without text never."""
    guide = words.grammars.guide('start: "ab"', ())
    assert not any(guide.bias()[token] == 0 for token in words.model.controls)
    for token in words.model.tokenize("ab", controls=False):
        assert not guide.complete
        guide.add(token)
    assert guide.complete
    assert np.flatnonzero(guide.bias() == 0).tolist() == words.ends


def test_where_there_is_one_way_the_models_own_tokens_are_allowed(words: Words) -> None:
    """So that a forced text is what the model has learnt to read."""
    tokens = [token for token, _ in draws(words, f"start: {json.dumps(CALL_OPEN)}", 1, 40)]
    assert tokens[:-1] == words.model.tokenize(CALL_OPEN, controls=False)


def test_a_token_that_the_grammar_forbids_is_told(words: Words) -> None:
    """In the middle, and after the end."""
    a, b = words.model.tokenize("a", controls=False), words.model.tokenize("b", controls=False)
    for done in (b, [*a, *a]):
        with pytest.raises(TextFailed, match="cannot be held to its grammar"):
            words.grammars.guide('start: "a"', done)


@pytest.mark.parametrize("wrong", ["start: (", "", 'start: %json {"type": "nothing"}'])
def test_what_is_no_grammar_is_told(tiny: Model, wrong: str) -> None:
    """With the library's words, on one line."""
    with pytest.raises(TextFailed, match=r"the grammar cannot be used \(.+\)$"):
        Grammars(tiny).guide(wrong, ())


def test_a_grammar_that_takes_too_long_fails_its_text(tiny: Model) -> None:
    """The library allows the end marks then, which would make the text a finished one."""
    limits = LLParserLimits(step_max_items=200, verbose_errors=False)
    grammar = 'start: a\na: a a | "a"'
    guide = Guide(LLMatcher(Grammars(tiny).tokenizer, grammar, log_level=0, limits=limits), tiny.tokens)
    (token,) = tiny.tokenize("a", controls=False)

    def go_on() -> None:
        for _ in range(100):
            guide.bias()
            guide.add(token)

    with pytest.raises(TextFailed, match="Too many items"):
        go_on()
    with pytest.raises(TextFailed, match="Too many items"):
        guide.bias()


def test_a_vocabulary_that_starts_every_text_with_a_space(tiny: Model) -> None:
    """Its tokenizer is no help inside a text; the tokens of a forced text are then the longest that fit."""

    class Spaced:
        tokens, ends, bytes_of = tiny.tokens, tiny.ends, tiny.bytes_of

        def tokenize(self, text: str, *, controls: bool) -> list[int]:
            return tiny.tokenize(" " + text, controls=controls)

    guide = Grammars(Spaced()).guide('start: "ab"', ())
    assert np.flatnonzero(guide.bias() == 0).tolist() == tiny.tokenize("a", controls=False)
    guide.add(tiny.tokenize("a", controls=False)[0])
    assert np.flatnonzero(guide.bias() == 0).tolist() == tiny.tokenize("b", controls=False)
