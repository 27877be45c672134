"""Token ids as bytes."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.storage.sqlite.tokens import packed, unpacked


@given(st.lists(st.integers(0, 2**32 - 1)))
def test_ids_come_back(ids: list[int]) -> None:
    """Any that fit into four bytes."""
    assert unpacked(packed(tuple(ids))) == tuple(ids)


def test_the_lowest_byte_stands_first() -> None:
    """On every machine: a database can be carried to another."""
    assert packed((1, 258)) == bytes([1, 0, 0, 0, 2, 1, 0, 0])


@pytest.mark.parametrize("wrong", [-1, 2**32])
def test_what_is_no_token_id_is_refused(wrong: int) -> None:
    """Rather than cut."""
    with pytest.raises(struct.error):
        packed((wrong,))
