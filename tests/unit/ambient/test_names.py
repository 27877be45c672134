"""New names: they sort by time, cannot be guessed, and can be read aloud."""

import re

import pytest

from perdure.ambient.names import RandomNames

DAY = 24 * 60 * 60 * 1_000_000
ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"


def test_a_name_tells_its_time_and_sorts_by_it() -> None:
    """48 bits of milliseconds stand in front, so that later rows land beside each other in the index."""
    names = RandomNames()
    made = [names.ident(day * DAY) for day in range(20_000, 20_100)]
    assert made == sorted(made)
    number = sum(ALPHABET.index(letter) << 5 * place for place, letter in enumerate(reversed(made[0])))
    assert number >> 80 == 20_000 * DAY // 1_000


def test_a_name_has_no_letters_that_are_mixed_up() -> None:
    """26 characters without i, l, o and u, also at the ends of time."""
    for at in (0, 20_000 * DAY, (1 << 48) * 1_000 - 1):
        assert re.fullmatch(f"[{ALPHABET}]{{26}}", RandomNames().ident(at))


@pytest.mark.proves("A-23")
def test_two_names_of_one_moment_differ() -> None:
    """80 random bits: behind the time, any letter may stand at any place."""
    names = RandomNames()
    made = {names.ident(DAY) for _ in range(1_000)}
    assert len(made) == 1_000
    assert all(set(letters) == set(ALPHABET) for letters in zip(*(name[10:] for name in made), strict=True))
