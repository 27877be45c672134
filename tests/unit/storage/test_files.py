"""Copies of a database as files: each way to give one its name never takes another file's."""

import errno
import hashlib
from collections.abc import Callable
from pathlib import Path

import pytest

from perdure.storage.sqlite import files


def by_rename(part: Path, target: Path) -> None:
    """The way of a system that can rename without replacing, as this one can."""
    assert files.renamed(part, target)


@pytest.mark.parametrize("give", [by_rename, files.linked, files.publish])
def test_a_name_is_given_once(give: Callable[[Path, Path], None], tmp_path: Path) -> None:
    """The unfinished name goes; a name that is taken stays with who has it, be it a link that leads nowhere."""
    part, target = tmp_path / "part", tmp_path / "target"
    part.write_text("first")
    give(part, target)
    assert (target.read_text(), part.exists()) == ("first", False)
    part.write_text("second")
    (tmp_path / "link").symlink_to("nowhere")
    for taken in (target, tmp_path / "link"):
        with pytest.raises(FileExistsError):
            give(part, taken)
    assert (target.read_text(), part.read_text()) == ("first", "second")
    assert (tmp_path / "link").is_symlink()


def test_a_rename_that_fails_says_so(tmp_path: Path) -> None:
    """What the file system refuses for another reason is no question of how."""
    (tmp_path / "part").write_text("")
    with pytest.raises(FileNotFoundError):
        files.publish(tmp_path / "part", tmp_path / "no" / "target")


def test_a_private_file_is_new_and_private(tmp_path: Path) -> None:
    """Whatever the mask says."""
    files.make_private(tmp_path / "new")
    assert (tmp_path / "new").stat().st_mode & 0o777 == 0o600
    with pytest.raises(FileExistsError):
        files.make_private(tmp_path / "new")


def test_a_copy_is_the_same_and_tells_how_far_it_is(tmp_path: Path) -> None:
    """Piece by piece, to the end."""
    content = bytes(range(256)) * 40_000
    (tmp_path / "old").write_bytes(content)
    files.make_private(tmp_path / "new")
    told: list[tuple[int, int]] = []
    files.copy(tmp_path / "old", tmp_path / "new", lambda done, whole: told.append((done, whole)))
    files.force(tmp_path / "new")
    assert (tmp_path / "new").read_bytes() == content
    assert told == [(files.PIECE_BYTES, len(content)), (2 * files.PIECE_BYTES, len(content)), (len(content),) * 2]
    assert files.digest(tmp_path / "new") == hashlib.sha256(content).hexdigest()


def test_a_folder_that_cannot_be_forced_is_told_apart_from_a_broken_disk(tmp_path: Path) -> None:
    """Some file systems refuse to force a folder, and some folders can be written to and not opened."""
    assert files.names_forced(tmp_path)
    assert not files.names_forced(Path("/proc"))
    with pytest.raises(FileNotFoundError):
        files.names_forced(tmp_path / "no")


def test_a_name_that_was_given_stays_when_the_disk_fails_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is there is never told as not done."""

    def broken(_folder: Path) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(files, "sync_folder", broken)
    (tmp_path / "part").write_text("whole")
    assert not files.publish(tmp_path / "part", tmp_path / "target")
    assert (tmp_path / "target").read_text() == "whole"
