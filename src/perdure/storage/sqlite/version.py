"""Which SQLite may be trusted with the data.

Versions 3.7.0 to 3.51.2 can corrupt a database when one connection moves the log into the file while another commits
(the WAL-reset fault), which is what a server does all day. The repair was also made in 3.44.6 and 3.50.7. Anything
older than 3.7.0 has no write-ahead log at all.
"""

import apsw

from perdure.domain.errors import RefusedToStart

_REPAIRED = (3, 51, 3)
_BACKPORTS = {(3, 44): 6, (3, 50): 7}
"""Release lines with the repair, and the patch number that brought it."""


def trusted(version: tuple[int, int, int]) -> bool:
    """Whether that SQLite is free of the fault."""
    major, minor, patch = version
    backport = _BACKPORTS.get((major, minor))
    return version >= _REPAIRED or (backport is not None and patch >= backport)


def refuse_faulty(version: str | None = None) -> None:
    """Raise `RefusedToStart` unless SQLite (by default the one in use) may be trusted."""
    found = version or apsw.sqlite_lib_version()
    major, minor, patch = (int(part) for part in found.split(".")[:3])
    if not trusted((major, minor, patch)):
        raise RefusedToStart(
            f"SQLite {found} can corrupt a database in use (its WAL-reset fault); install an apsw that brings "
            "SQLite 3.51.3 or newer: pip install --upgrade apsw"
        )
