"""A small disk of one's own, which a test can fill and empty."""

import errno
import os
import subprocess
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

PIECES_BYTES = (1024 * 1024, 4096, 1)


class Volume:
    """The folder where it is mounted, and what fills it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._filler = folder / "filler"

    def fill(self) -> None:
        """Take all room that is left, to the last byte."""
        descriptor = os.open(self._filler, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        try:
            for size in PIECES_BYTES:
                with suppress(_Full):
                    while True:
                        _write(descriptor, size)
        finally:
            os.close(descriptor)

    def free(self) -> None:
        """Give it back."""
        self._filler.unlink(missing_ok=True)


class _Full(Exception):
    pass


def _write(descriptor: int, size: int) -> None:
    try:
        os.write(descriptor, bytes(size))
    except OSError as error:
        if error.errno == errno.ENOSPC:
            raise _Full from None
        raise


@contextmanager
def small_volume(folder: Path, size_bytes: int) -> Generator[Volume]:
    """A new folder on a disk of that size, which is a file system in memory. It takes root to mount it, or a mount
    namespace of one's own, as `make test` takes."""
    folder.mkdir(mode=0o700)
    options = f"size={size_bytes},mode=0700"
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "perdure-test", str(folder)], check=True)
    try:
        yield Volume(folder)
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)
