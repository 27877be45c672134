"""What a database holds after its service has ended."""

from pathlib import Path
from typing import Any

import apsw


def kept(database: Path, sql: str, bindings: tuple[str, ...] = ()) -> list[Any]:
    """Rows of a query. Opened for writing, since a service that was killed leaves a log to be read first."""
    connection = apsw.Connection(str(database), flags=apsw.SQLITE_OPEN_READWRITE)
    try:
        return connection.execute(sql, bindings).fetchall()
    finally:
        connection.close()
