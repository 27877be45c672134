"""`sampling`: which token is drawn."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from perdure.domain.limits import SEED_MAX
from perdure.domain.model import Sampling
from perdure.runtime.llamacpp.sampling import NotNumbers, draw, nucleus_of, penalised, uniform

VOCABULARY = 49_152


def logits_of(seed: int, size: int = VOCABULARY, spread: float = 3.0) -> NDArray[np.float32]:
    return (np.random.default_rng(seed).standard_normal(size) * spread).astype(np.float32)


def sampling(temperature: float = 1.0, top_p: float = 1.0, seed: int = 7) -> Sampling:
    return Sampling(temperature=temperature, top_p=top_p, seed=seed)


@given(temperature=st.floats(0, 2), top_p=st.floats(0, 1), seed=st.integers(0, SEED_MAX), at=st.integers(0, 10_000))
def test_a_draw_is_a_function_of_its_arguments(temperature: float, top_p: float, seed: int, at: int) -> None:
    """Other draws in between, and another copy of the logits in memory, change nothing."""
    logits = logits_of(1, size=300)
    chosen = sampling(temperature, top_p, seed)
    first = draw(logits, chosen, at)
    draw(logits_of(2, size=300), chosen, at + 1)
    assert draw(np.concatenate([logits[:1], logits])[1:], chosen, at) == first


def test_the_draws_of_a_seed_are_these() -> None:
    """The numbers are fixed for good: a text begun by an older version goes on as it began."""
    assert [uniform(0, 0), uniform(1, 0), uniform(0, 1), uniform(SEED_MAX, 4095)] == [
        0.12834324569620148,
        0.013687987756109465,
        0.9837232431249225,
        0.1830842091046907,
    ]
    logits = np.linspace(-2, 2, 1000, dtype=np.float32)
    assert [draw(logits, sampling(), position) for position in range(4)] == [943, 328, 648, 515]
    assert [draw(logits, sampling(top_p=0.5), position) for position in range(4)] == [973, 842, 881, 860]


def test_another_seed_or_position_is_another_number() -> None:
    """Ten thousand of them, all in [0, 1), with the mean and spread of even numbers."""
    numbers = [uniform(seed, position) for seed in range(100) for position in range(100)]
    assert len(set(numbers)) == len(numbers)
    assert 0 <= min(numbers) < max(numbers) < 1
    assert abs(np.mean(numbers) - 0.5) < 0.01
    assert abs(np.var(numbers) - 1 / 12) < 0.003


@pytest.mark.parametrize("temperature", [0.5, 1.0, 1.7])
def test_tokens_come_as_often_as_their_probability_says(temperature: float) -> None:
    """Chi-square over 20,000 positions: no token is left out, none favoured."""
    logits = logits_of(3, size=12, spread=1.0)
    scaled = np.exp((logits - logits.max()).astype(np.float64) / temperature)
    expected = scaled / scaled.sum() * 20_000
    drawn = [draw(logits, sampling(temperature), position) for position in range(20_000)]
    counts = np.bincount(drawn, minlength=12)
    assert float(((counts - expected) ** 2 / expected).sum()) < 31.3  # 11 degrees of freedom, p = 0.001


def test_the_least_likely_token_of_a_large_vocabulary_can_be_drawn() -> None:
    """Nothing is cut off: over a flat vocabulary of 49,152, draws reach far beyond any top-k."""
    flat = np.zeros(VOCABULARY, np.float32)
    drawn = [draw(flat, sampling(), position) for position in range(2_000)]
    assert len(set(drawn)) > 1_900
    assert max(drawn) > 0.99 * VOCABULARY


@pytest.mark.parametrize("chosen", [sampling(temperature=0.0), sampling(top_p=0.0), sampling(1e-300)])
def test_no_temperature_or_no_nucleus_is_greedy(chosen: Sampling) -> None:
    """The likeliest token; of equal ones the first."""
    logits = logits_of(4)
    logits[[5000, 300, 41_000]] = 50.0
    logits[[300]] = 51.0
    assert {draw(logits, chosen, position) for position in range(50)} == {300}


def test_greedy_breaks_a_tie_by_token_id() -> None:
    """The same token each time, whatever the machine."""
    logits = np.array([0, 3, 1, 3], np.float32)
    assert draw(logits, sampling(temperature=0.0), 0) == 1


@given(
    logits=st.lists(st.integers(-40, 5), min_size=1, max_size=60), top_p=st.floats(0.001, 0.999), flat=st.booleans()
)
def test_the_nucleus_is_the_fewest_tokens_that_reach_the_mass(logits: list[int], top_p: float, flat: bool) -> None:
    """Against the definition: order by weight, then token id; stop at the first that reaches the mass."""
    values = np.array(logits, np.float32) * np.float32(0.1 if flat else 0.5)
    weights = np.exp(values - values.max())
    order = sorted(range(len(logits)), key=lambda token: (-weights[token], token))
    needed = top_p * math.fsum(float(weight) for weight in weights)
    expected: list[int] = []
    while not expected or math.fsum(float(weights[token]) for token in expected) < needed * (1 - 1e-12):
        expected.append(order[len(expected)])
    got = {int(token) for token in np.flatnonzero(nucleus_of(weights, top_p))}
    # A sum that meets the mass to the last bit may round to either side of it.
    assert got in (set(expected), set(order[: len(expected) + 1]))


def test_draws_stay_in_the_nucleus_and_keep_its_proportions() -> None:
    """At top_p 0.5 of (0.4, 0.3, 0.2, 0.1) two tokens are left, four to three."""
    logits = np.log(np.array([0.1, 0.4, 0.3, 0.2])).astype(np.float32)
    drawn = [draw(logits, sampling(top_p=0.5), position) for position in range(7_000)]
    counts = np.bincount(drawn, minlength=4)
    assert counts[0] == counts[3] == 0
    assert abs(counts[1] - 4_000) < 170  # four standard deviations


@pytest.mark.parametrize("chosen", [sampling(0.0), sampling(), sampling(top_p=0.9)])
@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_logits_that_are_no_numbers_are_refused(chosen: Sampling, bad: float) -> None:
    """One bad number anywhere is enough; it never becomes token 0."""
    logits = logits_of(5)
    logits[40_000] = bad
    with pytest.raises(NotNumbers):
        draw(logits, chosen, 0)


def test_a_token_that_is_ruled_out_is_never_drawn() -> None:
    """Minus infinity is a legal logit and means weight 0."""
    logits = np.full(100, -math.inf, np.float32)
    logits[[10, 90]] = 1.0
    assert {draw(logits, sampling(2.0, 0.999), position) for position in range(200)} == {10, 90}
    assert {draw(logits, sampling(2.0), position) for position in range(200)} == {10, 90}
    with pytest.raises(NotNumbers):
        draw(np.full(100, -math.inf, np.float32), sampling(), 0)


def test_penalties_are_taken_for_each_token_drawn_before() -> None:
    """Once for its presence, once more for each time; other tokens keep their logits, and so does what was given."""
    logits = logits_of(6, size=50)
    given_logits = logits.copy()
    asked = Sampling(0.0, 1.0, 1, presence_penalty=0.5, frequency_penalty=-0.25)
    lessened = penalised(logits, {3: 1, 7: 4}, asked)
    expected = logits.copy()
    expected[3] -= np.float32(0.25)
    expected[7] += np.float32(0.5)
    assert np.array_equal(lessened, expected)
    assert np.array_equal(logits, given_logits)
    assert np.array_equal(penalised(logits, {}, asked), logits)


@pytest.mark.parametrize("top_p", [1.0, 0.9])
def test_a_token_without_weight_is_never_drawn(top_p: float) -> None:
    """Minus infinity is what a grammar gives to what it forbids."""
    logits = logits_of(8, size=100, spread=1.0)
    logits[::2] = -np.inf
    assert all(draw(logits, sampling(2.0, top_p), position) % 2 for position in range(2_000))
