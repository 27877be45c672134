"""What names and sizes alone show of a loss, and what they do not."""

import json
import logging
import os
from collections.abc import Iterable
from pathlib import Path

import pytest

from perdure.ambient.folder_findings import SMALL_BYTES, lost, text_of, warn_of_loss

NAME = "perdure.db"
WHOLE = b"SQLite format 3"


def make(folder: Path, names: Iterable[str], database: bytes | None = WHOLE) -> None:
    """A folder with these files, and a database that holds so much."""
    for name in names:
        (folder / name).write_text(json.dumps({"pid": os.getpid()}) if name == "server.json" else "")
    (folder / "perdure.lock").write_text(f"{os.getpid()}\n")
    if database is not None:
        (folder / NAME).write_bytes(database)


@pytest.mark.parametrize("served", [False, True])
@pytest.mark.parametrize("sign", ["owner.token", "server.json", f"{NAME}-wal"])
@pytest.mark.parametrize("database", [None, b""])
def test_whatever_came_after_a_database_shows_that_there_was_one(
    tmp_path: Path, database: bytes | None, sign: str, served: bool
) -> None:
    """Gone or empty, in use or not."""
    make(tmp_path, [sign], database)
    found = lost(tmp_path, NAME, served=served)
    assert found is not None
    assert found.check == "database"
    assert ("in use" in found.message) == served


def test_a_first_start_is_no_loss(tmp_path: Path) -> None:
    """Nothing is there, then an empty file, for as long as somebody holds the folder."""
    make(tmp_path, [], None)
    assert lost(tmp_path, NAME) is None
    assert lost(tmp_path, NAME, served=True) is None
    (tmp_path / NAME).touch()
    assert lost(tmp_path, NAME, served=True) is None
    assert lost(tmp_path, NAME) is not None


@pytest.mark.parametrize(
    ("names", "gone"),
    [
        ([f"{NAME}-shm"], True),
        ([f"{NAME}-shm", f"{NAME}-wal"], False),
        ([f"{NAME}-wal"], False),
        (["server.json"], False),
        ([], False),
    ],
)
def test_of_a_stopped_service_an_index_alone_means_a_lost_log(tmp_path: Path, names: list[str], gone: bool) -> None:
    """Both may be gone by right: a backup took the log up."""
    make(tmp_path, names)
    found = lost(tmp_path, NAME)
    assert (found is not None and found.check == "log") == gone


@pytest.mark.parametrize(
    ("names", "gone"),
    [
        (["server.json"], True),
        (["server.json", f"{NAME}-shm"], True),
        (["server.json", f"{NAME}-wal"], False),
        ([f"{NAME}-shm"], False),
        ([], False),
    ],
)
def test_a_service_that_listens_has_a_log(tmp_path: Path, names: list[str], gone: bool) -> None:
    """One that starts or stops tells no address, and need not have one."""
    make(tmp_path, names)
    found = lost(tmp_path, NAME, served=True)
    assert (found is not None and found.check == "log") == gone


def test_an_address_that_a_kill_left_is_not_that_of_one_who_starts(tmp_path: Path) -> None:
    """The one who holds the folder is another."""
    make(tmp_path, ["server.json"])
    (tmp_path / "perdure.lock").write_text(f"{os.getpid() + 1}\n")
    assert lost(tmp_path, NAME, served=True) is None


def test_a_loss_is_one_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A whole folder is none."""
    caplog.set_level(logging.WARNING)
    make(tmp_path, ["owner.token"])
    warn_of_loss(tmp_path, NAME)
    assert caplog.records == []
    (tmp_path / NAME).unlink()
    warn_of_loss(tmp_path, NAME)
    (line,) = [each.getMessage() for each in caplog.records]
    assert "this start goes on without it" in line
    assert "perdure restore FILE" in line


@pytest.mark.parametrize("database", [None, b""])
@pytest.mark.parametrize(("log", "next_start"), [("", "begins from nothing"), ("work", "is refused until then")])
def test_a_start_that_is_refused_is_not_said_to_go_on(
    tmp_path: Path, database: bytes | None, log: str, next_start: str, caplog: pytest.LogCaptureFixture
) -> None:
    """It is where the log holds work."""
    make(tmp_path, [], database)
    (tmp_path / f"{NAME}-wal").write_text(log)
    found = lost(tmp_path, NAME)
    assert found is not None
    assert found.remedy is not None
    assert next_start in found.remedy
    warn_of_loss(tmp_path, NAME)
    assert ("this start goes on without it" in caplog.text) == (not log)


def test_only_a_small_file_is_read(tmp_path: Path) -> None:
    """None is waited for, none is followed, and none is read whole that could be of any size."""
    path = tmp_path / "owner.token"
    path.write_text("x" * SMALL_BYTES)
    assert text_of(path) == "x" * SMALL_BYTES
    path.write_text("x" * (SMALL_BYTES + 1))
    (tmp_path / "link").symlink_to(path)
    os.mkfifo(tmp_path / "pipe")
    for name, why in {"owner.token": "longer", "link": "a symbolic link", "pipe": "a pipe", ".": "a folder"}.items():
        with pytest.raises(ValueError, match=why):
            text_of(tmp_path / name)
