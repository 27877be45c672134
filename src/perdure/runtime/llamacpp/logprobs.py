"""How likely a drawn token was, and which others were: the model's own probabilities.

They are those before temperature, penalties and grammar, so they say what the model holds for likely, not what it was
made to say.
"""

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from perdure.domain.parts import Logprob, TopLogprob

_LEAST = -9999.0  # stands for a probability of 0, whose logarithm JSON cannot write


class Vocabulary(Protocol):
    """What is asked of a model's vocabulary."""

    def bytes_of(self, token: int) -> bytes: ...
    def token_text(self, token: int) -> str: ...


def logprob_of(logits: NDArray[np.float32], token: int, others: int, vocabulary: Vocabulary) -> Logprob:
    """A token's probability among the logits, which are numbers, and the `others` likeliest tokens with theirs.

    Of equally likely ones the smaller token id comes first.
    """
    highest = float(logits.max())
    total = highest + float(np.log(np.exp(logits - np.float32(highest)).sum(dtype=np.float64)))

    def told(which: int) -> tuple[str, float, tuple[int, ...]]:
        data = vocabulary.bytes_of(which)
        text = data.decode("utf-8", "replace") if data else vocabulary.token_text(which)
        return text, max(min(float(logits[which]) - total, 0.0), _LEAST), tuple(data)

    return Logprob(*told(token), tuple(TopLogprob(*told(which)) for which in _likeliest(logits, others)))


def _likeliest(logits: NDArray[np.float32], count: int) -> list[int]:
    if not count:
        return []
    count = min(count, len(logits))
    least = np.partition(logits, -count)[-count]
    tokens = np.flatnonzero(logits >= least)
    return tokens[np.argsort(-logits[tokens], kind="stable")][:count].tolist()
