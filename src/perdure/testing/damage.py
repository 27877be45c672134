"""Spoilt databases: what a bad sector or a foreign program leaves."""

from contextlib import closing
from pathlib import Path

import apsw

PAGE_BYTES = 4096


def overwrite_page(path: Path, page: int) -> None:
    """Write over one page of a database that nobody has open."""
    with path.open("r+b") as file:
        file.seek((page - 1) * PAGE_BYTES)
        file.write(b"\xa5" * PAGE_BYTES)


def leaves_of(path: Path, table: str) -> list[int]:
    """The numbers of the leaf pages of a table or index, in its order."""
    return _pages_of(path, table, "leaf")


def overflow_of(path: Path, table: str) -> list[int]:
    """The numbers of the pages that hold what does not fit into a leaf; only who reads that very row reads them."""
    return _pages_of(path, table, "overflow")


def _pages_of(path: Path, table: str, kind: str) -> list[int]:
    with closing(apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)) as connection:
        question = "SELECT pageno FROM dbstat WHERE name = ? AND pagetype = ? ORDER BY path"
        return [int(str(page)) for (page,) in connection.execute(question, (table, kind)).fetchall()]
