"""The data folder is held by one at a time."""

import os
from pathlib import Path

import pytest

from perdure.ambient import folder
from perdure.ambient.folder import LOCK_NAME, DataFolder, write_private
from perdure.domain.errors import RefusedToStart


@pytest.mark.proves("C-16")
def test_a_folder_that_is_held_is_refused_until_it_is_let_go(tmp_path: Path) -> None:
    """The refusal names the process that holds it."""
    with DataFolder(tmp_path):
        with pytest.raises(RefusedToStart) as refused:
            DataFolder(tmp_path)
        assert f"(process {os.getpid()})" in refused.value.message
    DataFolder(tmp_path).close()


def test_a_link_in_place_of_the_lock_is_refused(tmp_path: Path) -> None:
    """Whoever can write to the folder could have another file of the user's emptied."""
    (tmp_path / "mine").write_text("precious")
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / LOCK_NAME).symlink_to(tmp_path / "mine")
    with pytest.raises(RefusedToStart, match=LOCK_NAME):
        DataFolder(tmp_path / "data")
    assert (tmp_path / "mine").read_text() == "precious"


def test_a_system_that_cannot_refuse_links_is_served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The folder can be held there as well."""
    monkeypatch.delattr(os, "O_NOFOLLOW")
    DataFolder(tmp_path).close()


def test_a_private_file_is_never_written_through_what_lies_there(tmp_path: Path) -> None:
    """A link, a second name of another file, a file that somebody holds open: each is taken away, not followed."""
    token, fresh, mine = tmp_path / "owner.token", tmp_path / "owner.token.new", tmp_path / "mine"
    mine.write_text("precious")
    for leave in (fresh.symlink_to, fresh.hardlink_to):
        leave(mine)
        write_private(token, "secret")
        assert (token.read_text(), token.is_symlink(), mine.read_text()) == ("secret", False, "precious")
    fresh.write_text("left by a kill")
    fresh.chmod(0o666)
    with fresh.open() as held:
        write_private(token, "secret")
        assert held.read() == "left by a kill"
    assert token.stat().st_mode & 0o777 == 0o600
    assert not fresh.exists()


@pytest.mark.parametrize(("mode", "told"), [(0o700, 0), *((each, 1) for each in (0o740, 0o720, 0o704, 0o702, 0o711))])
def test_a_folder_that_is_open_to_others_is_one_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, mode: int, told: int
) -> None:
    """It names the remedy."""
    data = tmp_path / "data"
    data.mkdir()
    data.chmod(mode)
    folder.warn_of_others(data)
    assert [f"chmod 700 {data}" in each.getMessage() for each in caplog.records] == [True] * told
