"""What tests of the commands share that look after a data folder's files."""

import hashlib
import json
import os
import subprocess
from collections.abc import Callable, Generator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import apsw
import psutil

from perdure.storage.sqlite.connection import look, open_writer
from perdure.storage.sqlite.migrate import migrate, shipped
from tests.system.command import ran
from tests.system.server import COMMAND, until
from tests.system.volume import small_volume

MIB = 1024 * 1024
TRIES = 10


def told(ended: subprocess.CompletedProcess[bytes]) -> dict[str, Any]:
    """The object that a command with `--json` has printed."""
    assert ended.returncode in (0, 1), ended
    return json.loads(ended.stdout)


def refused(ended: subprocess.CompletedProcess[bytes], code: int = 1) -> str:
    """The one line of a command that did nothing."""
    assert ended.returncode == code, ended
    assert ended.stdout == b""
    (line,) = ended.stderr.decode().splitlines()
    assert line.startswith("perdure: ")
    return line


def make_database(folder: Path, ballast_mib: int = 0) -> Path:
    """A database without a service, with so much in it that is of no meaning; returns its path."""
    folder.mkdir(mode=0o700, exist_ok=True)
    path = folder / "perdure.db"
    with closing(open_writer(path)) as connection:
        migrate(connection, shipped())
        connection.execute("CREATE TABLE ballast (number INTEGER PRIMARY KEY, filling BLOB)")
        for number in range(ballast_mib):
            connection.execute("INSERT INTO ballast VALUES (?, zeroblob(1048576))", (number,))
    path.chmod(0o600)
    return path


def bound(*words: str) -> subprocess.CompletedProcess[bytes]:
    """A command that has ended, of a user whom modes of files bind, as they do not bind root."""
    powers = "-dac_override,-dac_read_search"
    prefix = [] if os.geteuid() else ["setpriv", f"--bounding-set={powers}", f"--inh-caps={powers}"]
    return subprocess.run([*prefix, str(COMMAND), *words], capture_output=True, timeout=60, check=False)


def asked(path: Path, sql: str) -> list[Any]:
    """Rows of a database that nobody has open; nothing is left beside it."""

    def question(connection: apsw.Connection) -> list[Any]:
        return connection.execute(sql).fetchall()

    return look(path, question)


def digests(folder: Path) -> dict[str, str]:
    """Every file of a folder and what is in it."""
    return {each.name: hashlib.sha256(each.read_bytes()).hexdigest() for each in folder.iterdir() if each.is_file()}


def names(folder: Path) -> set[str]:
    """The names in a folder."""
    return {each.name for each in folder.iterdir()}


def begun(words: list[str]) -> subprocess.Popen[bytes]:
    """A command that runs."""
    return subprocess.Popen([str(COMMAND), *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE)


@contextmanager
def stopped(
    words: list[str], there: Callable[[], bool], again: Callable[[], object]
) -> Generator[subprocess.Popen[bytes]]:
    """A command, stood still at a moment that does not last, so that it may have to be begun `again`. It goes on
    afterwards."""
    for _ in range(TRIES):
        process = begun(words)
        until(lambda process=process: there() or process.poll() is not None or None, f"{words} to be there")
        psutil.Process(process.pid).suspend()
        if process.poll() is None and there():
            break
        if process.poll() is None:
            psutil.Process(process.pid).resume()
        process.communicate(timeout=60)
        again()
    else:
        raise AssertionError(f"{words} was always quicker")
    try:
        yield process
    finally:
        if process.poll() is None:
            psutil.Process(process.pid).resume()
        try:
            process.wait(60)
        finally:
            for stream in (process.stdout, process.stderr):
                assert stream is not None
                stream.close()


def part_of(target: Path) -> Path | None:
    """The unfinished file of a backup to `target`."""
    return next((each for each in target.parent.iterdir() if each.name.startswith(f"{target.name}.")), None)


@contextmanager
def copying(folder: Path, target: Path, least: int) -> Generator[subprocess.Popen[bytes]]:
    """A backup to `target` that stands still, has written so much, and is not done."""

    def there() -> bool:
        part = part_of(target)
        return part is not None and written(part) >= least

    words = ["backup", str(target), "--data", str(folder)]
    with stopped(words, there, lambda: target.unlink(missing_ok=True)) as backup:
        yield backup


def written(path: Path) -> int:
    """The size of a file; -1 if there is none."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return -1


@contextmanager
def small_disk(point: Path, mib: int) -> Generator[Path]:
    """A disk with so much room."""
    with small_volume(point, mib * MIB) as volume:
        yield volume.folder


def findings(folder: Path) -> dict[str, tuple[str, str, str]]:
    """What the doctor finds, by check: level, message, remedy."""
    ended = ran("doctor", "--data", str(folder), "--json")
    report = told(ended)
    problems = sum(each["level"] == "problem" for each in report["findings"])
    assert (ended.stderr, report["problems"], ended.returncode) == (b"", problems, int(problems > 0))
    for each in report["findings"]:
        assert (each["remedy"] is None) == (each["level"] == "ok"), each
    return {each["check"]: (each["level"], each["message"], each["remedy"] or "") for each in report["findings"]}


def orphan_log(folder: Path, database: bytes | None) -> dict[str, str]:
    """Make a log that holds work, and beside it an empty database or none; returns the digests."""
    path = make_database(folder)
    with closing(open_writer(path)) as connection:
        connection.execute("CREATE TABLE accepted (work)")
        log = path.with_name(f"{path.name}-wal").read_bytes()
    assert log
    path.with_name(f"{path.name}-wal").write_bytes(log)
    path.unlink() if database is None else path.write_bytes(database)
    return digests(folder)
