"""What the commands have in common that look after the files: the folder, progress, and failures as one line."""

import os
import re
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Self

from msgspec import structs

from perdure import settings
from perdure.ambient import file_system
from perdure.ambient.folder import DataFolder
from perdure.cli.contact import Folder
from perdure.cli.failures import CommandFailed
from perdure.cli.signals import listen
from perdure.domain.errors import StorageDamaged
from perdure.storage.sqlite.checked import Unfit

_COMMAND = re.compile(r"`perdure ([^`]+)`")


@contextmanager
def careful(as_called: Callable[[str], str] = str) -> Generator[None]:
    """Files that this makes are for nobody else, a signal ends it in order, and what goes wrong is one line, with the
    commands in it `as_called`."""
    os.umask(0o077)
    listen()
    try:
        yield
    except Unfit as error:
        raise CommandFailed(as_called(str(error))) from None
    except StorageDamaged as error:
        raise StorageDamaged(as_called(error.message)) from error
    except OSError as error:
        where = f" ({error.filename})" if error.filename else ""
        raise CommandFailed(f"The command failed: {error.strerror or error}{where}.") from None


def chosen(data: str | None) -> settings.Settings:
    """The settings, with the data folder that was named."""
    found = settings.load({"data": data})
    return structs.replace(found, data=str(absolute(found.data)))


def commands_on(data: str | None) -> Callable[[str], str]:
    """Makes the commands that a text names ones that one can paste: by the name of this one, on the same folder."""
    folder = Folder(data)

    def as_called(text: str) -> str:
        return _COMMAND.sub(lambda found: folder.command(found[1]), text)

    return as_called


def held(found: settings.Settings, **words: str) -> DataFolder:
    """The data folder, made if it is missing, and held as a service would hold it."""
    file_system.refuse_unsafe(found.folder, allow_network=found.allow_network_folder)
    return DataFolder(found.folder, **words)


class Bar:
    """How far it is, on a terminal only, in one line that is wiped at the end."""

    def __init__(self, doing: str) -> None:
        self._doing = doing
        self._shown = ""

    def __call__(self, done: int, whole: int) -> None:
        """So much of so much."""
        share = done * 100 // whole if whole else 100
        self._show(f"{self._doing}: {share:3} % of {size(whole)}")

    def __enter__(self) -> Self:
        self._show(f"{self._doing} …")
        return self

    def __exit__(self, *exc: object) -> None:
        self._show("")

    def _show(self, line: str) -> None:
        if line != self._shown and sys.stderr.isatty():
            with suppress(OSError, UnicodeEncodeError):  # nobody looks
                print(f"\r{line.ljust(len(self._shown))}", end="" if line else "\r", file=sys.stderr, flush=True)
            self._shown = line


def size(count: int) -> str:
    """A number of bytes, for people."""
    value = float(count)
    for unit in ("bytes", "kB", "MB"):
        if value < 1000:
            return f"{value:.0f} {unit}" if unit == "bytes" else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:.2f} GB"


def absolute(path: str) -> Path:
    """A path as it is told: whole, without a way back in it. The last name stays as it is, also that of a link."""
    found = Path(path).absolute()
    if ".." not in found.parts:
        return found
    return found.resolve() if found.name == ".." else found.parent.resolve() / found.name
