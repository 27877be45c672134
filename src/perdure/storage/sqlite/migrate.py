"""From any older schema to the newest one, forward only.

`PRAGMA user_version` counts the migrations that were made. Each is one transaction together with its count, so a
failing one leaves nothing behind. What was applied is kept with its checksum and compared at every start: a migration
is never edited once it is out.

A database that this program must not touch is recognised before it is opened for writing.
"""

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import NamedTuple

import apsw

from perdure.domain.errors import RefusedToStart
from perdure.storage.sqlite.connection import look
from perdure.storage.sqlite.query import certain, rows
from perdure.storage.sqlite.statements import load

APPLICATION_ID = 0x50524452
"""Marks the file as ours ("PRDR"); `file` and other tools show it."""

ANOTHER_FOLDER = "another data folder"

_sql = load("migrate")
_BEGIN, _COMMIT, _ROLLBACK = _sql["begin"], _sql["commit"], _sql["rollback"]
_KEEP_HISTORY, _NOTE, _HISTORY, _OBJECTS = _sql["keep_history"], _sql["note"], _sql["history"], _sql["objects"]
_SCHEMA, _CONFIGURED = _sql["schema"], _sql["configured"]
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


class Objection(NamedTuple):
    """What speaks against a database, and what helps."""

    what: str
    remedy: str


def refuse_unfit(path: Path, migrations: Sequence[Migration], vfs: str | None = None) -> None:
    """Raise `RefusedToStart` for a file that is not ours, newer, or not as our migrations made it. Reads only."""

    def ask(connection: apsw.Connection) -> Objection | None:
        if not connection.pragma("user_version") and not certain(connection, _OBJECTS):
            return None
        if found := objection(connection, path, migrations):
            return found
        found = changed(connection, migrations)
        return _by_another(f"{path} was changed by another program: {found[0]}", ANOTHER_FOLDER) if found else None

    if path.exists() and path.stat().st_size and (found := look(path, ask, vfs)):
        raise RefusedToStart(f"{found.what}; it was left as it is. {found.remedy}.")


def objection(
    connection: apsw.Connection, path: Path, migrations: Sequence[Migration], instead: str = ANOTHER_FOLDER
) -> Objection | None:
    """Why this program must not touch a database: one that is not ours, is newer, or was made by other migrations."""
    if connection.pragma("application_id") != APPLICATION_ID or not certain(connection, _OBJECTS):
        return Objection(f"{path} is not a database of Perdure", f"Choose {instead}")
    version, known = connection.pragma("user_version"), len(migrations)
    if version > known:
        return Objection(
            f"{path} was written by a newer Perdure (schema {version}, this one knows {known})",
            f"Use the version that made it, or choose {instead}",
        )
    checksums = {migration.version: migration.checksum for migration in migrations}
    history = _history(connection)
    for number, name, checksum in history:
        if checksums.get(number) != checksum:
            return Objection(
                f"migration {number} ({name}) is not the one that made {path}: files of the program were changed, or "
                "another build made it",
                f"Install Perdure anew, in the version that made it, or choose {instead}",
            )
    if [number for number, _, _ in history] != list(range(1, version + 1)):
        return _by_another(
            f"{path} was changed by another program: it says schema {version}, and its list of migrations has "
            f"{len(history)}",
            instead,
        )
    return None


def changed(connection: apsw.Connection, migrations: Sequence[Migration]) -> list[str]:
    """What is missing or altered of the schema, in words, in a database that `objection` has nothing against.

    What others have added is let be. Without one of our triggers or indexes, promises would be broken in silence.
    """
    made = apsw.Connection(":memory:")
    try:
        migrate(made, migrations[: connection.pragma("user_version")])
        expected = _schema(made)
    finally:
        made.close()
    found = _schema(connection)
    told = [
        f"the {kind} {name} {'is not as it was made' if (kind, name) in found else 'is missing'}"
        for (kind, name), sql in expected.items()
        if found.get((kind, name)) != sql
    ]
    if not told and ("table", "service_config") in expected and certain(connection, _CONFIGURED) != 1:
        told.append("the row of service_config is missing")
    return told


def _schema(connection: apsw.Connection) -> dict[tuple[str, str], str]:
    return {(kind, name): sql for kind, name, sql in rows(connection, _SCHEMA)}


def _history(connection: apsw.Connection) -> list[tuple[int, str, str]]:
    try:
        return rows(connection, _HISTORY)
    except apsw.SQLError:  # there is no such table, or not with these columns
        return []


def _by_another(what: str, instead: str) -> Objection:
    back = ", and bring a backup back there with `perdure restore FILE`" if instead == ANOTHER_FOLDER else ""
    return Objection(what, f"Choose {instead}{back}")


def migrate(connection: apsw.Connection, migrations: Sequence[Migration]) -> None:
    """Make what is missing."""
    while _make_next(connection, migrations):
        pass


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
