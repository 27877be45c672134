"""Whether a file is a whole database of ours, and what it holds."""

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import apsw

from perdure.domain.errors import StorageDamaged
from perdure.storage.sqlite.migrate import ANOTHER_FOLDER, objection, shipped
from perdure.storage.sqlite.outside import refuse_from_outside
from perdure.storage.sqlite.query import certain, row, rows
from perdure.storage.sqlite.statements import load

_sql = load("care")
_BEGIN, _END = _sql["begin"], _sql["end"]
_CONTENTS, _INTEGRITY, _REFERENCES = _sql["contents"], _sql["integrity"], _sql["references"]
_OUTLIVED = _sql["outlived"]


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


@contextmanager
def one_state(connection: apsw.Connection) -> Generator[None]:
    """What is asked within is asked of one state."""
    rows(connection, _BEGIN)
    yield
    rows(connection, _END)


def require_file(path: Path) -> None:
    """Raise `Unfit`, `RefusedToStart` or `StorageDamaged` where there is no database to open. Opens nothing."""
    refuse_from_outside(path)
    if not path.exists():
        raise Unfit(f"There is no database {path}; name the data folder with --data.")


def refuse_foreign(connection: apsw.Connection, path: Path, instead: str = ANOTHER_FOLDER) -> None:
    """Raise `Unfit` for a database that `perdure serve` would refuse as not its own, and for an empty one."""
    if found := objection(connection, path, shipped(), instead):
        raise Unfit(f"{found.what}; it was left as it is. {found.remedy}.")


def require_full_check(connection: apsw.Connection, path: Path, remedy: str) -> None:
    """Raise `StorageDamaged` unless every page and every reference is as it must be."""
    if found := faults(connection):
        raise StorageDamaged(f"{path} is damaged ({found[0]}). {remedy}")


def faults(connection: apsw.Connection) -> list[str]:
    """What SQLite's own check finds, and references that point nowhere; empty for a sound database."""
    said = _said(connection)
    if said == ["ok"]:
        return [
            f"a row of {table} refers to one of {parent} that is not there"
            for table, _, parent, _ in rows(connection, _REFERENCES)[:3]
        ]
    return [" ".join(line.split()) for line in said]


def _said(connection: apsw.Connection) -> list[str]:
    """What the check says. It may give up at a page that it has told of; what it said before that counts."""
    said: list[str] = []
    try:
        for line in connection.execute(_INTEGRITY):
            said.append(str(line[0]))  # noqa: PERF401 -- a comprehension would lose them when the check gives up
    except (apsw.CorruptError, apsw.NotADBError):
        if not said:
            raise
    return said


def contents(connection: apsw.Connection) -> Contents:
    """What it holds."""
    found = row(connection, _CONTENTS)
    if found is None:
        raise AssertionError("a query without FROM gives one row")
    schema: int = connection.pragma("user_version")
    return Contents(schema, *found)


def outlived(connection: apsw.Connection, before: float) -> int:
    """How many responses only their age removes and had ended by then, in seconds since 1970."""
    return certain(connection, _OUTLIVED, {"finished_before": int(before * 1_000_000)})
