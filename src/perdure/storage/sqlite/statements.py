"""SQL lives in `.sql` files, as blocks with a name; this reads them.

A block begins with `-- name: some_name` and ends before the next one. Lines before the first block are for people.
Comments stay in the text: SQLite skips them, and they then stand in its traces too.
"""

import re
from importlib.resources import files

_HEADER = re.compile(r"^-- name: ([a-z_]+)$", re.MULTILINE)


def blocks(text: str) -> dict[str, str]:
    """The blocks of one file by name. Raises `ValueError` for a name used twice or a block without a statement."""
    _, *parts = _HEADER.split(text)
    found: dict[str, str] = {}
    for name, body in zip(parts[::2], parts[1::2], strict=True):
        if name in found:
            raise ValueError(f"two blocks are named {name}")
        if not _statement(body):
            raise ValueError(f"the block {name} is empty")
        found[name] = body.strip()
    return found


def load(name: str) -> dict[str, str]:
    """The blocks of `sql/<name>.sql`."""
    return blocks(files("perdure.storage.sqlite").joinpath("sql", f"{name}.sql").read_text("utf-8"))


def _statement(body: str) -> str:
    return re.sub(r"--.*", "", body).strip()
