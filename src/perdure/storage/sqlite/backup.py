"""A whole, checked copy of the database while others write to it, and the way back.

The copy is made by SQLite itself within one read transaction: it shows one moment, and no commit makes it begin anew.
The pages of that moment stay in the log until the copy is made, so the log may grow meanwhile; docs/decisions/0009
has the figures.

The connection could write and never does. If the service stops meanwhile, this one is the last to close, and only one
that may write takes the log away with it.
"""

import os
import re
import secrets
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path

import apsw

from perdure.domain.errors import StorageDamaged
from perdure.storage.sqlite import checked, files
from perdure.storage.sqlite.checked import (
    Contents,
    Unfit,
    contents,
    one_state,
    refuse_foreign,
    require_file,
    require_full_check,
    telling,
)
from perdure.storage.sqlite.connection import look, open_beside, open_copy
from perdure.storage.sqlite.files import Progress

STEP_PAGES = 1_024
RESTORING = ".restoring"
"""What the name of a database ends with while it is being restored."""

_ANOTHER = "Make the backup on another disk, or restore an older one; `perdure doctor` tells more."
_OLDER = "Use another backup."
_INSTEAD = "another backup"


@dataclass(frozen=True)
class Backup:
    """A copy that was made and checked."""

    path: Path
    size_bytes: int
    sha256: str
    contents: Contents
    unforced: tuple[Path, ...]
    """Folders on its path in which the name may not survive a power cut."""


def back_up(source: Path, target: Path, told: Progress) -> Backup:
    """Copy the database `source` to the new file `target`.

    Raises `Unfit`, `RefusedToStart`, `StorageDamaged`, `OSError`; then there is no such file.
    """
    require_file(source)
    _refuse_taken(target)
    _refuse_reserved(target, source)
    # A name of its own: where containers share a folder, each may have the same process number.
    part = target.with_name(f"{target.name}.{os.getpid()}.{secrets.token_hex(4)}.part")
    files.make_private(part)
    try:
        held = _copied(source, part, told)
        files.force(part)
        _compare(part, source, held)
        size, digest = part.stat().st_size, files.digest(part)
        forced = files.publish(part, target)
    except FileExistsError:
        raise _taken(target) from None
    finally:
        part.unlink(missing_ok=True)
    return Backup(target, size, digest, held, () if forced else (target.parent,))


def left_over(target: Path) -> list[Path]:
    """Unfinished files of backups to `target` that were killed. The caller is not making one."""
    name = re.compile(re.escape(target.name) + r"\.(\d+)\.[0-9a-f]+\.part")
    with suppress(OSError):
        found = ((each, name.fullmatch(each.name)) for each in target.parent.iterdir())
        return sorted(each for each, match in found if match and not _lives(int(match[1])))
    return []


def refuse_unusable(source: Path) -> None:
    """Raise `Unfit` or `StorageDamaged` for what can be told at once not to be a backup. Leaves nothing beside it."""
    _refuse_live(source)
    with telling(source, _OLDER):
        look(source, lambda connection: refuse_foreign(connection, source, _INSTEAD))


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
        digest = files.digest(part)
        above = target.parent.parent
        forced = {above: files.names_forced(above)}  # the folder may be new as well
        forced[target.parent] = files.publish(part, target)
    finally:
        part.unlink(missing_ok=True)
    return Backup(target, size, digest, held, tuple(folder for folder, done in forced.items() if not done))


def _copied(source: Path, part: Path, told: Progress) -> Contents:
    """Fill `part` with the database as it is now; returns what it holds."""
    with telling(source, "`perdure doctor` tells more."), closing(open_beside(source)) as live, one_state(live):
        refuse_foreign(live, source)
        held = contents(live)
        page_bytes, pages = int(str(live.pragma("page_size"))), int(str(live.pragma("page_count")))
        if files.room(part.parent) < pages * page_bytes:
            raise _too_small(part.parent, pages * page_bytes)
        with closing(open_copy(part)) as copy:
            _fill(copy, live, page_bytes, part, told)
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
    refuse_foreign(connection, path, _INSTEAD)
    require_full_check(connection, path, remedy)
    return contents(connection)


def outlived(database: Path, before: float) -> int:
    """How many responses of a database that nobody has open only their age removes, and had ended by then."""
    return look(database, lambda connection: checked.outlived(connection, before))


def _refuse_taken(target: Path) -> None:
    if target.is_dir() and not target.is_symlink():
        raise Unfit(f"{target} is a folder; name a new file, in it or elsewhere.")
    if os.path.lexists(target):
        raise _taken(target)
    if not target.parent.is_dir():
        raise Unfit(f"There is no folder {target.parent}; make it, or name another file.")


def _refuse_reserved(target: Path, source: Path) -> None:
    """SQLite and a restore write over such names, and remove them."""
    # Some file systems do not tell capital letters from small ones.
    if target.name.casefold().startswith(source.name.casefold()) and target.parent.samefile(source.parent):
        raise Unfit(f"{target} is a name of the database's own files; name another file.")


def _refuse_live(source: Path) -> None:
    """A database is not whole without its log, which lies beside the file itself and not beside a link to it."""
    if not source.is_file():
        raise Unfit(f"There is no file {source}; name a backup.")
    if source.stat().st_nlink > 1:
        raise Unfit(
            f"{source} has another name (a hard link), and if that is a database in use, its log lies there. Make a "
            "backup of that one with `perdure backup`; if it is a backup, copy the file and restore the copy."
        )
    real = Path(os.path.realpath(source))
    log = real.with_name(real.name + "-wal")
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
    """Whether another process has that number; our own is what the one before us had, as in a container."""
    if pid == os.getpid():
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):
        return True
    return True
