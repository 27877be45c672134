"""What the store holds of a task at a kill, read from the file itself."""

import shutil
import tempfile
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

import apsw

from perdure.engine.record import UNCLAIMED
from perdure.storage.sqlite.tokens import unpacked
from tests.system.server import TERMINAL

DATABASE = "perdure.db"
LOG = "perdure.db-wal"
CRASHED = "the model's process ended"
_BUSY_MILLISECONDS = 10_000

_TASK = """
SELECT id, status, next_seq, tokens_kept, tokens_mark, claimed_at, boot,
    (SELECT count(*) FROM task_attempts AS a WHERE a.task_id = t.id AND a.note = ?)
FROM tasks AS t WHERE ident = ?
"""
_TOKENS = "SELECT tokens FROM task_events WHERE task_id = ? AND tokens IS NOT NULL ORDER BY seq"


@dataclass(frozen=True)
class Row:
    """A task. `mark` is how many tokens were kept when it was last begun, `tokens` are the kept ones."""

    status: str
    next_seq: int
    kept: int
    mark: int
    taken_up: bool
    boot: str | None
    crashes: int
    tokens: tuple[int, ...]

    @property
    def ended(self) -> bool:
        """Whether it has come to its end."""
        return self.status in TERMINAL

    @property
    def phase(self) -> str:
        """What was done for it. `waiting`: settled by a restart and not taken up since. `again`: what was kept before
        is read again."""
        if self.status != "running":
            return "ended" if self.ended else self.status
        if self.kept > self.mark:
            return "text"
        if not self.taken_up:
            return "waiting"
        return "again" if self.kept else "prompt"


@dataclass(frozen=True)
class Rows:
    """The tasks by response id, and the start that has last begun to settle what was left."""

    boot: str
    tasks: Mapping[str, Row]


def of_the_living(data: Path, responses: Collection[str]) -> Rows:
    """The rows while the service runs."""
    connection = apsw.Connection(str(data / DATABASE), flags=apsw.SQLITE_OPEN_READONLY)
    return _read(connection, responses)


def of_the_dead(data: Path, responses: Collection[str]) -> Rows:
    """The rows after a kill, read from a copy: whoever opens the file itself would change what the kill has left."""
    with tempfile.TemporaryDirectory() as folder:
        for name in (DATABASE, LOG):
            if (data / name).exists():
                shutil.copyfile(data / name, Path(folder) / name)
        return _read(apsw.Connection(str(Path(folder) / DATABASE)), responses)


def _read(connection: apsw.Connection, responses: Collection[str]) -> Rows:
    try:
        connection.set_busy_timeout(_BUSY_MILLISECONDS)
        connection.execute("BEGIN")  # all rows are of one moment
        boot = next(connection.execute("SELECT boot_id FROM service_config"))[0]
        return Rows(str(boot), {each: _row(connection, each) for each in responses})
    finally:
        connection.close()


def _row(connection: apsw.Connection, response: str) -> Row:
    found = next(connection.execute(_TASK, (CRASHED, response.removeprefix("resp_"))), None)
    assert found is not None, f"{response} was accepted and is not in the store"
    number, status, next_seq, kept, mark, claimed_at, boot, crashes = found
    tokens = sum((unpacked(blob) for (blob,) in connection.execute(_TOKENS, (number,))), ())
    return Row(status, next_seq, kept, mark, claimed_at != UNCLAIMED, boot, crashes, tokens)
