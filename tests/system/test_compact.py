"""`perdure compact`: gives free pages back, holds all that it held, and is refused where it could do harm."""

import shutil
import subprocess
from contextlib import AbstractContextManager, closing
from pathlib import Path

import apsw
import psutil
import pytest

from perdure.storage.sqlite.connection import open_beside
from tests.system.care import (
    MIB,
    asked,
    digests,
    findings,
    make_database,
    names,
    orphan_log,
    refused,
    small_disk,
    stopped,
    told,
    written,
)
from tests.system.command import on, ran
from tests.system.server import Server

KEPT_MIB = 24


def sparse(folder: Path, kept_mib: int = KEPT_MIB) -> Path:
    """A database of which three quarters are free pages."""
    path = make_database(folder, 4 * kept_mib)
    connection = open_beside(path, ())
    connection.execute("DELETE FROM ballast WHERE number % 4")
    connection.close()
    return path


def moved(path: Path, disk: Path) -> Path:
    """The database on another disk; returns its path there."""
    shutil.move(path.parent, disk / "data")
    return disk / "data" / path.name


def kept(path: Path) -> list[tuple[int, int]]:
    """What has to be there afterwards."""
    return asked(path, "SELECT number, length(filling) FROM ballast ORDER BY number")


@pytest.mark.proves("E-15")
def test_free_pages_are_given_back(tmp_path: Path, tiny_model: Path) -> None:
    """The doctor shows them and names the command; afterwards the file is small, sound, holds the same and serves."""
    with Server(tmp_path / "data", tiny_model).start() as server:
        found = server.ended(server.create(max_output_tokens=9)["id"])
        frames = server.frames(found["id"])
        assert server.terminate() == 0
        path = sparse(server.data)
        before = kept(path)
        level, message, remedy = findings(server.data)["space"]
        assert (level, "perdure compact" in remedy) == ("note", True)
        assert f"{3 * KEPT_MIB}," in message.replace(f"{3 * KEPT_MIB * MIB // 1_000_000}", f"{3 * KEPT_MIB}")
        size = path.stat().st_size
        made = told(on(server, "compact", "--json"))
        assert made == {"object": "compaction", "before_bytes": size, "after_bytes": path.stat().st_size}
        assert path.stat().st_size < size / 3
        assert kept(path) == before
        assert {level for level, _, _ in findings(server.data).values()} == {"ok"}
        assert names(server.data) == {"perdure.db", "perdure.lock", "owner.token"}
        server.start()
        assert server.frames(found["id"]) == frames


def test_a_served_folder_is_refused(tmp_path: Path, tiny_model: Path) -> None:
    """The service goes on."""
    with Server(tmp_path / "data", tiny_model).start() as server:
        line = refused(on(server, "compact"))
        assert "in use by another Perdure" in line
        assert line.endswith("Stop that one first.")
        assert server.ended(server.create(max_output_tokens=3)["id"])["status"] == "incomplete"


@pytest.mark.proves("E-16")
def test_without_room_it_is_refused_with_the_numbers(tmp_path: Path, tiny_model: Path) -> None:
    """Nothing is changed, and the service starts all the same. With the room that was named it is made."""
    with small_disk(tmp_path / "disk", 160) as disk:
        path = moved(sparse(tmp_path / "data"), disk)
        filler = disk / "filler"
        filler.write_bytes(bytes(50 * MIB))
        before = path.read_bytes()
        line = refused(ran("compact", "--data", str(path.parent)))
        needed, free = (int(word.replace(",", "")) for word in line.split() if word[0].isdigit())
        assert needed > 2 * KEPT_MIB * MIB > free > 0
        assert path.read_bytes() == before
        with Server(path.parent, tiny_model).start() as server:
            assert server.terminate() == 0
        filler.write_bytes(bytes(filler.stat().st_size - (needed - free) - MIB))
        assert told(ran("compact", "--data", str(path.parent), "--json"))["after_bytes"] < 1.1 * KEPT_MIB * MIB


def test_what_it_writes_meanwhile_lies_beside_the_database(tmp_path: Path) -> None:
    """Where there is room, as was checked, and where nobody else looks: not where the system keeps such files."""
    path = sparse(tmp_path / "data")
    with small_disk(tmp_path / "small", 1) as small:
        made = ran("compact", "--data", str(path.parent), "--json", TMPDIR=str(small), SQLITE_TMPDIR=str(small))
        assert told(made)["after_bytes"] < 1.1 * KEPT_MIB * MIB


def test_a_disk_that_fills_up_meanwhile_does_no_harm(tmp_path: Path) -> None:
    """The database is as it was."""
    with small_disk(tmp_path / "disk", 180) as disk:
        path = moved(sparse(tmp_path / "data"), disk)
        before = kept(path)
        with stopped_between(path, 1, KEPT_MIB // 2) as compact:
            room = psutil.disk_usage(str(disk)).free
            (disk / "filler").write_bytes(bytes(room - 4 * MIB))
            psutil.Process(compact.pid).resume()
            assert compact.stderr is not None
            said = compact.stderr.read().decode()
        assert compact.returncode == 1
        assert f"The disk of {path.parent} filled up; the database is as it was." in said
        (disk / "filler").unlink()
        assert kept(path) == before


def test_beside_a_reader_it_tells_what_comes_of_it(tmp_path: Path) -> None:
    """The pages are free already in the log; the file shrinks when the reader leaves."""
    path = sparse(tmp_path / "data")
    size = path.stat().st_size
    with closing(open_beside(path)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM tasks").fetchall()
        ended = ran("compact", "--data", str(path.parent), "--json")
        reader.execute("COMMIT")
    made = told(ended)
    (line,) = ended.stderr.decode().splitlines()
    assert "the file shrinks when it ends" in line
    assert made == {"object": "compaction", "before_bytes": size, "after_bytes": path.stat().st_size}
    assert path.stat().st_size < size / 3
    assert names(path.parent) == {"perdure.db", "perdure.lock"}


def stopped_between(path: Path, least_mib: int, most_mib: int) -> AbstractContextManager[subprocess.Popen[bytes]]:
    """A command that stands still while it writes its result into the log."""
    log = path.with_name("perdure.db-wal")

    def there() -> bool:
        return least_mib * MIB <= written(log) <= most_mib * MIB

    def again() -> None:
        path.unlink()
        shutil.move(sparse(path.parent.parent / "again"), path)

    return stopped(["compact", "--data", str(path.parent)], there, again)


@pytest.mark.parametrize("log_mib", [4, KEPT_MIB - 1])
def test_killed_at_any_moment_the_database_is_whole(tmp_path: Path, log_mib: int) -> None:
    """It holds what it held, and can be compacted."""
    path = sparse(tmp_path / "data")
    before = kept(path)
    with stopped_between(path, log_mib, 2 * KEPT_MIB) as compact:
        compact.kill()
    found = findings(path.parent)
    assert found["integrity"][0] == "ok"
    told(ran("compact", "--data", str(path.parent), "--json"))
    assert kept(path) == before
    assert names(path.parent) == {"perdure.db", "perdure.lock"}


def test_with_nothing_to_gain_it_says_so(tmp_path: Path) -> None:
    """Both sizes are the same."""
    path = sparse(tmp_path / "data", 1)
    ran("compact", "--data", str(path.parent))
    ended = ran("compact", "--data", str(path.parent), "--json")
    assert told(ended)["before_bytes"] == told(ended)["after_bytes"] == path.stat().st_size
    assert ended.stderr.decode() == "perdure: There were no free pages to give back.\n"


def test_a_signal_ends_it_in_order(tmp_path: Path) -> None:
    """The database holds what it held, and no log is left."""
    path = sparse(tmp_path / "data")
    before = kept(path)
    with stopped_between(path, 0, KEPT_MIB) as compact:
        compact.terminate()
    assert compact.returncode == 143
    assert kept(path) == before
    assert names(path.parent) == {"perdure.db", "perdure.lock"}


def test_a_damaged_database_is_refused(tmp_path: Path) -> None:
    """A rebuild would leave out what it cannot read."""
    path = make_database(tmp_path / "data", 1)
    (root,) = asked(path, "SELECT rootpage FROM sqlite_schema WHERE name = 'tasks_unfinished'")[0]
    with path.open("r+b") as file:
        file.seek((root - 1) * 4096)
        file.write(b"noise" * 800)
    before = path.read_bytes()
    assert str(path) in refused(ran("compact", "--data", str(path.parent)), code=6)
    assert path.read_bytes() == before
    assert "There is no database" in refused(ran("compact", "--data", str(tmp_path / "no")))


@pytest.mark.parametrize("database", [None, b""])
def test_a_log_without_its_database_is_left_as_it_is(tmp_path: Path, database: bytes | None) -> None:
    """SQLite would remove it as soon as it opens the database."""
    before = orphan_log(tmp_path / "data", database)
    assert "perdure.db-wal" in refused(ran("compact", "--data", str(tmp_path / "data")), code=6)
    assert digests(tmp_path / "data").items() >= before.items()


def test_what_is_not_ours_is_left_as_it_is(tmp_path: Path) -> None:
    """A database of another program keeps its journal mode, and an empty file stays empty."""
    folder = tmp_path / "data"
    folder.mkdir(mode=0o700)
    with closing(apsw.Connection(str(folder / "perdure.db"))) as other:
        other.execute("CREATE TABLE x (y)")
    for content in ((folder / "perdure.db").read_bytes(), b""):
        (folder / "perdure.db").write_bytes(content)
        assert "not a database of Perdure" in refused(ran("compact", "--data", str(folder)))
        assert (folder / "perdure.db").read_bytes() == content
        assert names(folder) == {"perdure.db", "perdure.lock"}
