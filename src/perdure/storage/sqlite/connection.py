"""How a connection is opened: the one that writes, the one that reads, the one that only looks.

Each setting has its reason here; what is not set is SQLite's default, on purpose.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import apsw

from perdure.storage.sqlite.faults import full
from perdure.storage.sqlite.outside import refuse_orphaned_log

T = TypeVar("T")

LOG_SIZE_MAX_BYTES = 64 * 1024 * 1024
WRITER_BUSY_MAX_MS = 5_000
"""The writer waits on its own thread; only a foreign program can hold the lock."""
HEAR_SIGNALS_STEPS = 100_000
READER_BUSY_MAX_MS = 100
"""Reads run on the event loop, which must not stand still."""

Pragma = tuple[str, str | int, str | int]
"""Name, value, and what SQLite must answer when it is asked afterwards."""

WRITER: tuple[Pragma, ...] = (
    ("journal_mode", "wal", "wal"),
    # Every commit is forced to the disk before it is answered: NORMAL loses acknowledged work when the power goes.
    ("synchronous", "full", 2),
    # On macOS a plain fsync leaves the data in the drive's cache; elsewhere these two do nothing.
    ("fullfsync", "on", 1),
    ("checkpoint_fullfsync", "on", 1),
    # A transaction that was rolled back must not have touched the log: readers would take it for a change.
    ("cache_spill", "off", 0),
    # What is purged is overwritten.
    ("secure_delete", "on", 1),
    # A log that grew once does not keep the space for ever.
    ("journal_size_limit", LOG_SIZE_MAX_BYTES, LOG_SIZE_MAX_BYTES),
    # `log.Log` does it, after the commit instead of within it.
    ("wal_autocheckpoint", 0, 0),
    # A row that gives way to another by REPLACE is a deleted row: ask what guards it.
    ("recursive_triggers", "on", 1),
    # A schema that somebody else has written cannot call functions with side effects.
    ("trusted_schema", "off", 0),
)
CHECKPOINTER: tuple[Pragma, ...] = (
    # It makes no commits. What it moves is on the disk before the log may start anew, as the writer has it.
    *(each for each in WRITER if each[0] in ("synchronous", "fullfsync", "checkpoint_fullfsync", "trusted_schema")),
)
COMPACTOR = tuple(pragma for pragma in WRITER if pragma[0] != "cache_spill")
"""A rebuild goes through the cache whole; what does not fit there may be written early, as nobody else reads."""
BESIDE: tuple[Pragma, ...] = (
    ("query_only", "on", 1),
    # If it is the last to close, it moves the log into the file, as safely as the service would.
    ("synchronous", "full", 2),
    ("fullfsync", "on", 1),
    ("checkpoint_fullfsync", "on", 1),
    ("trusted_schema", "off", 0),
)
COPY: tuple[Pragma, ...] = (
    # The copy has no name yet: one that is cut off is thrown away whole.
    ("journal_mode", "off", "off"),
    ("synchronous", "full", 2),
    ("fullfsync", "on", 1),
)
READER: tuple[Pragma, ...] = (
    ("query_only", "on", 1),
    ("trusted_schema", "off", 0),
)


class NotDurable(apsw.Error):
    """The file system does not let SQLite work as it must."""


def open_writer(path: Path, vfs: str | None = None) -> apsw.Connection:
    """The connection that writes. Makes the file if there is none, and makes sure that its name survives too.

    References are not enforced yet: migrations may have to rebuild what they point to. See `enforce_references`.
    """
    flags = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE
    connection = apsw.Connection(str(path), flags=flags, vfs=vfs)
    try:
        _set(connection, WRITER_BUSY_MAX_MS, WRITER)
        sync_folder(path.parent)
    except BaseException as error:
        no_room = full(error, connection)
        connection.close()
        if no_room:
            raise apsw.FullError(str(error)) from error
        raise
    return connection


def enforce_references(connection: apsw.Connection) -> None:
    """From now on a reference must point to something. Outside a transaction, or SQLite ignores it."""
    _set(connection, WRITER_BUSY_MAX_MS, (("foreign_keys", "on", 1),))


def open_checkpointer(path: Path, vfs: str | None = None) -> apsw.Connection:
    """A connection that only moves the log into the file, so that it can be interrupted: an interrupt over the
    writer's own would undo the work of whoever shares the commit."""
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE, vfs=vfs)
    try:
        _set(connection, WRITER_BUSY_MAX_MS, CHECKPOINTER)
    except BaseException:
        connection.close()
        raise
    return connection


def open_reader(path: Path, vfs: str | None = None) -> apsw.Connection:
    """A connection that cannot write. It must be closed before the writer, or the log files stay behind."""
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY, vfs=vfs)
    try:
        _set(connection, READER_BUSY_MAX_MS, READER)
    except BaseException:
        connection.close()
        raise
    return connection


def open_beside(path: Path, pragmas: tuple[Pragma, ...] = BESIDE) -> apsw.Connection:
    """A connection of another process than the service's. It reads only, but is not read-only: one that is and closes
    last would leave the log behind. Signals are heard while a statement runs."""
    refuse_orphaned_log(path)
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)
    try:
        connection.set_progress_handler(lambda: False, HEAR_SIGNALS_STEPS)
        _set(connection, WRITER_BUSY_MAX_MS, pragmas)
    except BaseException:
        connection.close()
        raise
    return connection


def open_copy(path: Path) -> apsw.Connection:
    """A connection to an empty file that a database is to be copied into: on any file system, also one without locks,
    as nobody else knows of the file."""
    flags = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_URI
    connection = apsw.Connection(f"{path.absolute().as_uri()}?nolock=1", flags=flags)
    try:
        _set(connection, 0, COPY)
    except BaseException:
        connection.close()
        raise
    return connection


def look(path: Path, question: Callable[[apsw.Connection], T], vfs: str | None = None) -> T:
    """Ask a database something without changing a byte of it or leaving files beside it.

    A log that a crash has left can only be read with its index file; otherwise the file is read as if it stood on
    read-only media.
    """
    refuse_orphaned_log(path)
    log = path.with_name(path.name + "-wal")
    how = "" if log.exists() and log.stat().st_size else "&immutable=1"
    flags = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
    connection = apsw.Connection(f"{path.absolute().as_uri()}?mode=ro{how}", flags=flags, vfs=vfs)
    try:
        connection.set_busy_timeout(WRITER_BUSY_MAX_MS)  # a backup that ends may be moving the log
        connection.set_progress_handler(lambda: False, HEAR_SIGNALS_STEPS)
        return question(connection)
    finally:
        connection.close()


def sync_folder(folder: Path) -> None:
    """Force the names in a folder to the disk. Only the folder: a descriptor of the database itself, once closed,
    would drop SQLite's locks."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _set(connection: apsw.Connection, busy_max_ms: int, pragmas: tuple[Pragma, ...]) -> None:
    connection.set_busy_timeout(busy_max_ms)
    # A misspelt column in double quotes must be an error, not a text.
    connection.config(apsw.SQLITE_DBCONFIG_DQS_DML, 0)
    connection.config(apsw.SQLITE_DBCONFIG_DQS_DDL, 0)
    for name, value, kept in pragmas:
        connection.pragma(name, value)
        if (answer := connection.pragma(name)) != kept:
            raise NotDurable(f"PRAGMA {name}={value} left it at {answer}")
