"""From any older schema to the newest one, forward only.

`PRAGMA user_version` counts the migrations that were made. Each is one transaction together with its count, so a
failing one leaves nothing behind. What was applied is kept with its checksum and compared at every start: a migration
is never edited once it is out.

A database that this program must not touch is recognised before it is opened for writing.
"""

import hashlib
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

import apsw

from perdure.domain.errors import RefusedToStart
from perdure.storage.sqlite.connection import look
from perdure.storage.sqlite.query import rows, value
from perdure.storage.sqlite.statements import load

APPLICATION_ID = 0x50524452
"""Marks the file as ours ("PRDR"); `file` and other tools show it."""

_sql = load("migrate")
_BEGIN, _COMMIT, _ROLLBACK = _sql["begin"], _sql["commit"], _sql["rollback"]
_KEEP_HISTORY, _NOTE, _HISTORY, _OBJECTS = _sql["keep_history"], _sql["note"], _sql["history"], _sql["objects"]
_FILE_NAME = re.compile(r"^(\d{4})_([a-z0-9_]+)\.sql$")


@dataclass(frozen=True)
class Migration:
    """One numbered step of the schema."""

    version: int
    name: str
    sql: str

    @property
    def checksum(self) -> str:
        """SHA-256 of the text, in hex."""
        return hashlib.sha256(self.sql.encode()).hexdigest()


def shipped() -> tuple[Migration, ...]:
    """The migrations of this program, in order, numbered 1, 2, 3 ..."""
    found = [
        Migration(int(match[1]), match[2], each.read_text("utf-8"))
        for each in files("perdure.storage.sqlite").joinpath("migrations").iterdir()
        if (match := _FILE_NAME.match(each.name))
    ]
    found.sort(key=lambda migration: migration.version)
    if [migration.version for migration in found] != list(range(1, len(found) + 1)):
        raise AssertionError(f"migrations are not numbered 1 to {len(found)}")
    return tuple(found)


def refuse_unfit(path: Path, migrations: Sequence[Migration], vfs: str | None = None) -> None:
    """Raise `RefusedToStart` for a file that is not ours, is newer, or was made by other migrations. Reads only."""
    if path.exists() and path.stat().st_size:
        look(path, _checker(path, migrations), vfs)


def migrate(connection: apsw.Connection, migrations: Sequence[Migration]) -> None:
    """Make what is missing."""
    while _make_next(connection, migrations):
        pass


def _checker(path: Path, migrations: Sequence[Migration]) -> Callable[[apsw.Connection], None]:
    def check(connection: apsw.Connection) -> None:
        version = connection.pragma("user_version")
        ours = connection.pragma("application_id") == APPLICATION_ID
        if not ours and (version or value(connection, _OBJECTS)):
            raise RefusedToStart(
                f"{path} is not a database of Perdure; it was left as it is. Choose another data folder"
            )
        if version > len(migrations):
            raise RefusedToStart(
                f"{path} was written by a newer Perdure (schema {version}, this one knows {len(migrations)}); it was "
                "left as it is. Start that version, or choose another data folder"
            )
        if ours:
            _check_history(connection, migrations)

    return check


def _check_history(connection: apsw.Connection, migrations: Sequence[Migration]) -> None:
    for version, name, checksum in rows(connection, _HISTORY):
        if migrations[version - 1].checksum != checksum:
            raise RefusedToStart(
                f"migration {version} ({name}) is not the one that made this database: files of the program were "
                "changed. Install Perdure anew; the database was left as it is"
            )


def _make_next(connection: apsw.Connection, migrations: Sequence[Migration]) -> bool:
    """Make one migration, if there is one to make."""
    rows(connection, _BEGIN)
    try:
        version: int = connection.pragma("user_version")
        if version < len(migrations):
            _make(connection, migrations[version])
        rows(connection, _COMMIT)
    except BaseException:
        if connection.in_transaction:
            rows(connection, _ROLLBACK)
        raise
    return version < len(migrations)


def _make(connection: apsw.Connection, migration: Migration) -> None:
    rows(connection, _KEEP_HISTORY)
    rows(connection, migration.sql)
    broken = connection.pragma("foreign_key_check")
    if broken is not None:
        raise AssertionError(f"migration {migration.version} leaves references that point nowhere: {broken}")
    rows(connection, _NOTE, (migration.version, migration.name, migration.checksum))
    connection.pragma("application_id", APPLICATION_ID)
    connection.pragma("user_version", migration.version)
