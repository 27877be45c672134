"""Whether a file is a whole database of ours, and what it holds."""

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import apsw

from perdure.domain.errors import StorageDamaged
from perdure.storage.sqlite.migrate import APPLICATION_ID, shipped
from perdure.storage.sqlite.query import certain, row, rows
from perdure.storage.sqlite.statements import load

_sql = load("care")
_OBJECTS, _CONTENTS, _INTEGRITY, _REFERENCES = (
    _sql["objects"],
    _sql["contents"],
    _sql["integrity"],
    _sql["references"],
)


class Unfit(Exception):
    """A file cannot be used, or a copy of it cannot be made. The message is one line that names the remedy."""


@dataclass(frozen=True)
class Contents:
    """What is counted of a database."""

    schema: int
    tasks: int
    unfinished: int
    responses: int
    events: int
    clients: int


@contextmanager
def telling(path: Path, remedy: str) -> Generator[None]:
    """What SQLite says of a file, as one line."""
    try:
        yield
    except (apsw.CorruptError, apsw.NotADBError) as error:
        raise StorageDamaged(f"{path} is damaged or not a database ({error}). {remedy}") from error
    except apsw.Error as error:
        raise Unfit(f"{path} cannot be read ({error}). {remedy}") from error


def refuse_foreign(connection: apsw.Connection, path: Path) -> None:
    """Raise `Unfit` for a database that is not ours or that a newer program has written."""
    if connection.pragma("application_id") != APPLICATION_ID or not certain(connection, _OBJECTS):
        raise Unfit(f"{path} is not a database of Perdure; nothing was done.")
    schema, known = connection.pragma("user_version"), len(shipped())
    if schema > known:
        raise Unfit(
            f"{path} was written by a newer Perdure (schema {schema}, this one knows {known}); nothing was done. "
            "Use that version."
        )


def refuse_damaged(connection: apsw.Connection, path: Path, remedy: str) -> None:
    """Raise `StorageDamaged` unless every page and every reference is as it must be."""
    if found := faults(connection):
        raise StorageDamaged(f"{path} is damaged ({found[0]}). {remedy}")


def faults(connection: apsw.Connection) -> list[str]:
    """What SQLite's own check finds, and references that point nowhere; empty for a sound database."""
    said = [str(line[0]) for line in rows(connection, _INTEGRITY)]
    if said == ["ok"]:
        return [
            f"a row of {table} refers to one of {parent} that is not there"
            for table, _, parent, _ in rows(connection, _REFERENCES)[:3]
        ]
    return [" ".join(line.split()) for line in said]


def contents(connection: apsw.Connection) -> Contents:
    """What it holds."""
    found = row(connection, _CONTENTS)
    if found is None:
        raise AssertionError("a query without FROM gives one row")
    schema: int = connection.pragma("user_version")
    return Contents(schema, *found)
