"""What can be said of a database file without changing it, whether a service has it open or not.

A service that runs is looked at over a connection that takes part in its locks. What a crash has left is looked at
over one that cannot write, so that its log stays: it is a finding.
"""

import hashlib
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import apsw

from perdure.domain.errors import StorageDamaged
from perdure.domain.finding import Finding, note, ok, problem
from perdure.storage.sqlite.checked import Unfit, faults, one_state, outlived, telling
from perdure.storage.sqlite.compact import needed_bytes
from perdure.storage.sqlite.connection import LOG_SIZE_MAX_BYTES, look, open_beside
from perdure.storage.sqlite.migrate import changed, objection, shipped
from perdure.storage.sqlite.outside import irregular, orphaned_log
from perdure.storage.sqlite.query import certain, row, rows
from perdure.storage.sqlite.statements import load
from perdure.storage.sqlite.version import trusted

COMPACT_MIN_BYTES = 16 * 1024 * 1024
COMPACT_MIN_SHARE = 0.25
"""Free pages below either are not worth the work: they are filled again."""
OVERDUE_SECONDS = 600
DAY_SECONDS = 24 * 3600

_SHOWN = 3
_RESTORE = (
    "Stop the service, move the data folder away and keep it, then bring a backup back with `perdure restore FILE`."
)
_sql = load("doctor")


def sqlite_finding(version: str | None = None) -> Finding:
    """Whether the SQLite in use may be trusted with a database."""
    found = version or apsw.sqlite_lib_version()
    major, minor, patch = (int(part) for part in found.split(".")[:3])
    if trusted((major, minor, patch)):
        return ok("sqlite", f"SQLite {found} is free of the WAL-reset fault")
    return problem(
        "sqlite",
        f"SQLite {found} can corrupt a database in use (its WAL-reset fault); the service does not start with it",
        "Install an apsw that brings SQLite 3.51.3 or newer: pip install --upgrade apsw",
    )


@dataclass(frozen=True)
class Circumstances:
    """What is known of a database from elsewhere. Without a retention there is no age at which a response goes."""

    token: str | None
    retention_seconds: float | None
    served: bool
    lost_log: Finding | None = None


def barred(path: Path, *, served: bool) -> Finding | None:
    """Why a database may not be opened, not even to look at it. Opens nothing.

    A database that is gone or empty while it is served is another matter: the service still has it open.
    """
    if not served and (found := orphaned_log(path)):
        what, mark, remedy = found.partition("; nothing was touched")
        return problem("database", what + mark, f"{remedy.removeprefix('. ')}.")
    for each in (path, *(path.with_name(path.name + ending) for ending in ("-wal", "-shm"))):
        if found := irregular(each):
            what, _, remedy = found.rpartition("; ")
            return problem("database", what, f"{remedy[:1].upper()}{remedy[1:]}.")
    return None


def examine(path: Path, known: Circumstances) -> list[Finding]:
    """Everything that there is to say of a database. Trouble of the file is a finding too."""
    if found := barred(path, served=known.served):
        return [found]
    if not path.is_file():
        return [note("database", f"there is no database {path.name} yet", "`perdure serve` makes it.")]
    findings = [known.lost_log or _log(path, known.served)]
    try:
        with telling(path, _RESTORE):
            findings += _asked(path, lambda connection: list(_findings(connection, path, known)), known)
    except StorageDamaged as error:
        findings.append(problem("integrity", error.message.removesuffix(f" {_RESTORE}"), _RESTORE))
    except Unfit as error:
        findings.append(
            problem(
                "database",
                str(error).removesuffix(f" {_RESTORE}"),
                "Check its permissions, and end other programs that have it open.",
            )
        )
    return findings


def _asked(path: Path, question: Callable[[apsw.Connection], list[Finding]], known: Circumstances) -> list[Finding]:
    log = path.with_name(path.name + "-wal")
    if known.lost_log or (not known.served and log.exists() and log.stat().st_size):
        return look(path, question)
    with closing(open_beside(path)) as connection:
        return question(connection)


def _findings(connection: apsw.Connection, path: Path, known: Circumstances) -> Iterator[Finding]:
    with one_state(connection):
        if found := objection(connection, path, shipped()):
            yield problem("database", found.what, f"{found.remedy}.")
        else:
            yield from _of_ours(connection, known)


def _of_ours(connection: apsw.Connection, known: Circumstances) -> Iterator[Finding]:
    if known.lost_log is None:  # else it is read as if there had never been one
        yield _journal_mode(connection)
    damage: list[str] = []
    try:
        damage = faults(connection)
        if damage:
            yield problem("integrity", f"the database is damaged: {'; '.join(damage)}", _RESTORE)
        else:
            yield ok("integrity", "every page, index and reference is as it must be")
        yield _schema(connection)
        yield from _kept(connection, known)
        yield _free_pages(connection)
    except (apsw.CorruptError, apsw.NotADBError) as error:
        if not damage:  # else it is told, and with more words
            yield problem("integrity", f"the database is damaged: {error}", _RESTORE)


def _kept(connection: apsw.Connection, known: Circumstances) -> Iterator[Finding]:
    yield _tasks(connection)
    yield _queue(connection)
    yield _journals(connection)
    yield _retention(connection, known)
    yield from _models(connection)
    if known.token is not None:
        yield _owner(connection, known.token)


def _schema(connection: apsw.Connection) -> Finding:
    schema, known = connection.pragma("user_version"), len(shipped())
    if told := changed(connection, shipped()):
        more = f" and {len(told) - _SHOWN} more" if len(told) > _SHOWN else ""
        return problem("schema", f"another program has changed it: {', '.join(told[:_SHOWN])}{more}", _RESTORE)
    if schema < known:
        return note("schema", f"schema {schema}; this program has {known}", "The next `perdure serve` brings it up.")
    return ok("schema", f"schema {schema}, that of this program")


def _journal_mode(connection: apsw.Connection) -> Finding:
    page_bytes = connection.pragma("page_size")
    if (mode := connection.pragma("journal_mode")) != "wal":
        return note("journal", f"journal mode {mode}, pages of {page_bytes} bytes", "`perdure serve` sets it to wal.")
    return ok("journal", f"journal mode wal, pages of {page_bytes} bytes")


def _tasks(connection: apsw.Connection) -> Finding:
    states = ", ".join(f"{count} {status}" for status, count in rows(connection, _sql["unfinished"])) or "none"
    return ok("tasks", f"finished: {certain(connection, _sql['finished'])}; unfinished: {states}")


def _queue(connection: apsw.Connection) -> Finding:
    counted, kept = row(connection, _sql["queue"]) or (0, 0)
    if counted == kept:
        return ok("queue", f"{kept} queued, as counted")
    return problem(
        "queue",
        f"{kept} are queued and {counted} are counted, so more or fewer are let in than should be",
        "Restart the service: it counts anew.",
    )


def _journals(connection: apsw.Connection) -> Finding:
    broken = [f"resp_{ident}" for (ident,) in rows(connection, _sql["journals"])]
    if not broken:
        return ok("journals", "events are numbered without a gap, and each finished response has one end")
    more = f" and {len(broken) - _SHOWN} more" if len(broken) > _SHOWN else ""
    return problem("journals", f"events are missing, or the end is, of {', '.join(broken[:_SHOWN])}{more}", _RESTORE)


def _retention(connection: apsw.Connection, known: Circumstances) -> Finding:
    before = time.time() - (OVERDUE_SECONDS if known.served else 0)
    due = certain(connection, _sql["due"], {"before": int(before * 1_000_000)})
    age = known.retention_seconds
    aged = 0 if age is None else outlived(connection, before - age)
    if known.served and (due or aged):
        return note(
            "retention",
            f"{due + aged} finished and due to be removed, by the retention_days that this command was given",
            "A running service removes them within minutes.",
        )
    if known.served:
        return ok("retention", f"nothing waits to be removed for longer than {OVERDUE_SECONDS // 60} minutes")
    if age is not None and aged:
        return note(
            "retention",
            f"{aged} finished more than {age / DAY_SECONDS:g} days ago, and the next start removes them",
            "PERDURE_RETENTION_DAYS=forever keeps them.",
        )
    if due:
        message = f"deleted, or not to be stored, and still there: {due}"
        return note("retention", message, "The next start removes that.")
    return ok("retention", "nothing waits to be removed")


def _models(connection: apsw.Connection) -> Iterator[Finding]:
    for name, file, size_bytes in rows(connection, _sql["models"]):
        try:
            size = Path(file).stat().st_size
        except OSError:
            size = None
        if size == size_bytes:
            yield ok("models", f"{name} is where it was")
        else:
            how = "is gone" if size is None else f"has {size:,} bytes in place of {size_bytes:,}"
            yield note(
                "models",
                f"the file of {name}, {file}, {how}",
                "Bring it back if unfinished responses need it; they wait for it, or end by their on_restart.",
            )


def _owner(connection: apsw.Connection, token: str) -> Finding:
    digest = hashlib.sha256(token.encode()).digest()
    if certain(connection, _sql["owner"], {"token_hash": digest}):
        return ok("token", "the owner's token is known to the database")
    return note(
        "token", "the owner's token is not the one in the database", "The next `perdure serve` makes a new one."
    )


def _free_pages(connection: apsw.Connection) -> Finding:
    page_bytes, pages, free = (
        int(str(connection.pragma(name))) for name in ("page_size", "page_count", "freelist_count")
    )
    told = f"{free * page_bytes:,} of {pages * page_bytes:,} bytes are free pages"
    if free * page_bytes < COMPACT_MIN_BYTES or free < pages * COMPACT_MIN_SHARE:
        return ok("space", f"{told}; new responses fill them")
    return note(
        "space",
        told,
        "New responses fill them. To give them back to the disk: stop the service, then `perdure compact` (for that "
        f"{needed_bytes(connection):,} bytes have to be free for a while).",
    )


def _log(path: Path, served: bool) -> Finding:
    """By its name and size alone."""
    try:
        size = path.with_name(path.name + "-wal").stat().st_size
    except OSError:
        return ok("log", "no log lies beside the database")
    if not served and size:
        return note(
            "log",
            f"{path.name}-wal ({size:,} bytes) was left by a kill or a stop that ran out of time; nothing is lost",
            f"The next `perdure serve` reads it. Until then never move or copy {path.name} without it.",
        )
    if size > LOG_SIZE_MAX_BYTES:
        return note(
            "log",
            f"the log has {size:,} bytes, more than its limit of {LOG_SIZE_MAX_BYTES:,}",
            "A reader that stays, such as a backup or a foreign program, holds it; it is cut once that one has left.",
        )
    return ok("log", f"the log has {size:,} bytes, within its limit of {LOG_SIZE_MAX_BYTES:,}")
