"""A backup and a restored database are on the disk before they have their name."""

import os
import subprocess
from pathlib import Path

import apsw
import pytest

from perdure.storage.sqlite import files
from perdure.storage.sqlite.backup import back_up, left_over, restore


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
    """For a backup and for what is restored; there the folder above before, since the folder may be new."""
    (tmp_path / "stick").mkdir()
    (tmp_path / "data").mkdir()
    seen.clear()
    made = back_up(Path(database.filename), tmp_path / "stick" / "copy", nobody)
    part = seen[0].removeprefix("force ")
    assert part.startswith(f"copy.{os.getpid()}.")
    assert seen == [f"force {part}", f"{part} becomes copy", "force stick"]
    seen.clear()
    restore(made.path, tmp_path / "data" / "perdure.db", nobody)
    new = "perdure.db.restoring"
    assert seen == [f"force {new}", f"force {tmp_path.name}", f"{new} becomes perdure.db", "force data"]


def ended_process() -> int:
    """The number of a process that has ended."""
    ended = subprocess.Popen(["true"])
    ended.wait()
    return ended.pid


def test_what_a_killed_backup_left_does_not_hinder_the_next_of_its_number(
    database: apsw.Connection, tmp_path: Path
) -> None:
    """As in a container, where the number is always the same. It is named and not touched: a backup of another
    container may be writing it."""
    seen: set[Path] = set()

    def look_on(_done: int, _whole: int) -> None:
        seen.update(tmp_path.glob("first.*"))

    back_up(Path(database.filename), tmp_path / "first", look_on)
    (part,) = seen
    here = tmp_path / part.name.replace("first", "copy")
    gone = tmp_path / here.name.replace(str(os.getpid()), str(ended_process()))
    lives = tmp_path / here.name.replace(str(os.getpid()), str(os.getppid()))
    for each in (here, gone, lives):
        each.write_text("unfinished")
    assert left_over(tmp_path / "copy") == sorted([here, gone])
    assert back_up(Path(database.filename), tmp_path / "copy", nobody).path.is_file()
    assert {each.read_text() for each in (here, gone, lives)} == {"unfinished"}
