"""`plan`: how much key/value memory a model may take."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.runtime.llamacpp.plan import DoesNotFit, Plan, kv_bytes, make_plan

TOKEN = 23_040  # bytes, of the bundled model


def plan(slots: int = 4, window: int = 4096, memory: int = 1 << 30, context_train: int = 8192) -> Plan:
    return make_plan(
        bytes_per_token=TOKEN,
        context_train=context_train,
        slots=slots,
        window=window,
        memory_max_bytes=memory,
    )


def test_what_was_asked_for_is_given_where_it_fits() -> None:
    """Four slots of 4,096 tokens of the bundled model take 377 MB."""
    assert plan() == Plan(4, 4096, 377_487_360)


def test_the_window_is_never_wider_than_the_model_was_trained_for() -> None:
    """A wider one would give nonsense, not an error."""
    assert plan(window=100_000, memory=1 << 40).window == 8192
    assert plan(context_train=600).window == 600


def test_the_window_narrows_before_slots_go() -> None:
    """Down to 1,024 tokens, then there are fewer slots."""
    assert plan(memory=TOKEN * 4 * 2048).slots == 4
    assert plan(memory=TOKEN * 4 * 2048).window == 2048
    assert plan(memory=TOKEN * 3 * 1024)[:2] == (3, 1024)


def test_one_slot_that_does_not_fit_is_refused_with_both_numbers() -> None:
    """Rather than a window in which nothing could be said."""
    with pytest.raises(DoesNotFit, match=r"23,592,960 bytes .* 20,000,000"):
        plan(memory=20_000_000)


@given(
    slots=st.integers(1, 64),
    window=st.integers(16, 200_000),
    memory=st.integers(0, 1 << 36),
    context_train=st.integers(1, 1_000_000),
)
def test_no_plan_exceeds_the_memory(slots: int, window: int, memory: int, context_train: int) -> None:
    """Nor what was asked for, counted in whole steps of llama.cpp's."""
    try:
        made = plan(slots, window, memory, context_train)
    except DoesNotFit:
        return
    assert made.kv_bytes == kv_bytes(TOKEN, made.slots, made.window) <= memory
    assert 1 <= made.slots <= min(slots, 32)
    assert 1 <= made.window <= min(window, context_train)
