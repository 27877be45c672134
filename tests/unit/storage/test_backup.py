"""A backup and a restored database are on the disk before they have their name."""

import os
from pathlib import Path

import apsw
import pytest

from perdure.storage.sqlite import files
from perdure.storage.sqlite.backup import back_up, restore


def nobody(_done: int, _whole: int) -> None:
    """Does not want to know how far it is."""


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is forced to the disk and what is named, in order."""
    steps: list[str] = []
    fsync, renamed = os.fsync, files.renamed

    def watched_fsync(descriptor: int) -> None:
        fsync(descriptor)
        steps.append(f"force {Path(f'/proc/self/fd/{descriptor}').readlink().name}")

    def watched_renamed(part: Path, target: Path) -> bool:
        steps.append(f"{part.name} becomes {target.name}")
        return renamed(part, target)

    monkeypatch.setattr(os, "fsync", watched_fsync)
    monkeypatch.setattr(files, "renamed", watched_renamed)
    return steps


def test_a_file_is_forced_then_named_then_its_folder_is_forced(
    database: apsw.Connection, tmp_path: Path, seen: list[str]
) -> None:
    """For a backup and for what is restored; there the folder above too, since the folder may be new."""
    (tmp_path / "stick").mkdir()
    (tmp_path / "data").mkdir()
    seen.clear()
    made = back_up(Path(database.filename), tmp_path / "stick" / "copy", nobody)
    part = f"copy.{os.getpid()}.part"
    assert seen == [f"force {part}", f"{part} becomes copy", "force stick"]
    seen.clear()
    restore(made.path, tmp_path / "data" / "perdure.db", nobody)
    new = "perdure.db.restoring"
    assert seen == [f"force {new}", f"{new} becomes perdure.db", "force data", f"force {tmp_path.name}"]
