"""The probe: one connection that does nothing but tell whether anything was committed (V3).

`PRAGMA data_version` counts what other connections have committed, as seen from the connection that is asked. So it
must be one connection for the whole time, never the writing one, which does not count its own commits. Two show
different numbers for one state, and every new one begins at the same number: hence the generation beside it (V2).
"""

import secrets
from collections.abc import Callable
from functools import partial
from pathlib import Path

import apsw

from perdure.domain.errors import StorageFailed, Unavailable
from perdure.storage.sqlite.connection import open_reader
from perdure.storage.sqlite.faults import unread

_GENERATION_BYTES = 16


class Probe:
    """Tells the version. `connect` makes its connection, at once and again when somebody has closed it."""

    def __init__(self, connect: Callable[[], apsw.Connection]) -> None:
        self._connect = connect
        self._closed = False
        self._begin()

    def version(self) -> str:
        """What stands for everything committed so far. Raises `StorageFailed`, and `Unavailable` once closed.

        Nothing is awaited and no cursor stays open: a caller who is cancelled changes nothing, and no snapshot is
        held between two readings (V4).
        """
        try:
            counter = self._connection.pragma("data_version")
        except apsw.ConnectionClosedError:
            # This alone calls for a new connection. Were a busy or failing disk to do it too, every hiccup would void
            # what all clients hold (V6).
            counter = self._anew()
        except apsw.Error as error:
            raise unread(error, self._connection) from error
        return f"{self._generation}.{counter}"

    def close(self) -> None:
        """Close the connection; no other one is made from now on (V7)."""
        self._closed = True
        self._connection.close()

    def _anew(self) -> int:
        if self._closed:
            raise Unavailable("The store is closed.")
        try:
            self._begin()
            return self._connection.pragma("data_version")
        except apsw.Error as error:
            raise StorageFailed("The database cannot be opened for a look at its version.") from error

    def _begin(self) -> None:
        self._connection = self._connect()
        self._generation = secrets.token_hex(_GENERATION_BYTES)


def open_probe(path: Path, vfs: str | None = None) -> Probe:
    """The probe of a database whose writer is open. It must be closed before the writer, or the log files stay."""
    return Probe(partial(_connection, path, vfs))


def _connection(path: Path, vfs: str | None) -> apsw.Connection:
    connection = open_reader(path, vfs)
    # A version that cannot be told at once is no loss, and the event loop must not wait for it.
    connection.set_busy_timeout(0)
    return connection
