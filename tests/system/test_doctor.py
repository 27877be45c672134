"""`perdure doctor`: finds what is wrong, says what to do, and changes nothing."""

import os
import shutil
from collections.abc import Callable, Generator
from contextlib import closing
from pathlib import Path

import apsw
import pytest

from tests.system.care import copying, digests, findings, make_database, names
from tests.system.command import on, ran
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
    """Have a foreign hand change the database."""
    with closing(apsw.Connection(str(folder / "perdure.db"))) as connection:
        for statement in statements:
            connection.execute(statement)


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


PROBLEMS: dict[Callable[[Path], None], tuple[str, str, str]] = {
    a_page_of_noise: ("integrity", "damaged", "perdure restore FILE"),
    nothing_but_noise: ("integrity", "is damaged or not a database", "perdure restore FILE"),
    half: ("integrity", "damaged", "perdure restore FILE"),
    a_missing_event: ("journals", "resp_", "perdure restore FILE"),
    a_missing_end: ("journals", "resp_", "perdure restore FILE"),
    a_lost_parent: ("integrity", "refers to one of clients", "perdure restore FILE"),
    a_wrong_count: ("queue", "0 are queued and 900 are counted", "Restart"),
    open_to_all: ("folder", "mode 0755", "chmod 700"),
    a_readable_database: ("files", "perdure.db (mode 0644", "chmod 600"),
    of_a_newer_program: ("database", "newer Perdure", "the version that made it"),
    of_another_program: ("database", "not a database of Perdure", "another data folder"),
    an_unreadable_token: ("token", "cannot be read", "Delete"),
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


def an_older_schema(folder: Path) -> None:
    """As before an upgrade."""
    changed(folder, "PRAGMA user_version = 1")


def free_pages(folder: Path) -> None:
    """Much was deleted."""
    changed(
        folder, "CREATE TABLE filling (x)", "INSERT INTO filling VALUES (zeroblob(20000000))", "DROP TABLE filling"
    )


def a_killed_service(folder: Path) -> None:
    """It could not tidy up."""
    (folder / "server.json").write_text('{"pid": 999999999}')
    (folder / "server.json").chmod(0o600)


def no_database(folder: Path) -> None:
    """Nothing was served yet."""
    (folder / "perdure.db").unlink()


NOTES: dict[Callable[[Path], None], tuple[str, str, str]] = {
    a_left_over: ("left over", "copy.123.part", "delete them"),
    another_token: ("token", "not the one in the database", "makes a new one"),
    no_token: ("token", "there is no owner's token", "makes one"),
    a_lost_model: ("models", "/nowhere/tiny.gguf, is gone", "Bring it back"),
    another_model: ("models", "in place of 7", "Bring it back"),
    overdue: ("retention", "finished and due to be removed", "A running service"),
    outlived: ("retention", "finished and due to be removed", "A running service"),
    an_older_schema: ("schema", "schema 1; this program has", "The next `perdure serve`"),
    free_pages: ("space", "are free pages", "perdure compact"),
    a_killed_service: ("service", "process 999999999", "perdure serve"),
    no_database: ("database", "there is no database perdure.db yet", "perdure serve"),
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
