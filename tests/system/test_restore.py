"""`perdure restore`: into an empty folder only, whole or not at all, and never from what is not a whole backup."""

import os
import shutil
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import apsw
import pytest

from perdure.ambient.folder import DataFolder
from perdure.storage.sqlite.connection import open_writer
from tests.system.care import (
    MIB,
    asked,
    bound,
    digests,
    make_database,
    names,
    refused,
    small_disk,
    stopped,
    told,
    written,
)
from tests.system.command import ran
from tests.system.server import Server

BALLAST_MIB = 32
CLIENT = """INSERT INTO clients (id, name, token_hash, token_prefix, scopes, created_at)
VALUES (1, 'someone', zeroblob(32), 'p', '', 1)"""
TASK = """INSERT INTO tasks (ident, client_id, kind, model, status, on_restart, background, stored, exact, next_seq,
    prompt_tokens, tokens_max, created_at, finished_at)
VALUES (:ident, 1, 'response', 'm', 'failed', 'fail', 1, 1, 1, 0, 1, 1, 1, :at)"""


def backup_in(folder: Path, ballast_mib: int) -> Path:
    """A backup of a database of no meaning."""
    made = folder / "backup"
    source = make_database(folder / "source", ballast_mib).parent
    told(ran("backup", str(made), "--data", str(source), "--json"))
    return made


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One that is made once."""
    return backup_in(tmp_path_factory.mktemp("small"), 1)


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One that takes a while to restore."""
    return backup_in(tmp_path_factory.mktemp("large"), BALLAST_MIB)


@pytest.fixture
def backup(tmp_path: Path, small: Path) -> Path:
    """One for a test alone, which may damage it."""
    return Path(shutil.copy(small, tmp_path / "backup"))


def test_a_folder_that_is_missing_or_empty_is_filled(tmp_path: Path, backup: Path) -> None:
    """With the backup, byte for byte, for its owner only; the backup stays as it was and nothing lies beside it."""
    (tmp_path / "empty").mkdir()
    DataFolder(tmp_path / "left").close()
    before = backup.read_bytes()
    for name in ("no/such/folder", "empty", "left"):
        folder = tmp_path / name
        facts = told(ran("restore", str(backup), "--data", str(folder), "--json"))
        assert (facts["path"], facts["size_bytes"]) == (str(folder / "perdure.db"), len(before))
        assert names(folder) == {"perdure.db", "perdure.lock"}
        assert (folder / "perdure.db").read_bytes() == before
        assert (folder / "perdure.db").stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "no/such/folder").stat().st_mode & 0o777 == 0o700
    assert backup.read_bytes() == before
    assert names(tmp_path) == {"backup", "no", "empty", "left"}


def test_it_says_what_the_next_start_does(tmp_path: Path, tiny_model: Path) -> None:
    """Unfinished work, and the owner's token, which is another one then."""
    with Server(tmp_path / "data", tiny_model).start() as server:
        server.create(max_output_tokens=1900)
        server.kill()
        old = server.token
        told(ran("backup", str(tmp_path / "backup"), "--data", str(server.data), "--json"))
    with Server(tmp_path / "new", tiny_model) as again:
        ended = ran("restore", str(tmp_path / "backup"), "--data", str(again.data))
        assert "1 unfinished response: each goes on, or ends, as its on_restart says." in ended.stderr.decode()
        assert f"serve --data {again.data}` makes a new owner's token, unless you copy" in ended.stderr.decode()
        again.start()
        assert again.token != old
        assert again.http.get("/v1/models", headers={"Authorization": f"Bearer {old}"}).status_code == 401
        assert len(again.get("/v1/tasks")["data"]) == 1


def test_it_says_what_is_older_than_it_may_become(tmp_path: Path, backup: Path) -> None:
    """By the present settings; what it names keeps them."""
    with closing(apsw.Connection(str(backup))) as connection:
        connection.execute(CLIENT)
        for number, days in enumerate((0, 29, 31, 400)):
            finished = int((time.time() - days * 86_400) * 1_000_000)
            connection.execute(TASK, {"ident": f"t{number}", "at": finished})
    line = "perdure: {} of these ended more than {} days ago and go at the next start; PERDURE_RETENTION_DAYS=forever"
    for days, aged in (("30", 2), ("300", 1), ("0.0001", 3), ("500", 0), ("forever", 0)):
        folder = tmp_path / f"data{days}"
        said = ran("restore", str(backup), "--data", str(folder), PERDURE_RETENTION_DAYS=days).stderr.decode()
        shown = f"{float(days):g}" if days != "forever" else days
        assert ("PERDURE_RETENTION_DAYS" in said) == (aged > 0), said
        assert not aged or line.format(aged, shown) in said


@pytest.mark.proves("D5")
@pytest.mark.parametrize("name", ["perdure.db", "perdure.db-wal", "perdure.db-shm", "owner.token", "photo.jpg"])
def test_a_folder_with_anything_in_it_is_refused(tmp_path: Path, backup: Path, name: str) -> None:
    """An old log above all: the restored file would be paired with it."""
    folder = tmp_path / "data"
    folder.mkdir()
    (folder / name).write_text("of old")
    line = refused(ran("restore", str(backup), "--data", str(folder)))
    assert f"is not empty ({name})" in line
    assert names(folder) - {"perdure.lock"} == {name}
    assert (folder / name).read_text() == "of old"


def test_a_folder_that_is_served_is_refused(tmp_path: Path, backup: Path, tiny_model: Path) -> None:
    """Its service goes on."""
    with Server(tmp_path / "data", tiny_model).start() as server:
        assert server.process is not None
        line = refused(ran("restore", str(backup), "--data", str(server.data)))
        assert f"in use by another Perdure (process {server.process.pid})" in line
        assert server.ended(server.create(max_output_tokens=3)["id"])["status"] == "incomplete"


def cut(path: Path) -> None:
    """The second half is missing."""
    os.truncate(path, path.stat().st_size // 2)


def overwrite(path: Path) -> None:
    """A page in the middle is noise: one of an index, which only the check of the whole file reads."""
    (root,) = asked(path, "SELECT rootpage FROM sqlite_schema WHERE name = 'tasks_unfinished'")[0]
    with path.open("r+b") as file:
        file.seek((root - 1) * 4096)
        file.write(os.urandom(4096))


def empty(path: Path) -> None:
    """Nothing is in it."""
    os.truncate(path, 0)


def foreign(path: Path) -> None:
    """Another program's."""
    path.unlink()
    with closing(apsw.Connection(str(path))) as connection:
        connection.execute("CREATE TABLE x (y)")


def newer(path: Path) -> None:
    """A schema of the future."""
    with closing(apsw.Connection(str(path))) as connection:
        connection.pragma("user_version", 99)


def dangle(path: Path) -> None:
    """A reference that points nowhere."""
    with closing(apsw.Connection(str(path))) as connection:
        connection.execute(
            "INSERT INTO task_attempts (task_id, at, attempt, status, note) VALUES (7, 1, 1, 'x', 'y')"
        )


def in_use(path: Path) -> None:
    """Not a backup but a database whose log holds the rest."""
    path.with_name(path.name + "-wal").write_bytes(b"something")


def of_another_build(path: Path) -> None:
    """Its first migration is not the one that is known here."""
    with closing(apsw.Connection(str(path))) as connection:
        connection.execute("UPDATE migrations SET sha256 = 'x' WHERE version = 1")


DAMAGE: dict[Callable[[Path], None], tuple[int, str]] = {
    cut: (6, "damaged"),
    overwrite: (6, "damaged"),
    dangle: (6, "refers to one of tasks that is not there"),
    empty: (1, "not a database of Perdure"),
    foreign: (1, "not a database of Perdure"),
    newer: (1, "newer Perdure (schema 99"),
    of_another_build: (1, "migration 1 "),
    in_use: (1, "is in use"),
    Path.unlink: (1, "There is no file"),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_what_is_not_a_whole_backup_is_refused(tmp_path: Path, backup: Path, damage: Callable[[Path], None]) -> None:
    """It is left as it is, and the folder has no database."""
    damage(backup)
    (tmp_path / "data").mkdir()
    before = digests(tmp_path)
    code, why = DAMAGE[damage]
    assert why in refused(ran("restore", str(backup), "--data", str(tmp_path / "data")), code)
    assert digests(tmp_path) == before
    assert names(tmp_path / "data") <= {"perdure.lock"}


@pytest.mark.parametrize("written_mib", [0, 1, 20, BALLAST_MIB])
def test_killed_at_any_moment_the_folder_is_empty_or_whole(tmp_path: Path, large: Path, written_mib: int) -> None:
    """Only the unfinished file is left, and the next one clears it away."""
    folder = tmp_path / "data"
    unfinished = folder / "perdure.db.restoring"
    words = ["restore", str(large), "--data", str(folder), "--json"]
    least = written_mib * MIB
    with stopped(words, lambda: written(unfinished) >= least, lambda: shutil.rmtree(folder)) as restore:
        restore.kill()
    assert names(folder) == {"perdure.lock", unfinished.name}
    told(ran(*words))
    assert names(folder) == {"perdure.lock", "perdure.db"}
    assert (folder / "perdure.db").read_bytes() == large.read_bytes()


def test_a_folder_without_room_is_told_beforehand(tmp_path: Path, large: Path) -> None:
    """With the numbers."""
    with small_disk(tmp_path / "disk", 4) as disk:
        line = refused(ran("restore", str(large), "--data", str(disk / "data")))
        assert f"{large.stat().st_size:,} are needed" in line
        assert names(disk / "data") == {"perdure.lock"}


def test_a_folder_above_that_cannot_be_forced_to_the_disk_is_one_warning(tmp_path: Path, backup: Path) -> None:
    """As under a folder of somebody else's: the database is there and is told as such."""
    above = tmp_path / "above"
    (above / "data").mkdir(mode=0o700, parents=True)
    above.chmod(0o300)
    ended = bound("restore", str(backup), "--data", str(above / "data"), "--json")
    above.chmod(0o700)
    assert (ended.returncode, names(above / "data")) == (0, {"perdure.db", "perdure.lock"}), ended
    assert told(ended)["path"] == str(above / "data" / "perdure.db")
    line = ended.stderr.decode().splitlines()[0]
    assert f"whether its name in {above} survives a power cut is not known" in line


def test_a_live_database_is_known_by_any_of_its_names(tmp_path: Path) -> None:
    """Its log lies beside the file itself, not beside a link to it."""
    path = make_database(tmp_path / "live")
    (tmp_path / "soft").symlink_to(path)
    (tmp_path / "far").symlink_to(tmp_path / "soft")
    with closing(open_writer(path)) as connection:
        connection.execute("CREATE TABLE accepted (work)")
        for name in ("soft", "far"):
            assert "is in use" in refused(ran("restore", str(tmp_path / name), "--data", str(tmp_path / "data")))
        (tmp_path / "hard").hardlink_to(path)
        line = refused(ran("restore", str(tmp_path / "hard"), "--data", str(tmp_path / "data")))
        assert "has another name" in line
        assert "backup`" in line
    assert names(tmp_path) == {"live", "soft", "far", "hard"}


def test_a_backup_behind_a_link_is_restored(tmp_path: Path, backup: Path) -> None:
    """No log lies beside it. A link that leads nowhere, or to itself, is no file."""
    (tmp_path / "link").symlink_to(backup)
    told(ran("restore", str(tmp_path / "link"), "--data", str(tmp_path / "data"), "--json"))
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    for name in ("loop", "no"):
        assert "There is no file" in refused(ran("restore", str(tmp_path / name), "--data", str(tmp_path / "new")))
