"""How the next token is drawn: a pure function of the logits, the request's sampling and the position.

Nothing is remembered between two draws. The random number is Philox (a counter-based generator) keyed by the seed and
counted by the position, so a text that goes on after a restart draws what it would have drawn, and the number of
texts under way plays no part.

The distribution is never cut behind the caller's back: at `top_p` 1 every token of the vocabulary can be drawn. At
`top_p` below 1 it is the nucleus as defined: the fewest tokens, most likely first, equal ones by token id, whose mass
reaches `top_p`.

Penalties are taken from the logits before all that. They count the tokens of the answer so far, which makes them a
function of the tokens before, like the logits themselves.

Whoever changes a drawn token here raises `exactness.SAMPLER_VERSION`.
"""

from collections.abc import Mapping

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
    if sampling.top_p < 1:
        weights[~nucleus_of(weights, sampling.top_p)] = 0
    mass = np.cumsum(weights, dtype=np.float64)
    # The number is below 1, so the running sum passes it: at a token whose weight is not 0.
    return int(np.searchsorted(mass, uniform(sampling.seed, position) * mass[-1], side="right"))


def penalised(logits: NDArray[np.float32], counts: Mapping[int, int], sampling: Sampling) -> NDArray[np.float32]:
    """The logits less the penalties for the tokens drawn before, of which `counts` has how often each was."""
    lessened = logits.copy()
    if counts:
        tokens = np.fromiter(counts.keys(), np.intp, len(counts))
        times = np.fromiter(counts.values(), np.float32, len(counts))
        lessened[tokens] -= np.float32(sampling.presence_penalty) + np.float32(sampling.frequency_penalty) * times
    return lessened


def nucleus_of(weights: NDArray[np.float32], top_p: float) -> NDArray[np.bool_]:
    """Which tokens are in the nucleus; `weights` are between 0 and 1, `top_p` is above 0 and below 1.

    Sorting a whole vocabulary takes milliseconds, so the tokens are first counted into classes by the upper half of
    their weight's bits, which order numbers as the numbers themselves. Only the class in which the mass is reached
    needs sorting.
    """
    classes = weights.view(np.uint32) >> 16
    mass_down_to = np.cumsum(np.bincount(classes, weights=weights)[::-1])
    needed = top_p * mass_down_to[-1]
    full_classes = int(np.searchsorted(mass_down_to, needed))
    border = len(mass_down_to) - 1 - full_classes
    inside = classes > border
    candidates = np.flatnonzero(classes == border)
    candidates = candidates[np.argsort(-weights[candidates], kind="stable")]
    before = mass_down_to[full_classes - 1] if full_classes else 0.0
    mass = before + np.cumsum(weights[candidates], dtype=np.float64)
    inside[candidates[: int(np.searchsorted(mass, needed)) + 1]] = True
    return inside
