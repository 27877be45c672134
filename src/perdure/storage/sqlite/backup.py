"""A whole, checked copy of the database while others write to it, and the way back.

The copy is made by SQLite itself within one read transaction: it shows one moment, and no commit makes it begin anew.
The pages of that moment stay in the log until the copy is made, so the log may grow meanwhile; docs/decisions/0009
has the figures.

The connection could write and never does. If the service stops meanwhile, this one is the last to close, and only one
that may write takes the log away with it.
"""

import os
import re
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path

import apsw

from perdure.domain.errors import StorageDamaged
from perdure.storage.sqlite import files
from perdure.storage.sqlite.checked import Contents, Unfit, contents, refuse_damaged, refuse_foreign, telling
from perdure.storage.sqlite.connection import look, open_beside, open_copy, sync_folder
from perdure.storage.sqlite.files import Progress
from perdure.storage.sqlite.query import rows
from perdure.storage.sqlite.statements import load

STEP_PAGES = 1_024
RESTORING = ".restoring"
"""What the name of a database ends with while it is being restored."""

_sql = load("care")
_BEGIN, _END = _sql["begin"], _sql["end"]
_ANOTHER = "Make the backup on another disk, or restore an older one; `perdure doctor` tells more."
_OLDER = "Use another backup."


@dataclass(frozen=True)
class Backup:
    """A copy that was made and checked."""

    path: Path
    size_bytes: int
    sha256: str
    contents: Contents


def back_up(source: Path, target: Path, told: Progress) -> Backup:
    """Copy the database `source` to the new file `target`.

    Raises `Unfit`, `StorageDamaged`, `OSError`; then there is no such file.
    """
    _refuse_taken(target)
    part = target.with_name(f"{target.name}.{os.getpid()}.part")
    files.make_private(part)
    try:
        held = _copied(source, part, told)
        files.force(part)
        _compare(part, source, held)
        made = Backup(target, part.stat().st_size, files.digest(part), held)
        files.publish(part, target)
    except FileExistsError:
        raise _taken(target) from None
    finally:
        part.unlink(missing_ok=True)
    return made


def left_over(target: Path) -> list[Path]:
    """Unfinished files of backups to `target` that were killed."""
    name = re.compile(re.escape(target.name) + r"\.(\d+)\.part")
    with suppress(OSError):
        found = ((each, name.fullmatch(each.name)) for each in target.parent.iterdir())
        return sorted(each for each, match in found if match and not _lives(int(match[1])))
    return []


def refuse_unusable(source: Path) -> None:
    """Raise `Unfit` or `StorageDamaged` for what can be told at once not to be a backup. Leaves nothing beside it."""
    _refuse_live(source)
    with telling(source, _OLDER):
        look(source, lambda connection: refuse_foreign(connection, source))


def restore(source: Path, target: Path, told: Progress) -> Backup:
    """Make the backup `source` the database `target`, where there must be none. The caller holds the folder's lock.

    Raises `Unfit`, `StorageDamaged`, `OSError`; then there is no database there, as before.
    """
    part = target.with_name(target.name + RESTORING)
    part.unlink(missing_ok=True)  # of a restore that was killed
    if files.room(target.parent) < (size := source.stat().st_size):
        raise _too_small(target.parent, size)
    files.make_private(part)
    try:
        files.copy(source, part, told)
        files.force(part)
        with telling(source, _OLDER):
            held = look(part, lambda connection: _sound(connection, source, _OLDER))
        made = Backup(target, part.stat().st_size, files.digest(part), held)
        files.publish(part, target)
    finally:
        part.unlink(missing_ok=True)
    sync_folder(target.parent.parent)  # the folder may be new as well
    return made


def _copied(source: Path, part: Path, told: Progress) -> Contents:
    """Fill `part` with the database as it is now; returns what it holds."""
    with telling(source, "`perdure doctor` tells more."), closing(open_beside(source)) as live:
        rows(live, _BEGIN)
        refuse_foreign(live, source)
        held = contents(live)
        page_bytes, pages = int(str(live.pragma("page_size"))), int(str(live.pragma("page_count")))
        if files.room(part.parent) < pages * page_bytes:
            raise _too_small(part.parent, pages * page_bytes)
        with closing(open_copy(part)) as copy:
            _fill(copy, live, page_bytes, part, told)
        rows(live, _END)
    return held


def _fill(copy: apsw.Connection, live: apsw.Connection, page_bytes: int, part: Path, told: Progress) -> None:
    try:
        with copy.backup("main", live, "main") as backup:
            while not backup.done:
                backup.step(STEP_PAGES)
                told((backup.page_count - backup.remaining) * page_bytes, backup.page_count * page_bytes)
    except apsw.FullError:
        raise Unfit(f"The disk of {part.parent} is full; no backup was made. Free some space there.") from None
    except (apsw.IOError, apsw.ReadOnlyError) as error:
        raise Unfit(
            f"The copy in {part.parent} cannot be made ({error}: {os.strerror(copy.system_errno)}). {_ANOTHER}"
        ) from None


def _compare(part: Path, source: Path, held: Contents) -> None:
    """Raise `StorageDamaged` unless the copy is whole and holds the same."""
    try:
        with telling(part, _ANOTHER):
            found = look(part, lambda connection: _sound(connection, part, _ANOTHER))
    except StorageDamaged as error:
        raise StorageDamaged(
            f"The copy of {source} is not whole, so the database is damaged, or the disk of {part.parent} is; no "
            f"backup was made. `perdure doctor` tells which. SQLite says: {error.__cause__ or error.message}"
        ) from None
    if found != held:
        raise StorageDamaged(f"The copy is not what was copied ({found} in place of {held}). {_ANOTHER}")


def _sound(connection: apsw.Connection, path: Path, remedy: str) -> Contents:
    refuse_foreign(connection, path)
    refuse_damaged(connection, path, remedy)
    return contents(connection)


def _refuse_taken(target: Path) -> None:
    if os.path.lexists(target):
        raise _taken(target)
    if not target.parent.is_dir():
        raise Unfit(f"There is no folder {target.parent}; make it, or name another file.")


def _refuse_live(source: Path) -> None:
    """A database that a log stands beside is not whole without it."""
    if not source.is_file():
        raise Unfit(f"There is no file {source}; name a backup.")
    log = source.with_name(source.name + "-wal")
    if log.exists() and log.stat().st_size:
        raise Unfit(f"{source} is in use, or was when its machine stopped; `perdure backup` makes a backup of it.")


def _taken(target: Path) -> Unfit:
    return Unfit(f"{target} exists, and a backup never takes the place of a file; name a new one.")


def _too_small(folder: Path, needed: int) -> Unfit:
    return Unfit(
        f"{folder} has room for {files.room(folder):,} bytes and {needed:,} are needed; nothing was written. Free "
        "some space there, or choose another disk."
    )


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):
        return True
    return True
