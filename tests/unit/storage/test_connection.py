"""How connections are opened."""

from pathlib import Path

import apsw
import pytest

from perdure.storage.sqlite.connection import NotDurable, look, open_reader, open_writer


def test_the_writer_is_durable_and_tidy(tmp_path: Path) -> None:
    """The settings that promises depend on are in force."""
    writer = open_writer(tmp_path / "perdure.db")
    names = ("journal_mode", "synchronous", "cache_spill", "secure_delete", "journal_size_limit")
    assert [writer.pragma(name) for name in names] == ["wal", 2, 0, 1, 64 * 1024 * 1024]
    writer.close()


def test_a_misspelt_column_is_an_error_and_not_a_text(tmp_path: Path) -> None:
    """SQLite's old habit is off."""
    writer = open_writer(tmp_path / "perdure.db")
    with pytest.raises(apsw.SQLError, match="no such column"):
        writer.execute('SELECT "no_such_column"')
    writer.close()


def test_the_reader_cannot_write(tmp_path: Path) -> None:
    """Whatever is asked of it."""
    path = tmp_path / "perdure.db"
    writer = open_writer(path)
    writer.execute("CREATE TABLE t (x)")
    reader = open_reader(path)
    with pytest.raises(apsw.ReadOnlyError):
        reader.execute("INSERT INTO t VALUES (1)")
    reader.close()
    writer.close()
    assert [each.name for each in tmp_path.iterdir()] == ["perdure.db"]


def test_a_database_without_a_log_is_refused() -> None:
    """Where SQLite cannot keep one (in memory, on some network folders) nothing would be durable."""
    with pytest.raises(NotDurable, match="journal_mode"):
        open_writer(Path(":memory:"))


def test_looking_leaves_no_trace(tmp_path: Path) -> None:
    """No file beside it, no byte changed."""
    path = tmp_path / "perdure.db"
    writer = open_writer(path)
    writer.pragma("user_version", 7)
    writer.close()
    before = path.read_bytes()
    assert look(path, lambda connection: connection.pragma("user_version")) == 7
    assert path.read_bytes() == before
    assert [each.name for each in tmp_path.iterdir()] == ["perdure.db"]


def test_looking_sees_what_stands_in_the_log_only(tmp_path: Path) -> None:
    """As after a crash, when the newest commits are not in the file yet."""
    path = tmp_path / "perdure.db"
    writer = open_writer(path)
    writer.pragma("user_version", 7)
    for name in ("perdure.db", "perdure.db-wal"):
        (tmp_path / f"crashed-{name}").write_bytes((tmp_path / name).read_bytes())
    writer.close()
    crashed = tmp_path / "crashed-perdure.db"
    before = crashed.read_bytes(), crashed.with_name("crashed-perdure.db-wal").read_bytes()
    assert look(crashed, lambda connection: connection.pragma("user_version")) == 7
    assert (crashed.read_bytes(), crashed.with_name("crashed-perdure.db-wal").read_bytes()) == before
