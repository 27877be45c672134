"""What SQLite's errors mean to a caller.

Trouble of the disk or of the file becomes `StorageFull` or `StorageFailed`. A violated constraint is a fault of this
program and becomes an assertion. Everything else passes as it is.
"""

import errno
import logging
from pathlib import Path

import apsw

from perdure.domain.errors import RefusedToStart, StorageFailed, StorageFull, Unavailable

_log = logging.getLogger(__name__)

_NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_TROUBLE = (
    apsw.IOError,
    apsw.BusyError,
    apsw.LockedError,
    apsw.CorruptError,
    apsw.NotADBError,
    apsw.CantOpenError,
    apsw.ReadOnlyError,
    apsw.PermissionsError,
    apsw.ProtocolError,
    apsw.NoMemError,
    apsw.AbortError,
)


def translated(error: Exception, connection: apsw.Connection) -> Exception:
    """The error as the callers of a store know it."""
    found = _translated(error, connection)
    if found is not error:
        found.__cause__ = error
    if isinstance(found, Unavailable):
        _log.error("%s: %s: %s", found.error_code, type(error).__name__, error)
    return found


def _translated(error: Exception, connection: apsw.Connection) -> Exception:
    if isinstance(error, apsw.FullError) or (isinstance(error, apsw.IOError) and _no_room(connection)):
        return StorageFull("The disk is full; nothing was written. Free some space and try again.")
    if isinstance(error, _TROUBLE):
        return StorageFailed("The database cannot be used at the moment; nothing was written. The log says why.")
    if isinstance(error, apsw.ConstraintError):
        return AssertionError(str(error))
    return error


def refusal(error: apsw.Error, path: Path) -> RefusedToStart:
    """The one line for a database that cannot be opened."""
    if isinstance(error, apsw.CorruptError | apsw.NotADBError):
        return RefusedToStart(
            f"{path} is damaged or not a database ({error}); it was left as it is. Move it and its -wal and -shm "
            "files away, then put a backup in its place, or start without it to begin anew"
        )
    return RefusedToStart(f"{path} cannot be opened ({error}); check the folder's permissions and free space")


def _no_room(connection: apsw.Connection) -> bool:
    return connection.system_errno in _NO_ROOM
