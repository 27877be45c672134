"""How the next token is drawn: a pure function of the logits, the request's sampling and the position.

Nothing is remembered between two draws. The random number is Philox (a counter-based generator) keyed by the seed and
counted by the position, so a text that goes on after a restart draws what it would have drawn, and the number of
texts under way plays no part.

The distribution is never cut behind the caller's back: at `top_p` 1 every token of the vocabulary can be drawn. At
`top_p` below 1 it is the nucleus as defined: the fewest tokens, most likely first, equal ones by token id, whose mass
reaches `top_p`.

Whoever changes a drawn token here raises `exactness.SAMPLER_VERSION`.
"""

import numpy as np
from numpy.typing import NDArray

from perdure.domain.model import Sampling

_STREAM = 0x70657264757265  # keeps these numbers apart from any other use of the same seed
_COOLEST = 1e-30  # differences between logits, divided by this, still fit into a float32
_UNIT = 2.0**-53


class NotNumbers(Exception):
    """The model gave logits that are no numbers; there is nothing to draw from."""


def uniform(seed: int, position: int) -> float:
    """A number in [0, 1), the same for the same seed (0 to 2**63 - 1) and position (from 0)."""
    generator = np.random.Philox(key=np.array([seed, _STREAM], np.uint64), counter=[0, position, 0, 0])
    return (int(generator.random_raw()) >> 11) * _UNIT


def draw(logits: NDArray[np.float32], sampling: Sampling, position: int) -> int:
    """The token id at `position` (0 is the first token of the answer). Raises `NotNumbers`.

    `logits` has one entry a token of the vocabulary and is not changed.
    """
    highest = logits.max()
    if not np.isfinite(highest):  # the maximum of anything with a NaN is NaN
        raise NotNumbers("the model gave logits that are not numbers")
    if sampling.temperature <= 0 or sampling.top_p <= 0:
        return int(logits.argmax())
    weights = np.exp((logits - highest) / np.float32(max(sampling.temperature, _COOLEST)))
    number = uniform(sampling.seed, position)
    if sampling.top_p >= 1:
        return _pick(weights, number)
    nucleus = nucleus_of(weights, sampling.top_p)
    return int(nucleus[_pick(weights[nucleus], number)])


def nucleus_of(weights: NDArray[np.float32], top_p: float) -> NDArray[np.intp]:
    """The token ids of the nucleus, most likely first. The largest weight is 1.

    Tokens over a falling threshold are always the first ones of the full order, ties included, so only they need
    sorting once their mass suffices.
    """
    needed = top_p * float(weights.sum(dtype=np.float64))
    for threshold in (2.0**-4, 2.0**-8, 2.0**-12, 2.0**-16, 0.0):
        likely = np.flatnonzero(weights >= threshold)
        order = likely[np.argsort(-weights[likely], kind="stable")]
        mass = np.cumsum(weights[order], dtype=np.float64)
        if mass[-1] >= needed:
            break
    return order[: int(np.searchsorted(mass, needed)) + 1]


def _pick(weights: NDArray[np.float32], number: float) -> int:
    """The index where the running sum passes `number` of the whole; never one of weight 0."""
    mass = np.cumsum(weights, dtype=np.float64)
    return int(np.searchsorted(mass, number * mass[-1], side="right"))
