"""`perdure doctor` on a folder in which other things stand than files: it says so, waits for none, and reads none."""

import os
import resource
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from perdure.ambient.folder import DataFolder
from tests.system.care import findings, make_database, names, refused
from tests.system.command import ran
from tests.system.server import COMMAND

SMALL = ("perdure.lock", "owner.token", "server.json")
STORE = ("perdure.db", "perdure.db-wal", "perdure.db-shm")
SPARSE_BYTES = 5 * 1024**3
MEMORY_BYTES = 2 * 1024**3


def a_pipe(path: Path) -> None:
    """Whoever opens it waits for a writer."""
    os.mkfifo(path)


def a_dangling_link(path: Path) -> None:
    """It leads nowhere."""
    path.symlink_to("nowhere")


def a_loop(path: Path) -> None:
    """It leads to itself."""
    path.symlink_to(path.name)


def a_link(path: Path) -> None:
    """What it leads to is none of ours."""
    path.symlink_to("/etc/passwd")


def a_folder(path: Path) -> None:
    """For everybody."""
    path.mkdir(mode=0o755)


KINDS: dict[Callable[[Path], None], str] = {
    a_pipe: "a pipe, a socket or a device",
    a_dangling_link: "a symbolic link",
    a_loop: "a symbolic link",
    a_link: "a symbolic link",
    a_folder: "a folder",
}


@pytest.mark.parametrize("kind", KINDS)
def test_another_kind_of_thing_is_a_problem(tmp_path: Path, kind: Callable[[Path], None]) -> None:
    """It is called what it is; its mode is not what is wrong. Nothing is opened, made or removed."""
    for name in (*SMALL, *STORE):
        folder = tmp_path / f"in place of {name}"
        make_database(folder)
        (folder / name).unlink(missing_ok=True)
        kind(folder / name)
        before = names(folder)
        found = findings(folder)
        assert (found["files"][0], f"{name} is {KINDS[kind]}" in found["files"][1]) == ("problem", True), found
        assert "move away" in found["files"][2]
        assert not any("chmod" in remedy for _, _, remedy in found.values()), found
        if name in STORE:
            assert found["database"][0] == "problem"
            assert f"{name} is {KINDS[kind]}" in found["database"][1]
        if name == "owner.token":
            assert (found["token"][0], KINDS[kind] in found["token"][1]) == ("problem", True)
        assert names(folder) == before


@pytest.mark.parametrize("kind", KINDS)
def test_neither_backup_nor_compact_opens_another_kind_of_thing(tmp_path: Path, kind: Callable[[Path], None]) -> None:
    """Both say what it is."""
    (tmp_path / "data").mkdir(mode=0o700)
    kind(tmp_path / "data" / "perdure.db")
    for words in (["compact"], ["backup", str(tmp_path / "backup")]):
        assert f"perdure.db is {KINDS[kind]}" in refused(ran(*words, "--data", str(tmp_path / "data")))
    assert names(tmp_path / "data") == {"perdure.db"}
    assert names(tmp_path) == {"data"}


def test_files_that_should_be_small_are_not_read_whole(tmp_path: Path) -> None:
    """With the memory that is allowed it could not be."""
    folder = make_database(tmp_path / "data").parent
    for name in SMALL:
        (folder / name).touch(mode=0o600)
        os.truncate(folder / name, SPARSE_BYTES)
    words = [str(COMMAND), "doctor", "--data", str(folder)]
    ended = subprocess.run(
        words,
        capture_output=True,
        timeout=60,
        check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES)),
    )
    assert (ended.returncode, ended.stderr) == (1, b"")
    told = ended.stdout.decode()
    assert "the owner's token cannot be read (it is longer than 4,096 bytes)" in told
    assert "server.json cannot be read (it is longer than 4,096 bytes)" in told


def test_the_lock_of_a_start_is_read(tmp_path: Path) -> None:
    """And what is no number in it, or in the address, is nobody."""
    folder = make_database(tmp_path / "data").parent
    DataFolder(folder).close()
    assert {level for level, _, _ in findings(folder).values()} <= {"ok", "note"}
    for text in ('{"pid": 1e999}', "[" * 4000, "[]", "\udc80", "-1"):
        for name in ("perdure.lock", "server.json"):
            (folder / name).write_bytes(text.encode(errors="surrogateescape"))
            (folder / name).chmod(0o600)
        level, message, _ = findings(folder)["service"]
        assert (level, "server.json cannot be read" in message) == ("note", True), text
