"""A disk that fails when it is read from."""

from collections.abc import Callable

import apsw


class Reluctant(apsw.VFS):
    """A disk that raises `error` when it is read from, once or until it is mended."""

    def __init__(self, name: str, *, lasting: bool) -> None:
        self.error: Callable[[], Exception] | None = None
        self._lasting = lasting
        super().__init__(name, "")

    def read(self) -> None:
        """Raise if there is an error left."""
        if (error := self.error) is not None:
            self.error = error if self._lasting else None
            raise error()

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> apsw.VFSFile:  # noqa: N802 -- SQLite's name
        return _ReluctantFile(self, name, flags)

    def excepthook(self, *_: object, **__: object) -> bool:
        """Refusals are meant."""
        return True


class _ReluctantFile(apsw.VFSFile):
    def __init__(self, disk: Reluctant, name: str | apsw.URIFilename | None, flags: list[int]) -> None:
        self._disk = disk
        super().__init__("", name, flags)

    def xRead(self, amount: int, offset: int) -> bytes:  # noqa: N802 -- SQLite's name
        self._disk.read()
        return super().xRead(amount, offset)

    def excepthook(self, *_: object, **__: object) -> bool:
        return True
