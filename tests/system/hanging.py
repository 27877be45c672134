"""A service that hangs at a named place: `hanging.py PLACE FOLDER perdure serve ...`, with one thing changed.

Where its disk hangs, the file `reached` in the folder says that it does, and whoever opens the FIFO `go` there lets
it go on.
"""

import asyncio
import errno
import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import apsw
import uvicorn

from perdure.cli.main import main
from perdure.engine.engine import Engine
from perdure.runtime.llamacpp import host
from perdure.runtime.llamacpp.supervisor import LlamaRuntime
from perdure.storage.sqlite import upkeep
from perdure.storage.sqlite.store import SqliteStore
from perdure.storage.sqlite.upkeep import Checkpoint
from perdure.testing.slow_disk import SlowDisk

SHORT_MINUTE_SECONDS = 0.05


def hanging(place: Callable[[Path], None], folder: Path) -> list[str]:
    """What to put before the command of a server that is to hang at this place."""
    folder.mkdir(exist_ok=True)
    os.mkfifo(folder / "go")
    return [sys.executable, __file__, place.__name__, str(folder)]


def let_go(folder: Path) -> None:
    """Have its disk go on."""
    (folder / "go").open("w").close()


def there(file: Path) -> bool | None:
    """Whether there is such a file, as `until` asks."""
    return file.exists() or None


async def for_ever(*_: Any, **__: Any) -> None:
    """Never come back."""
    await asyncio.Event().wait()


def at_the_callers(_folder: Path) -> None:
    """Whoever is connected is never seen off."""
    uvicorn.Server.shutdown = for_ever


def at_the_reading(_folder: Path) -> None:
    """The model's file is so large that its digest is not there before the stop."""

    def read(_path: Path, given_up: threading.Event) -> str:
        given_up.wait()
        raise OSError(errno.ECANCELED, "the service is stopping")

    host.sha256_of = read


def at_the_models(_folder: Path) -> None:
    """The processes that draw tokens are never ended."""
    LlamaRuntime.close = for_ever


def at_the_database(folder: Path) -> None:
    """The disk hangs when the last connection moves the log into the file."""
    disk, close = _slow_disk(folder), SqliteStore.close

    async def hang(self: SqliteStore) -> None:
        disk.hold(".db")
        await close(self)

    SqliteStore.close = hang


def in_the_event_loop(_folder: Path) -> None:
    """The closing of the database does not even let the event loop go on."""

    async def hang(self: SqliteStore) -> None:
        time.sleep(3_600)  # noqa: ASYNC251 -- see above

    SqliteStore.close = hang


def at_the_opening(folder: Path) -> None:
    """The disk hangs at the first commit: the schema's."""
    _slow_disk(folder).hold(".db-wal")


def in_a_checkpoint(folder: Path) -> None:
    """Minutes are short. Once there is a file `armed`, the next checkpoint hangs until it is interrupted. The file
    `whole` is made whenever one has found everything moved, `interrupted` when one was cut short."""
    disk, run, interrupt = _slow_disk(folder), Checkpoint.run, Checkpoint.interrupt
    upkeep.UPKEEP_SECONDS = SHORT_MINUTE_SECONDS

    def armed(self: Checkpoint) -> tuple[int, int, int] | None:
        if (folder / "armed").exists():
            disk.hold(".db")
        answer = run(self)
        disk.let_go()
        if answer is None:
            (folder / "interrupted").touch()
        elif answer[1] == answer[2]:
            (folder / "whole").touch()
        return answer

    def heeded(self: Checkpoint) -> None:
        interrupt(self)
        disk.let_go()

    Checkpoint.run, Checkpoint.interrupt = armed, heeded


def at_a_failing_start(_folder: Path) -> None:
    """A fault of the program in the middle of the start, when threads and children are there."""

    async def fail(self: Engine) -> NoReturn:
        raise RuntimeError("a fault of the program")

    Engine.start = fail


PLACES: dict[str, Callable[[Path], None]] = {
    place.__name__: place
    for place in (
        at_the_callers,
        at_the_reading,
        at_the_models,
        at_the_database,
        in_the_event_loop,
        at_the_opening,
        in_a_checkpoint,
        at_a_failing_start,
    )
}


def _slow_disk(folder: Path) -> SlowDisk:
    disk = SlowDisk("hanging")
    apsw.set_default_vfs("hanging")

    def watch() -> None:
        disk.reached.wait()
        (folder / "reached").touch()
        (folder / "go").open().close()
        disk.let_go()

    threading.Thread(target=watch, daemon=True).start()
    return disk


if __name__ == "__main__":
    PLACES[sys.argv[1]](Path(sys.argv[2]))
    sys.argv[:] = sys.argv[3:]
    main()
