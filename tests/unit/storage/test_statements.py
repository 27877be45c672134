"""The loader of named SQL."""

import pytest

from perdure.storage.sqlite.statements import blocks, load


def test_blocks_are_found_by_name() -> None:
    """With their comments, without what stands before the first one."""
    text = "-- For people.\n\n-- name: one\n-- why\nSELECT 1;\n\n-- name: two_b\nSELECT 2;\n"
    assert blocks(text) == {"one": "-- why\nSELECT 1;", "two_b": "SELECT 2;"}


def test_a_name_used_twice_is_refused() -> None:
    """Otherwise one of the two would never run."""
    with pytest.raises(ValueError, match="two blocks are named one"):
        blocks("-- name: one\nSELECT 1;\n-- name: one\nSELECT 2;\n")


def test_a_block_without_a_statement_is_refused() -> None:
    """A comment alone does nothing."""
    with pytest.raises(ValueError, match="the block one is empty"):
        blocks("-- name: one\n-- to be written\n-- name: two\nSELECT 2;\n")


def test_the_shipped_files_load() -> None:
    """They are part of the package."""
    assert "insert_task" in load("tasks")
