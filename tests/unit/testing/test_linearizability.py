"""The checker finds an order where there is one, and none where there is none."""

import math
from collections.abc import Iterable
from itertools import permutations, product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.testing.linearizability import UNKNOWN, History, Model, NotLinearizable, Operation, linearized

Register = tuple[str, int]
"""("put", value) or ("get", 0)."""


def answers(state: int, call: Register) -> Iterable[tuple[object, int]]:
    """A register that begins with 0."""
    verb, value = call
    return [("ok", value)] if verb == "put" else [(state, state)]


REGISTER = Model(0, answers)
COUNTER: Model[int, str] = Model(0, lambda state, _: [(state, state)], lambda state: [state + 1] if state < 3 else [])
"""It counts to three by itself."""


def operations(*told: tuple[Register, float, float, object]) -> list[Operation[Register]]:
    """A history."""
    return [Operation(call, invoked, answered, answer) for call, invoked, answered, answer in told]


def possible(history: list[Operation[Register]]) -> bool:
    """Whether there is an order."""
    try:
        linearized(history, REGISTER)
    except NotLinearizable:
        return False
    return True


PUT1, PUT2, GET = ("put", 1), ("put", 2), ("get", 0)


@pytest.mark.parametrize(
    ("history", "good"),
    [
        ([], True),
        ([(PUT1, 0, 1, "ok"), (GET, 2, 3, 1)], True),
        ([(PUT1, 0, 1, "ok"), (GET, 2, 3, 0)], False),
        ([(PUT1, 0, 3, "ok"), (GET, 1, 2, 0)], True),
        ([(PUT1, 0, 3, "ok"), (GET, 1, 2, 1)], True),
        ([(PUT1, 0, 9, "ok"), (GET, 1, 2, 1), (GET, 3, 4, 0)], False),
        ([(PUT1, 0, 9, "ok"), (PUT2, 1, 2, "ok"), (GET, 3, 4, 1), (GET, 5, 6, 1)], True),
        ([(PUT1, 0, 9, "ok"), (PUT2, 1, 2, "ok"), (GET, 3, 4, 1), (GET, 5, 6, 2)], False),
        ([(PUT1, 0, math.inf, UNKNOWN), (GET, 1, 2, 0), (GET, 3, 4, 1)], True),
        ([(PUT1, 0, math.inf, UNKNOWN), (GET, 1, 2, 1), (GET, 3, 4, 0)], False),
        ([(PUT1, 0, 1, UNKNOWN), (GET, 2, 3, 0)], True),
        ([(PUT1, 0, 1, UNKNOWN), (GET, 2, 3, 0), (GET, 4, 5, 1)], False),
    ],
)
def test_a_register(history: list[tuple[Register, float, float, object]], good: bool) -> None:
    """Reads between, beside and after writes; writes whose caller was never told."""
    assert possible(operations(*history)) is good


def test_the_order_is_one_that_explains_the_answers() -> None:
    """It can be read off."""
    late, early, read = operations((PUT1, 0, 9, "ok"), (PUT2, 1, 2, "ok"), (GET, 3, 4, 1))
    assert linearized([read, late, early], REGISTER) == [early, late, read]


@pytest.mark.parametrize(("seen", "good"), [((0, 2), True), ((2, 2, 3), True), ((1, 0), False), ((4,), False)])
def test_what_moves_by_itself_is_seen_where_it_may_be(seen: tuple[int, ...], good: bool) -> None:
    """It goes on between two looks, never back, and no further than it can."""
    looks = [Operation("look", 2 * number, 2 * number + 1, each) for number, each in enumerate(seen)]
    if good:
        assert linearized(looks, COUNTER) == looks
    else:
        with pytest.raises(NotLinearizable):
            linearized(looks, COUNTER)


def test_the_complaint_names_what_cannot_be_explained() -> None:
    """With the state that it stood at, and the moments."""
    with pytest.raises(NotLinearizable) as complaint:
        linearized(operations((PUT1, 0, 1, "ok"), (GET, 2, 3, 0)), REGISTER)
    told = str(complaint.value)
    assert "(it stood at 1)" in told
    assert "  0-1: ('put', 1), ok" in told
    assert "! 2-3: ('get', 0), 0" in told


def explained(history: list[Operation[Register]]) -> bool:
    """The definition, word by word: some subset of the unanswered, in some order that respects the moments."""
    unknown = [each for each in history if each.answer is UNKNOWN]
    known = [each for each in history if each.answer is not UNKNOWN]
    for kept in product((True, False), repeat=len(unknown)):
        made = known + [each for each, keep in zip(unknown, kept, strict=True) if keep]
        if any(map(_explains, permutations(made))):
            return True
    return False


def _explains(order: tuple[Operation[Register], ...]) -> bool:
    state = 0
    for number, each in enumerate(order):
        if any(later.answered < each.invoked for later in order[number:]):
            return False
        ((answer, state),) = answers(state, each.call)
        if each.answer not in (answer, UNKNOWN):
            return False
    return True


@st.composite
def histories(draw: st.DrawFn) -> list[Operation[Register]]:
    """Up to five operations at moments of their own."""
    size = draw(st.integers(0, 5))
    moments = draw(st.permutations(range(2 * size)))
    found: list[Operation[Register]] = []
    for number in range(size):
        invoked, answered = sorted(moments[2 * number : 2 * number + 2])
        call = draw(st.sampled_from([PUT1, PUT2, GET]))
        told: list[object] = ["ok"] if call[0] == "put" else [0, 1, 2]
        found.append(Operation(call, invoked, answered, draw(st.sampled_from([*told, UNKNOWN]))))
    return found


@given(histories())
def test_it_says_what_the_definition_says(history: list[Operation[Register]]) -> None:
    """On small histories, where every order can be tried."""
    assert possible(history) == explained(history)


def test_a_history_is_noted_by_key() -> None:
    """In one order of moments; a key may be known only with the answer, and a call may be about several."""
    history = History[str]()
    made = history.begin("make")
    both = history.begin("look", "a", "b")
    history.file(made, "a")
    history.end(made, "ok")
    history.end(both)
    assert history.by_key == {"a": [both, made], "b": [both]}
    assert (made.invoked, both.invoked, made.answered, both.answered) == (0, 1, 2, 3)
    assert both.answer is UNKNOWN
