"""`logprobs`: how likely a token was."""

import math

import numpy as np
import pytest

from perdure.domain.parts import Logprob, TopLogprob
from perdure.runtime.llamacpp.logprobs import logprob_of


class Words:
    """Four tokens: two of text, half a character, and a control token."""

    def bytes_of(self, token: int) -> bytes:
        return (b"a", b"b", b"\xe2\x82", b"")[token]

    def token_text(self, token: int) -> str:
        return ("x", "x", "x", "<|end|>")[token]


LOGITS = np.log(np.array([0.2, 0.4, 0.3, 0.1], np.float32)) + np.float32(17)


@pytest.mark.parametrize(
    ("token", "text", "probability", "data"),
    [(0, "a", 0.2, b"a"), (2, "\ufffd", 0.3, b"\xe2\x82"), (3, "<|end|>", 0.1, b"")],
)
def test_a_probability_is_the_softmax_of_the_logits(token: int, text: str, probability: float, data: bytes) -> None:
    """With the token's exact bytes; in its text half a character is replaced, a control token has its own name."""
    found = logprob_of(LOGITS, token, 0, Words())
    assert found == Logprob(text, found.logprob, tuple(data), ())
    assert math.isclose(math.exp(found.logprob), probability, rel_tol=1e-5)


def test_the_likeliest_tokens_come_in_their_order() -> None:
    """No more than there are; of equal ones the smaller id first."""
    for count, tokens in ((1, ["b"]), (3, ["b", "\ufffd", "a"]), (20, ["b", "\ufffd", "a", "<|end|>"])):
        found = logprob_of(LOGITS, 0, count, Words()).top_logprobs
        assert [other.token for other in found] == tokens
    even = logprob_of(np.zeros(4, np.float32), 3, 2, Words())
    assert even.top_logprobs == (TopLogprob("a", even.logprob, (97,)), TopLogprob("b", even.logprob, (98,)))


def test_what_is_impossible_has_a_number_too() -> None:
    """JSON has no infinity."""
    logits = np.array([0, -np.inf, -np.inf, -1e30], np.float32)
    found = logprob_of(logits, 0, 4, Words())
    assert found.logprob == 0.0
    assert [other.logprob for other in found.top_logprobs] == [0.0, -9999.0, -9999.0, -9999.0]
