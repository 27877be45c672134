"""Asking SQLite. Every cursor is read to its end: one that is kept half read holds a snapshot and stops the log."""

from collections.abc import Mapping, Sequence
from typing import Any

import apsw

Value = None | int | float | str | bytes
Bindings = Sequence[Value] | Mapping[str, Value]


def rows(connection: apsw.Connection, sql: str, bindings: Bindings = ()) -> list[Any]:
    """All rows."""
    return connection.execute(sql, bindings).fetchall()


def row(connection: apsw.Connection, sql: str, bindings: Bindings = ()) -> Any | None:
    """The first row, or None."""
    found = rows(connection, sql, bindings)
    return found[0] if found else None


def value(connection: apsw.Connection, sql: str, bindings: Bindings = ()) -> Any | None:
    """The first column of the first row, or None where there is no row."""
    found = rows(connection, sql, bindings)
    return found[0][0] if found else None


def certain(connection: apsw.Connection, sql: str, bindings: Bindings = ()) -> Any:
    """The first column of the only row, which must be there."""
    found = rows(connection, sql, bindings)
    if len(found) != 1:
        raise AssertionError(f"{len(found)} rows where there is always one: {sql}")
    return found[0][0]
