"""`perdure backup`: whole, checked, and of one moment, while the service works, was killed, or is being stopped."""

import os
import pty
import signal
import subprocess
import threading
from contextlib import closing
from pathlib import Path
from typing import Any

import apsw
import psutil
import pytest

from tests.soundness import unsound
from tests.system.care import (
    MIB,
    asked,
    begun,
    bound,
    copying,
    digests,
    make_database,
    names,
    orphan_log,
    part_of,
    refused,
    small_disk,
    told,
)
from tests.system.command import CALLED, on, ran
from tests.system.server import COMMAND, TERMINAL, Server, check_log, text_of, thaw, until

BALLAST_MIB = 32
LONG: dict[str, Any] = {"max_output_tokens": 600, "seed": 3}


def test_under_load_it_holds_all_that_was_accepted_before(tmp_path: Path, tiny_model: Path) -> None:
    """Callers create while it runs. Served from a new folder, finished texts are there byte for byte, and unfinished
    ones come to the end that they come to without it."""
    target = tmp_path / "backup"
    with Server(tmp_path / "data", tiny_model).start() as server, Server(tmp_path / "new", tiny_model) as again:
        before = [server.create(max_output_tokens=20, seed=number)["id"] for number in range(20)]
        ends = {each: server.frames(each) for each in before}
        running = [server.create(max_output_tokens=1200, seed=number)["id"] for number in range(5)]
        server.holds(running[0])  # so that they are unfinished in the backup
        made = backed_up_under_load(server, target)
        thaw(server.engine_child())
        assert made["unfinished"] >= len(running)
        kept = idents(target)
        assert {*before, *running} <= kept
        assert (made["responses"], made["size_bytes"]) == (len(kept), target.stat().st_size)
        assert target.stat().st_mode & 0o777 == 0o600
        assert names(tmp_path) >= {"backup", "data"}
        assert part_of(target) is None
        assert told(ran("restore", str(target), "--data", str(again.data), "--json"))["sha256"] == made["sha256"]
        assert unsound(again.data / "perdure.db") == []
        again.start()
        assert {each: again.frames(each) for each in before} == ends
        for each in running:
            here, there = again.ended(each), server.ended(each)
            assert (text_of(here), here["status"], here["usage"]) == (text_of(there), there["status"], there["usage"])
            check_log(again.frames(each))
        assert again.terminate() == 0
        assert server.terminate() == 0
        assert not names(server.data) & {"perdure.db-wal", "perdure.db-shm"}


def idents(path: Path) -> set[str]:
    """The responses of a database."""
    return {f"resp_{ident}" for (ident,) in asked(path, "SELECT ident FROM tasks")}


def backed_up_under_load(server: Server, target: Path) -> dict[str, Any]:
    """What the command tells, made while a caller creates."""
    enough = threading.Event()
    created: list[str] = []

    def create() -> None:
        with server.caller() as http:
            while not enough.is_set():
                body = {"model": server.model_name, "input": "Go.", "background": True, "max_output_tokens": 5}
                answer = http.post("/v1/responses", json=body)
                assert answer.status_code in (202, 429), answer.text
                created.append(answer.text)

    caller = threading.Thread(target=create)
    caller.start()
    try:
        until(lambda: len(created) > 5 or None, "callers to be at work")
        made = told(on(server, "backup", str(target), "--json"))
    finally:
        enough.set()
        caller.join()
    assert len(created) > 10
    return made


@pytest.mark.proves("V7", "D1")
def test_a_service_that_stops_meanwhile_leaves_no_log_behind(tmp_path: Path, tiny_model: Path) -> None:
    """It exits in order; the backup is the last to close then, goes on to its end, and takes the log away."""
    make_database(tmp_path / "data", BALLAST_MIB)
    target = tmp_path / "backup"
    with Server(tmp_path / "data", tiny_model).start() as server:
        found = server.create(max_output_tokens=3)["id"]
        server.ended(found)
        with copying(server.data, target, 8 * MIB) as backup:
            assert server.terminate() == 0
            assert "perdure.db-wal" in names(server.data)
        assert backup.returncode == 0
        assert idents(target) == {found}
        assert not names(server.data) & {"perdure.db-wal", "perdure.db-shm"}
        server.start()
        assert server.task(found)["status"] == "incomplete"


def test_without_a_service_it_holds_what_the_log_of_a_kill_holds(tmp_path: Path, tiny_model: Path) -> None:
    """What was accepted stands in the log only; it is in the backup, and the folder can be served as before."""
    target = tmp_path / "backup"
    with Server(tmp_path / "data", tiny_model).start() as server:
        found = server.create(**LONG)["id"]
        server.kill()
        assert (server.data / "perdure.db-wal").stat().st_size > 0
        assert told(on(server, "backup", str(target), "--json"))["unfinished"] == 1
        assert names(tmp_path) >= {"backup"}
        assert idents(target) == {found}
        server.start()
        assert server.ended(found)["status"] == "incomplete"
        assert server.terminate() == 0


@pytest.mark.parametrize("written_mib", [0, 12, BALLAST_MIB])
def test_killed_at_any_moment_it_leaves_no_file_or_a_whole_one(tmp_path: Path, written_mib: int) -> None:
    """What it leaves beside is named by the next one, and the database is as it was."""
    path = make_database(tmp_path / "data", BALLAST_MIB)
    before = digests(path.parent)
    target = tmp_path / "backup"
    with copying(path.parent, target, written_mib * MIB) as backup:
        backup.kill()
    left = part_of(target)
    assert left is not None
    assert not target.exists()
    ended = ran("backup", str(target), "--data", str(path.parent), "--json")
    assert f"{left} was left by a backup that was killed" in ended.stderr.decode()
    assert told(ended)["size_bytes"] == target.stat().st_size
    assert digests(path.parent) == before
    assert names(tmp_path) == {"data", "backup", left.name}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_in_order(tmp_path: Path, number: signal.Signals) -> None:
    """Nothing is left of it."""
    path = make_database(tmp_path / "data", BALLAST_MIB)
    target = tmp_path / "backup"
    with copying(path.parent, target, 8 * MIB) as backup:
        backup.send_signal(number)
    assert backup.returncode == 128 + number
    assert names(tmp_path) == {"data"}


def test_a_file_that_comes_meanwhile_is_not_written_over(tmp_path: Path) -> None:
    """The backup is given up at its last step."""
    path = make_database(tmp_path / "data", BALLAST_MIB)
    target = tmp_path / "backup"
    with copying(path.parent, target, 8 * MIB) as backup:
        target.write_text("somebody else's")
    assert backup.returncode == 1
    assert target.read_text() == "somebody else's"
    assert names(tmp_path) == {"data", "backup"}


def test_a_name_that_is_taken_is_refused(tmp_path: Path) -> None:
    """A file, a folder, a link that leads nowhere; and a folder that is not there."""
    path = make_database(tmp_path / "data")
    (tmp_path / "file").write_text("mine")
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    reasons = {"file": "exists", "data": "is a folder", "link": "exists", "no/file": "There is no folder"}
    for name, why in reasons.items():
        assert why in refused(ran("backup", str(tmp_path / name), "--data", str(path.parent)))
    assert (tmp_path / "file").read_text() == "mine"
    assert names(tmp_path) == {"data", "file", "link"}


def test_a_dash_is_no_file(tmp_path: Path) -> None:
    """A copy that cannot be read again cannot be checked."""
    path = make_database(tmp_path / "data")
    for command in ("backup", "restore"):
        assert "as a file" in refused(ran(command, "-", "--data", str(path.parent)))
    assert names(path.parent) == {"perdure.db"}


def test_one_in_the_data_folder_is_made_with_a_word(tmp_path: Path) -> None:
    """It is lost together with what it is a copy of. Its path is told without a way back in it."""
    path = make_database(tmp_path / "data")
    ended = ran("backup", f"{tmp_path}/data/../data/copy", "--data", f"{tmp_path}/data/../data", "--json")
    assert told(ended)["path"] == str(path.parent / "copy")
    (line,) = ended.stderr.decode().splitlines()
    assert line.startswith(f"perdure: {path.parent / 'copy'} lies in the data folder and is lost together with it")


def test_a_remedy_names_the_folder(tmp_path: Path) -> None:
    """And this program as it was called."""
    path = make_database(tmp_path / "data", 1)
    path.write_bytes(b"x" * 10_000)
    line = refused(ran("backup", str(tmp_path / "backup"), "--data", str(path.parent)), code=6)
    assert f"`{CALLED} doctor --data {path.parent}` tells more" in line


def test_what_is_no_database_is_refused(tmp_path: Path) -> None:
    """No folder, no database, one of another program, a damaged one."""
    target = str(tmp_path / "backup")
    assert "There is no database" in refused(ran("backup", target, "--data", str(tmp_path / "no")))
    path = make_database(tmp_path / "data", 1)
    whole = path.read_bytes()
    for damage in (whole[: len(whole) // 2], whole[:4096] + os.urandom(4096) + whole[8192:], b"x" * 10_000):
        path.write_bytes(damage)
        assert str(path) in refused(ran("backup", target, "--data", str(path.parent)), code=6)
        assert path.read_bytes() == damage
    path.unlink()
    with closing(apsw.Connection(str(path))) as other:
        other.execute("CREATE TABLE x (y)")
    assert "not a database of Perdure" in refused(ran("backup", target, "--data", str(path.parent)))
    assert names(tmp_path) == {"data"}


def test_a_full_disk_is_told_beforehand_with_numbers(tmp_path: Path) -> None:
    """Nothing is written there."""
    path = make_database(tmp_path / "data", 8)
    with small_disk(tmp_path / "stick", 4) as stick:
        line = refused(ran("backup", str(stick / "backup"), "--data", str(path.parent)))
        assert f"{path.stat().st_size:,} are needed" in line
        assert f"{4 * MIB:,} bytes" in line
        assert names(stick) == set()


def test_a_disk_that_fills_up_meanwhile_does_not_trouble_the_service(tmp_path: Path, tiny_model: Path) -> None:
    """The backup is given up, its room is free again, and the service has noticed nothing."""
    make_database(tmp_path / "data", BALLAST_MIB)
    with Server(tmp_path / "data", tiny_model).start() as server, small_disk(tmp_path / "stick", 44) as stick:
        with copying(server.data, stick / "backup", 8 * MIB) as backup:
            (stick / "filler").write_bytes(bytes(30 * MIB))
            psutil.Process(backup.pid).resume()
            assert backup.stderr is not None
            line = backup.stderr.read().decode()
        assert backup.returncode == 1
        assert f"The disk of {stick} is full" in line
        assert names(stick) == {"filler"}
        assert server.ended(server.create(max_output_tokens=3)["id"])["status"] in TERMINAL
        assert server.terminate() == 0
        assert "storage" not in server.errors.read_text()


def test_a_terminal_shows_how_far_it_is(tmp_path: Path) -> None:
    """In one line, which is gone at the end; the result goes to standard output alone."""
    path = make_database(tmp_path / "data", 8)
    read, write = pty.openpty()
    words = [str(COMMAND), "backup", str(tmp_path / "backup"), "--data", str(path.parent)]
    ended = subprocess.run(words, stdout=subprocess.PIPE, stderr=write, check=True, timeout=60)
    os.close(write)
    shown = os.read(read, 65536).decode()
    os.close(read)
    assert "\rbackup: 100 % of 8." in shown
    assert shown.split("\r")[-2].strip() == ""
    assert "\n" not in shown
    assert b"%" not in ended.stdout


def test_two_at_once_make_one_file(tmp_path: Path) -> None:
    """One of them has the name, whole; the other is refused."""
    path = make_database(tmp_path / "data", 16)
    target = tmp_path / "backup"
    both = [begun(["backup", str(target), "--data", str(path.parent)]) for _ in range(2)]
    for each in both:
        each.communicate(timeout=60)
    assert sorted(each.returncode for each in both) == [0, 1]
    assert asked(target, "SELECT count(*) FROM ballast") == [(16,)]
    assert names(tmp_path) == {"data", "backup"}


def test_a_folder_that_cannot_be_forced_to_the_disk_is_one_warning(tmp_path: Path) -> None:
    """The backup is there and is told as such; that its name may not survive a power cut is told beside it."""
    path = make_database(tmp_path / "data", 1)
    (tmp_path / "drop").mkdir(mode=0o300)
    ended = bound("backup", str(tmp_path / "drop" / "copy"), "--data", str(path.parent), "--json")
    (tmp_path / "drop").chmod(0o700)
    assert (ended.returncode, names(tmp_path / "drop")) == (0, {"copy"}), ended
    assert told(ended)["path"] == str(tmp_path / "drop" / "copy")
    (line,) = ended.stderr.decode().splitlines()
    assert f"whether its name in {tmp_path / 'drop'} survives a power cut is not known" in line


def test_a_folder_where_nothing_can_be_written_is_told(tmp_path: Path) -> None:
    """With the reason and the file."""
    path = make_database(tmp_path / "data", 1)
    (tmp_path / "shut").mkdir(mode=0o500)
    line = refused(bound("backup", str(tmp_path / "shut" / "copy"), "--data", str(path.parent)))
    assert "Permission denied" in line
    assert str(tmp_path / "shut" / "copy") in line


@pytest.mark.parametrize("database", [None, b""])
def test_a_log_without_its_database_is_left_as_it_is(tmp_path: Path, database: bytes | None) -> None:
    """SQLite would remove it as soon as it opens the database."""
    before = orphan_log(tmp_path / "data", database)
    line = refused(ran("backup", str(tmp_path / "backup"), "--data", str(tmp_path / "data")), code=6)
    assert "perdure.db-wal" in line
    assert digests(tmp_path / "data") == before
    assert names(tmp_path) == {"data"}


@pytest.mark.parametrize("ending", ["-journal", "-wal", "-shm", ".restoring", ".2026"])
def test_a_name_of_the_database_itself_is_refused(tmp_path: Path, ending: str) -> None:
    """In the data folder, by whatever way it is named: SQLite or a restore would destroy it. Elsewhere it is free."""
    path = make_database(tmp_path / "data")
    (tmp_path / "way").symlink_to(path.parent)
    for folder in (path.parent, tmp_path / "way"):
        line = refused(ran("backup", f"{folder}/perdure.db{ending}", "--data", str(path.parent)))
        assert "name another file" in line
    assert names(path.parent) == {"perdure.db"}
    told(ran("backup", f"{tmp_path}/perdure.db{ending}", "--data", str(path.parent), "--json"))
