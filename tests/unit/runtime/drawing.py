"""Texts against a grammar, byte by byte, with llguidance itself."""

from collections.abc import Callable

import llguidance

from perdure.domain.model import Message, Prompt
from perdure.runtime.llamacpp.grammar import UNAIDED, Calling, Reasoning
from perdure.runtime.llamacpp.lenient import settled
from perdure.runtime.llamacpp.schemas import END_MARK, byte_vocabulary

ASKED = (Message("user", "x"),)


def grammar_of(prompt: Prompt, reasoning: Reasoning = "none", calling: Calling = UNAIDED) -> str:
    """The grammar of a prompt that has one, checked."""
    shape, _ = settled(prompt, reasoning, calling, checked=True)
    assert shape.grammar is not None
    return shape.grammar


def _matcher(grammar: str) -> llguidance.LLMatcher:
    matcher = llguidance.LLMatcher(byte_vocabulary(), grammar, log_level=0)
    assert not matcher.is_error(), matcher.get_error()
    return matcher


def may_begin(grammar: str, text: str) -> bool:
    """Whether an answer may begin so."""
    data = list(text.encode())
    return _matcher(grammar).try_consume_tokens(data) == len(data)


def may_be(grammar: str, text: str) -> bool:
    """Whether an answer may be exactly this: then, and only then, the end mark may follow."""
    matcher = _matcher(grammar)
    data = list(text.encode())
    if matcher.try_consume_tokens(data) < len(data):
        return False
    assert matcher.is_accepting() == bool(matcher.compute_logit_bias()[END_MARK])
    return matcher.is_accepting()


def draw(grammar: str, choose: Callable[[list[int]], int], bytes_max: int) -> str | None:
    """An answer, each byte chosen among those allowed; None if it does not end in time."""
    matcher = _matcher(grammar)
    drawn = bytearray()
    while len(drawn) < bytes_max:
        token = choose([token for token, allowed in enumerate(matcher.compute_logit_bias()) if allowed])
        if token == END_MARK:
            return drawn.decode()
        drawn.append(token)
        assert matcher.consume_token(token), matcher.get_error()
    return None
