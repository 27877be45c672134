"""What SQLite's errors mean to a caller.

Trouble of the disk or of the file becomes `StorageFull`, `StorageFailed` or `StorageDamaged`. A violated constraint
is a fault of this program and becomes an assertion. Everything else passes as it is. Who is told of them is the
matter of `trouble`.
"""

import errno
from pathlib import Path

import apsw

from perdure.domain.errors import PerdureError, RefusedToStart, StorageDamaged, StorageFailed, StorageFull

_NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_DAMAGE = (apsw.CorruptError, apsw.NotADBError)
_TROUBLE = (
    apsw.IOError,
    apsw.BusyError,
    apsw.LockedError,
    apsw.CantOpenError,
    apsw.ReadOnlyError,
    apsw.PermissionsError,
    apsw.ProtocolError,
    apsw.NoMemError,
    apsw.AbortError,
)


def is_damage(error: BaseException) -> bool:
    """Whether the file is not whole. Nothing may be written from then on."""
    return isinstance(error, (*_DAMAGE, StorageDamaged))


def translated(error: Exception, connection: apsw.Connection) -> Exception:
    """The error of a write as the callers of a store know it."""
    found = _translated(error, connection)
    if found is not error:
        found.__cause__ = error
    return found


def unread(error: Exception, connection: apsw.Connection) -> Exception:
    """The error of a read as the callers of a store know it: whatever refused it, it failed, and was no write."""
    found = translated(error, connection)
    if is_damage(found) or not isinstance(found, (StorageFull, StorageFailed)):
        return found
    failure = StorageFailed("The database could not be read. Try again; the log says why.")
    failure.__cause__ = error
    return failure


def full(error: BaseException, connection: apsw.Connection) -> bool:
    """Whether the disk has no room. SQLite says so of writes; for the rest, ask before the connection is closed."""
    refused = isinstance(error, (apsw.IOError, apsw.CantOpenError)) and _no_room(connection)
    return isinstance(error, apsw.FullError) or refused


def _translated(error: Exception, connection: apsw.Connection) -> Exception:
    if isinstance(error, apsw.FullError) or (isinstance(error, apsw.IOError) and _no_room(connection)):
        return StorageFull(
            "The disk is full, or the database has its largest size; nothing was written. Free some space, and try "
            "again."
        )
    if isinstance(error, _DAMAGE):
        return damaged()
    if isinstance(error, _TROUBLE):
        return failed()
    if isinstance(error, apsw.ConstraintError):
        return AssertionError(str(error))
    return error


def failed() -> StorageFailed:
    """What a caller is told whom the disk or the database refuses."""
    return StorageFailed("The database cannot be used at the moment; nothing was written. The log says why.")


def damaged() -> StorageDamaged:
    """What a caller is told who meets the damage; where the file lies is for the log."""
    return StorageDamaged("The database is damaged. The log names the file and the remedy.")


def refusal(error: apsw.Error, path: Path) -> PerdureError:
    """The one line for a database that cannot be opened."""
    if isinstance(error, _DAMAGE):
        return damaged_at_start(path, str(error))
    if isinstance(error, (apsw.BusyError, apsw.LockedError)):
        return RefusedToStart(
            f"{path} cannot be opened ({error}): another program holds it locked; end that one, then start again"
        )
    if isinstance(error, apsw.FullError):
        return RefusedToStart(f"{path} cannot be opened ({error}): the disk is full; free some space on it")
    return RefusedToStart(f"{path} cannot be opened ({error}); check the folder's permissions and free space")


def damaged_at_start(path: Path, found: str) -> StorageDamaged:
    """The one line for a database that is not whole. `found` is what SQLite says of it."""
    return StorageDamaged(
        f"{path} is damaged or not a database ({found}); it was left as it is. `perdure doctor` says more. Move the "
        "whole folder away and keep it; `perdure restore FILE` then makes it anew from a backup, and a start without "
        "one begins from nothing"
    )


def _no_room(connection: apsw.Connection) -> bool:
    return connection.system_errno in _NO_ROOM
