"""The data folder is held by one at a time."""

import os
from pathlib import Path

import pytest

from perdure.ambient.folder import DataFolder
from perdure.domain.errors import RefusedToStart


@pytest.mark.proves("C-16")
def test_a_folder_that_is_held_is_refused_until_it_is_let_go(tmp_path: Path) -> None:
    """The refusal names the process that holds it."""
    with DataFolder(tmp_path):
        with pytest.raises(RefusedToStart) as refused:
            DataFolder(tmp_path)
        assert f"(process {os.getpid()})" in refused.value.message
    DataFolder(tmp_path).close()
