"""How much key/value memory a model may take, decided before any of it is asked for.

llama.cpp allocates the memory of every slot at once, when the context is made. A request that is far too large is not
always refused by the operating system: it may thrash the machine instead. So the sum is done here first.
"""

from typing import NamedTuple

ROWS_MAX = 32  # of one decode call; `context` says why
KV_ELEMENT_BYTES = 2  # f16
WINDOW_STEP_TOKENS = 256  # llama.cpp rounds a slot up to this
WINDOW_SMALL_TOKENS = 1024  # below this, fewer slots are better than a narrower window


class DoesNotFit(Exception):
    """Not even one slot fits into the memory allowed; says both numbers."""


class Plan(NamedTuple):
    """How many slots, each of how many tokens, and the memory that they take."""

    slots: int
    window: int
    kv_bytes: int


def kv_bytes(bytes_per_token: int, slots: int, window: int) -> int:
    """The key/value memory of a context in bytes."""
    cells = -(-window // WINDOW_STEP_TOKENS) * WINDOW_STEP_TOKENS
    return bytes_per_token * slots * cells


def make_plan(*, bytes_per_token: int, context_train: int, slots: int, window: int, memory_max_bytes: int) -> Plan:
    """The plan nearest to `slots` of `window` tokens that keeps within `memory_max_bytes`.

    First the window narrows, down to `WINDOW_SMALL_TOKENS`, then slots go. Raises `DoesNotFit`.
    """
    wanted = min(window, context_train)
    least = min(wanted, WINDOW_SMALL_TOKENS)
    for count in range(min(slots, ROWS_MAX), 0, -1):
        room = memory_max_bytes // (bytes_per_token * count) // WINDOW_STEP_TOKENS * WINDOW_STEP_TOKENS
        if kv_bytes(bytes_per_token, 1, room) >= kv_bytes(bytes_per_token, 1, least):
            fitting = min(wanted, room)
            return Plan(count, fitting, kv_bytes(bytes_per_token, count, fitting))
    need = kv_bytes(bytes_per_token, 1, least)
    raise DoesNotFit(
        f"one slot of {least} tokens needs {need:,} bytes of key/value memory and {memory_max_bytes:,} are allowed"
    )
