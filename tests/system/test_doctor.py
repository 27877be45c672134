"""`perdure doctor`: finds what is wrong, says what to do, and changes nothing."""

import json
import os
import shutil
from collections.abc import Callable, Generator
from contextlib import closing
from pathlib import Path

import apsw
import pytest

from perdure.storage.sqlite.connection import open_writer
from perdure.storage.sqlite.migrate import migrate, shipped
from perdure.testing.damage import leaves_of, overwrite_page
from tests.system.care import MIB, copying, digests, findings, make_database, names, orphan_log, small_disk, told
from tests.system.command import CALLED, on, ran
from tests.system.server import Server

CHECKS = {
    "sqlite", "folder", "files", "file system", "room", "service", "log", "schema", "journal", "integrity", "tasks",
    "queue", "journals", "retention", "models", "token", "space",
}  # fmt: skip


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory, tiny_model: Path) -> Generator[Server]:
    """A service that has finished one response and waits with another."""
    with Server(tmp_path_factory.mktemp("served") / "data", tiny_model).start() as server:
        server.ended(server.create(max_output_tokens=5)["id"])
        yield server


@pytest.fixture(scope="module")
def stopped_service(tmp_path_factory: pytest.TempPathFactory, served: Server) -> Path:
    """A data folder as an orderly stop leaves it."""
    backup = tmp_path_factory.mktemp("stopped") / "backup"
    folder = backup.with_name("data")
    assert on(served, "backup", str(backup)).returncode == 0
    assert ran("restore", str(backup), "--data", str(folder)).returncode == 0
    (folder / "owner.token").write_text(served.token)
    (folder / "owner.token").chmod(0o600)
    return folder


@pytest.fixture
def left(tmp_path: Path, stopped_service: Path) -> Path:
    """The same for one test alone, which may damage it."""
    return shutil.copytree(stopped_service, tmp_path / "data")


def changed(folder: Path, *statements: str) -> None:
    """Have a foreign hand change the database. Triggers that it had to drop for that are made again."""
    with closing(apsw.Connection(str(folder / "perdure.db"))) as connection:
        triggers = triggers_of(connection)
        for statement in statements:
            connection.execute(statement)
        for name in triggers.keys() - triggers_of(connection).keys():
            connection.execute(triggers[name])


def triggers_of(connection: apsw.Connection) -> dict[str, str]:
    """Name and text of each."""
    found = connection.execute("SELECT name, sql FROM sqlite_schema WHERE type = 'trigger'").fetchall()
    return {str(name): str(sql) for name, sql in found}


def test_of_a_running_service_all_is_well(served: Server) -> None:
    """Every check is made, and none has anything to say; the text is in groups, and the service goes on."""
    assert served.process is not None
    found = findings(served.data)
    assert {check: level for check, (level, _, _) in found.items()} == dict.fromkeys(CHECKS, "ok")
    assert f"process {served.process.pid} holds the folder" in found["service"][1]
    assert found["tasks"][1].startswith("finished: ")
    ended = on(served, "doctor")
    lines = ended.stdout.decode().splitlines()
    assert (ended.returncode, lines[-1]) == (0, "0 problems, 0 notes")
    assert {line.split()[0] for line in lines[:-1]} == {"ok"}
    assert served.ended(served.create(max_output_tokens=3)["id"])["status"] == "incomplete"


def test_a_service_that_stops_meanwhile_leaves_no_log_behind(tmp_path: Path, tiny_model: Path) -> None:
    """Neither the doctor nor the service is the last who could not take it away."""
    with Server(tmp_path / "data", tiny_model).start() as server:
        server.create(max_output_tokens=5)
        assert findings(server.data)["service"][0] == "ok"
        assert server.terminate() == 0
        assert not names(server.data) & {"perdure.db-wal", "perdure.db-shm"}


@pytest.mark.proves("D5")
def test_after_a_kill_the_log_is_a_note_and_stays(tmp_path: Path, tiny_model: Path) -> None:
    """What is unfinished is counted, what was left is named, and every file is as it was."""
    with Server(tmp_path / "data", tiny_model).start() as server:
        server.create(max_output_tokens=1900)
        server.kill()
        before = unshared(server.data)
        found = findings(server.data)
        assert {check for check, (level, _, _) in found.items() if level != "ok"} == {"log", "service"}
        level, message, remedy = found["log"]
        assert (level, "nothing is lost" in message) == ("note", True)
        assert "never move or copy perdure.db without it" in remedy
        assert "server.json was left by process" in found["service"][1]
        assert "unfinished: 1 " in found["tasks"][1]
        assert unshared(server.data) == before


def unshared(folder: Path) -> dict[str, str]:
    """The files of a folder, but for the memory that SQLite's processes share and write their locks into."""
    return {name: digest for name, digest in digests(folder).items() if name != "perdure.db-shm"}


def test_a_stopped_service_is_left_as_it_is(left: Path) -> None:
    """Not a byte and not a name is different."""
    before = digests(left)
    assert {level for level, _, _ in findings(left).values()} == {"ok"}
    assert digests(left) == before


def a_page_of_noise(folder: Path) -> None:
    """In the middle of the file."""
    with (folder / "perdure.db").open("r+b") as file:
        file.seek(file.seek(0, os.SEEK_END) // 8192 * 4096)
        file.write(os.urandom(4096))


def a_page_that_ends_the_check(folder: Path) -> None:
    """The check tells of it, and then can go no further."""
    path = folder / "perdure.db"
    overwrite_page(path, leaves_of(path, "tasks")[0])
    for ending in ("-wal", "-shm"):  # empty; a connection that cannot write leaves them
        path.with_name(path.name + ending).unlink()


def nothing_but_noise(folder: Path) -> None:
    """No page is whole."""
    (folder / "perdure.db").write_bytes(os.urandom(20_000))


def half(folder: Path) -> None:
    """The end is missing."""
    os.truncate(folder / "perdure.db", (folder / "perdure.db").stat().st_size // 2)


def a_missing_event(folder: Path) -> None:
    """In the middle of a journal."""
    drop = "DROP TRIGGER task_events_stay_while_unfinished"
    changed(folder, drop, "DELETE FROM event_bodies", "DELETE FROM task_events WHERE seq = 1")


def a_missing_end(folder: Path) -> None:
    """As if the end had been written without its event."""
    last = "DELETE FROM task_events WHERE seq = (SELECT max(seq) FROM task_events)"
    changed(folder, "DELETE FROM event_bodies", last)


def a_lost_parent(folder: Path) -> None:
    """A row points nowhere."""
    changed(folder, "DELETE FROM clients")


def a_wrong_count(folder: Path) -> None:
    """The queue is thought to be full."""
    changed(folder, "UPDATE service_config SET tasks_queued = 900")


def a_dropped_index(folder: Path) -> None:
    """And a trigger: a start is refused."""
    with closing(apsw.Connection(str(folder / "perdure.db"))) as connection:
        connection.execute("DROP INDEX tasks_listed; DROP TRIGGER tasks_end_once")


def open_to_all(folder: Path) -> None:
    """Everybody may look into it."""
    folder.chmod(0o755)


def a_readable_database(folder: Path) -> None:
    """Everybody may read it."""
    (folder / "perdure.db").chmod(0o644)


def of_a_newer_program(folder: Path) -> None:
    """Its schema is not known here."""
    changed(folder, "PRAGMA user_version = 99")


def of_another_program(folder: Path) -> None:
    """It is not ours."""
    (folder / "perdure.db").unlink()
    changed(folder, "CREATE TABLE x (y)")


def an_unreadable_token(folder: Path) -> None:
    """A folder stands in its place."""
    (folder / "owner.token").unlink()
    (folder / "owner.token").mkdir()


def a_lost_database(folder: Path) -> None:
    """It was deleted."""
    (folder / "perdure.db").unlink()


def an_emptied_database(folder: Path) -> None:
    """Only its name is left."""
    os.truncate(folder / "perdure.db", 0)


def a_lost_log(folder: Path) -> None:
    """After a kill somebody has tidied up, by hand."""
    (folder / "perdure.db-shm").write_bytes(bytes(32_768))
    (folder / "perdure.db-shm").chmod(0o600)


PROBLEMS: dict[Callable[[Path], None], tuple[str, str, str]] = {
    a_page_of_noise: ("integrity", "damaged", "perdure restore FILE --data"),
    a_page_that_ends_the_check: ("integrity", "btreeInitPage() returns error code 11", "restore FILE"),
    nothing_but_noise: ("integrity", "is damaged or not a database", "perdure restore FILE --data"),
    half: ("integrity", "damaged", "perdure restore FILE --data"),
    a_missing_event: ("journals", "resp_", "perdure restore FILE --data"),
    a_missing_end: ("journals", "resp_", "perdure restore FILE --data"),
    a_lost_parent: ("integrity", "refers to one of clients", "perdure restore FILE --data"),
    a_wrong_count: ("queue", "0 are queued and 900 are counted", "Restart"),
    a_dropped_index: ("schema", "tasks_listed is missing, the trigger tasks_end_once is missing", "restore FILE"),
    open_to_all: ("folder", "mode 0755", "chmod 700"),
    a_readable_database: ("files", "perdure.db (mode 0644", "chmod 600"),
    of_a_newer_program: ("database", "newer Perdure", "the version that made it"),
    of_another_program: ("database", "not a database of Perdure", "another data folder"),
    an_unreadable_token: ("token", "cannot be read", "Delete"),
    a_lost_database: ("database", "owner.token beside it: it was deleted or moved away", "restore FILE"),
    an_emptied_database: ("database", "perdure.db is empty", "restore FILE"),
    a_lost_log: ("log", "perdure.db-wal is gone", "Bring it back before the next start"),
}


@pytest.mark.parametrize("damage", PROBLEMS)
def test_a_problem_is_found_and_has_a_remedy(left: Path, damage: Callable[[Path], None]) -> None:
    """No traceback, exit code 1, and the file is left as it is."""
    damage(left)
    before = digests(left)
    check, message, remedy = PROBLEMS[damage]
    found = findings(left)
    assert found[check][0] == "problem"
    assert message in found[check][1]
    assert remedy in found[check][2]
    assert digests(left) == before


def a_left_over(folder: Path) -> None:
    """A backup into the folder was killed."""
    (folder / "copy.123.part").write_text("")


def another_token(folder: Path) -> None:
    """Not the one in the database."""
    (folder / "owner.token").write_text("another one")


def no_token(folder: Path) -> None:
    """It was deleted."""
    (folder / "owner.token").unlink()


def a_lost_model(folder: Path) -> None:
    """Its file was deleted."""
    changed(folder, "UPDATE models SET path = '/nowhere/tiny.gguf'")


def another_model(folder: Path) -> None:
    """Its file was replaced."""
    changed(folder, "UPDATE models SET size_bytes = 7")


def overdue(folder: Path) -> None:
    """It should have gone long ago."""
    changed(folder, "UPDATE tasks SET purge_at = 1")


def outlived(folder: Path) -> None:
    """Its age should have removed it."""
    changed(folder, "DROP TRIGGER tasks_end_once", "UPDATE tasks SET finished_at = 1 WHERE finished_at IS NOT NULL")


def free_pages(folder: Path) -> None:
    """Much was deleted."""
    changed(
        folder, "CREATE TABLE filling (x)", "INSERT INTO filling VALUES (zeroblob(20000000))", "DROP TABLE filling"
    )


def a_killed_service(folder: Path) -> None:
    """It could not tidy up."""
    (folder / "server.json").write_text('{"pid": 999999999}')
    (folder / "server.json").chmod(0o600)


def a_living_process(folder: Path) -> None:
    """As in a copy of a folder that is served."""
    (folder / "server.json").write_text(json.dumps({"pid": os.getpid()}))
    (folder / "server.json").chmod(0o600)


NOTES: dict[Callable[[Path], None], tuple[str, str, str]] = {
    a_left_over: ("left over", "copy.123.part", "delete them"),
    another_token: ("token", "not the one in the database", "makes a new one"),
    no_token: ("token", "there is no owner's token", "makes one"),
    a_lost_model: ("models", "/nowhere/tiny.gguf, is gone", "Bring it back"),
    another_model: ("models", "in place of 7", "Bring it back"),
    overdue: ("retention", "deleted, or not to be stored, and still there: ", "The next start removes"),
    outlived: ("retention", " finished more than 30 days ago, and the next start", "PERDURE_RETENTION_DAYS=forever"),
    free_pages: ("space", "are free pages", "perdure compact"),
    a_killed_service: ("service", "process 999999999", "perdure serve"),
    a_living_process: ("service", "runs and does not hold it: the folder is a copy", "If perdure.db-wal was removed"),
}


@pytest.mark.parametrize("change", NOTES)
def test_a_note_says_what_comes_of_it(left: Path, change: Callable[[Path], None]) -> None:
    """It is no problem: the exit code is 0."""
    change(left)
    check, message, remedy = NOTES[change]
    found = findings(left)
    assert {each for each, (level, _, _) in found.items() if level != "ok"} == {check}
    assert found[check][0] == "note"
    assert message in found[check][1]
    assert remedy in found[check][2]


def test_an_older_schema_is_a_note(tmp_path: Path) -> None:
    """As before an upgrade."""
    (tmp_path / "data").mkdir(mode=0o700)
    with closing(open_writer(tmp_path / "data" / "perdure.db")) as connection:
        migrate(connection, shipped()[:1])
    level, message, remedy = findings(tmp_path / "data")["schema"]
    assert (level, message) == ("note", f"schema 1; this program has {len(shipped())}")
    assert "brings it up" in remedy


def test_a_folder_that_was_never_served_is_a_note(tmp_path: Path) -> None:
    """Nothing shows that there was anything."""
    (tmp_path / "data").mkdir(mode=0o700)
    found = findings(tmp_path / "data")
    assert found["database"][:2] == ("note", "there is no database perdure.db yet")
    assert {level for level, _, _ in found.values()} == {"ok", "note"}


def test_without_an_age_nothing_is_too_old(left: Path) -> None:
    """What the note names keeps it."""
    outlived(left)
    report = told(ran("doctor", "--data", str(left), "--json", PERDURE_RETENTION_DAYS="forever"))
    assert report["notes"] == report["problems"] == 0


def test_remedies_can_be_pasted(left: Path) -> None:
    """They name this program as it was called, and the folder."""
    (left / "perdure.db").unlink()
    remedy = findings(left)["database"][2]
    assert f"`{CALLED} restore FILE --data {left}`" in remedy


def test_of_what_is_gone_while_it_is_in_use(tmp_path: Path, tiny_model: Path) -> None:
    """Neither is made anew by the look. A log that the service still has open is in the database after its stop."""
    with Server(tmp_path / "data", tiny_model).start() as server:
        done = server.create(max_output_tokens=5)["id"]
        server.ended(done)
        database, log = server.data / "perdure.db", server.data / "perdure.db-wal"
        database.rename(tmp_path / "away")
        level, message, remedy = findings(server.data)["database"]
        assert (level, "deleted or moved away while it was in use" in message) == ("problem", True)
        assert "bring it back where it was" in remedy
        assert not database.exists()
        (tmp_path / "away").rename(database)
        log.unlink()
        found = findings(server.data)
        level, message, remedy = found["log"]
        assert (level, "while it was in use" in message) == ("problem", True)
        assert "integrity" not in found  # the file alone, which the service writes to, could look damaged
        assert "stop the service in order" in remedy
        assert not log.exists()
        assert server.terminate() == 0
        assert {level for level, _, _ in findings(server.data).values()} == {"ok"}
        server.start()
        assert server.task(done)["status"] == "incomplete"


@pytest.mark.parametrize("loss", [a_lost_database, an_emptied_database, a_lost_log])
def test_a_start_on_a_loss_says_so_once(left: Path, tiny_model: Path, loss: Callable[[Path], None]) -> None:
    """In its log; it goes on. The start after that has nothing to say."""
    loss(left)
    with Server(left, tiny_model).start() as server:
        assert server.errors.read_text().count("this start goes on without it") == 1
        assert "perdure restore FILE" in server.errors.read_text()
        assert server.terminate() == 0
        server.start()
        assert server.errors.read_text().count("this start goes on without it") == 1


def test_neither_a_kill_nor_what_reads_after_it_looks_like_a_loss(tmp_path: Path, tiny_model: Path) -> None:
    """A backup takes the log up; that is a note, since it looks like a log and its index removed by hand."""
    with Server(tmp_path / "data", tiny_model).start() as server:
        server.kill()
        assert findings(server.data)["log"][0] == "note"
        assert ran("backup", str(tmp_path / "backup"), "--data", str(server.data)).returncode == 0
        found = findings(server.data)
        assert {check: level for check, (level, _, _) in found.items() if level != "ok"} == {"service": "note"}
        assert "If perdure.db-wal was removed" in found["service"][2]
        server.start()
        assert "this start goes on without it" not in server.errors.read_text()


def test_a_full_disk_is_a_problem(tmp_path: Path) -> None:
    """One with little room is a note."""
    with small_disk(tmp_path / "disk", 8) as disk:
        make_database(disk / "data")
        assert findings(disk / "data")["room"][0] == "note"
        room = os.statvfs(disk)
        (disk / "filler").write_bytes(bytes(room.f_bavail * room.f_frsize - MIB // 2))
        level, message, _ = findings(disk / "data")["room"]
        assert (level, "its disk is full" in message) == ("problem", True)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_a_file_of_somebody_else_is_given_back(left: Path) -> None:
    """Its mode is not what is wrong."""
    os.chown(left / "perdure.db", 12_345, -1)
    level, message, remedy = findings(left)["files"]
    assert (level, "perdure.db (user 12345)" in message) == ("problem", True)
    assert remedy == f"As root: chown 0 {left / 'perdure.db'}"


def test_no_folder_is_a_clear_word(tmp_path: Path) -> None:
    """And a file in its place is one too; nothing is made."""
    (tmp_path / "file").write_text("")
    for name, why in {"no": "No such file", "file": "is not a folder"}.items():
        assert why in findings(tmp_path / name)["folder"][1]
    assert names(tmp_path) == {"file"}


def test_beside_a_backup_it_works(tmp_path: Path) -> None:
    """Both read."""
    path = make_database(tmp_path / "data", 48)
    with copying(path.parent, tmp_path / "backup", 8_000_000):
        assert findings(path.parent)["integrity"][0] == "ok"


@pytest.mark.parametrize("database", [None, b""])
def test_a_log_without_its_database_is_left_as_it_is(tmp_path: Path, database: bytes | None) -> None:
    """It is named as what has to be kept. SQLite would remove it as soon as it opens the database."""
    before = orphan_log(tmp_path / "data", database)
    level, message, remedy = findings(tmp_path / "data")["database"]
    assert level == "problem"
    assert "perdure.db-wal" in message
    assert "Bring perdure.db back beside its log" in remedy
    assert digests(tmp_path / "data") == before
