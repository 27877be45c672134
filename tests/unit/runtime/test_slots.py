"""`slots`: which slot a text gets."""

import random

from hypothesis import given
from hypothesis import strategies as st

from perdure.runtime.llamacpp.slots import Slots

SYSTEM = tuple(range(1000, 1025))
"""What every prompt begins with."""


def chat(number: int, turns: int) -> tuple[int, ...]:
    """The prompt of a turn: what all chats begin with, and what this one has come to."""
    return SYSTEM + tuple(random.Random(number).randrange(900) for _ in range(turns * 40))


def serve(slots: Slots, tokens: tuple[int, ...]) -> tuple[int, int]:
    """One text from its beginning to its end."""
    slot, common = slots.take(tokens, tokens)
    slots.give_back(slot, tokens, asked=len(tokens))
    return slot, common


TEXTS = st.lists(st.integers(0, 1), min_size=1, max_size=6).map(tuple)


@given(count=st.integers(1, 5), steps=st.lists(st.tuples(TEXTS, st.integers(0, 4), st.integers(0, 6)), max_size=30))
def test_what_is_said_to_be_there_is_there(count: int, steps: list[tuple[tuple[int, ...], int, int]]) -> None:
    """A slot is taken once; what was last given back with it begins as said, and the last token is never counted."""
    slots = Slots(count)
    held: dict[int, tuple[int, ...]] = dict.fromkeys(range(count), ())
    taken: list[int] = []
    for tokens, which, asked in steps:
        if slots.free:
            slot, common = slots.take(tokens, tokens)
            assert slot not in taken
            assert common < len(tokens)
            assert held[slot][:common] == tokens[:common]
            assert common == len(tokens) - 1 or held[slot][common : common + 1] != tokens[common : common + 1]
            held[slot] = tokens
            taken.append(slot)
        source, common = slots.longest(tokens)
        longest = max(next((n for n in range(6) if each[: n + 1] != tokens[: n + 1]), 6) for each in held.values())
        assert held[source][:common] == tokens[:common]
        assert common == min(longest, len(tokens) - 1)
        if taken and which < len(taken):
            slot = taken.pop(which)
            held[slot] = held[slot][:asked]
            slots.give_back(slot, held[slot], asked=2)
        assert slots.free == count - len(taken)


def test_a_chat_goes_on_where_it_was() -> None:
    """Three chats take turns in four slots: each turn begins with the whole turn before, in the same slot."""
    slots = Slots(4)
    places = [serve(slots, chat(number, 1)) for number in range(3)]
    assert len({slot for slot, _ in places}) == 3
    for turn in range(2, 11):
        for number, (slot, _) in enumerate(places):
            assert serve(slots, chat(number, turn)) == (slot, len(chat(number, turn - 1)))


def test_a_few_words_in_common_do_not_end_a_chat() -> None:
    """A new one takes the slot that has been free for longest, and finds there what all begin with."""
    slots = Slots(2)
    assert [serve(slots, chat(number, 10)) for number in range(3)] == [(0, 0), (1, 0), (0, len(SYSTEM))]


def test_instructions_in_common_are_reason_enough() -> None:
    """Short questions after long instructions share one slot while nobody else wants it."""
    slots = Slots(4)
    instructions = chat(1, 10)
    places = [serve(slots, (*instructions, question, question)) for question in range(5)]
    assert places == [(0, 0), *[(0, len(instructions))] * 4]


def test_an_answer_that_is_not_sent_back_does_no_harm() -> None:
    """What was thought is left out of the next turn: the prompt before it is in common all the same."""
    slots = Slots(2)
    slot, _ = slots.take(chat(1, 2), ())
    slots.give_back(slot, chat(1, 2) + (7,) * 900, asked=len(chat(1, 2)))
    assert slots.take(chat(1, 3), ()) == (slot, len(chat(1, 2)))


def test_a_prompt_that_was_stopped_half_read_goes_on_in_its_slot() -> None:
    """What was never read of it does not count against it."""
    slots = Slots(2)
    slot, _ = slots.take(chat(1, 10), ())
    slots.give_back(slot, chat(1, 10)[:90], asked=len(chat(1, 10)))
    assert slots.take(chat(1, 10), ()) == (slot, 90)


def test_of_equal_slots_the_one_free_for_longest_is_taken() -> None:
    """And an empty one before all others."""
    slots = Slots(3)
    held = [slots.take((number,), ())[0] for number in range(3)]
    for slot in (held[1], held[0], held[2]):
        slots.give_back(slot, (5, 6) if slot != held[0] else (), asked=2)
    assert [slots.take((1, 2), ())[0] for _ in range(3)] == [held[0], held[1], held[2]]
