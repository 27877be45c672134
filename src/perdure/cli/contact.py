"""How a command finds the running service, and one request to it.

A service tells where it listens in `server.json` of its data folder. The owner's token, from the same folder, is sent
to that address only, and only while the process that wrote the file is there: after a kill the file stays behind, and
whoever listens at its address by then may be anybody.
"""

import http.client
import json
import os
import shlex
from collections.abc import Callable, Generator
from contextlib import closing, suppress
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

from perdure import settings
from perdure.ambient.folder import LOCK_NAME
from perdure.cli.failures import Broken, NoService, Refused, Silent
from perdure.cli.program import program
from perdure.domain import limits

CONNECT_SECONDS = 5.0
ANSWER_SECONDS = 60.0  # a create counts the tokens of its input before it is answered
SILENCE_SECONDS = 3 * limits.KEEPALIVE_SECONDS  # a stream that says less than this has died unnoticed

T = TypeVar("T")


class Folder:
    """The data folder of a service, given by `--data`, else by the settings."""

    def __init__(self, given: str | None) -> None:
        chosen = settings.load({"data": given})
        self.path = chosen.folder
        self._token = chosen.token_file
        self._facts = chosen.server_file
        self._named = chosen.data != settings.load({}, {}).data
        self._option = f" --data {shlex.quote(chosen.data)}" if given else ""

    def command(self, words: str) -> str:
        """A command on this folder, as one would type it."""
        return f"`{program()} {words}{self._option}`"

    def service(self) -> "Service":
        """The service that runs on it. Raises `NoService`."""
        pid, host, port = self._told()
        if not serves(pid, self.path / LOCK_NAME):
            raise NoService(
                f"The service on the data folder {self.path} is not running: its process {pid} is gone without an "
                f"orderly stop. Accepted work is kept and goes on at the next {self.command('serve')}."
            )
        try:
            token = self._token.read_text("ascii").strip()
        except (OSError, ValueError) as error:
            raise NoService(f"The owner's token in {self._token} cannot be read ({error}).") from None
        if not token.isprintable():
            raise NoService(f"{self._token} holds no token; the next {self.command('serve')} makes a new one.")
        return Service(host, port, token, pid)

    def _told(self) -> tuple[int, str, int]:
        try:
            facts = json.loads(self._facts.read_text())
            address = urlsplit(facts["address"])
            pid, host, port = facts["pid"], address.hostname, address.port
        except (FileNotFoundError, NotADirectoryError):
            raise NoService(self._nothing_there()) from None
        except PermissionError:
            raise NoService(f"The data folder {self.path} is closed to you; name your own with --data.") from None
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            pid = host = port = None
        if not isinstance(pid, int) or not host or not port:
            raise NoService(f"{self._facts} is damaged; restart the service, or name another folder with --data.")
        return pid, host, port

    def _nothing_there(self) -> str:
        remedy = "name the folder of one that runs with --data."
        if self.path.exists() and not self.path.is_dir():
            return f"{self.path} is not a folder; {remedy.replace('one that runs', 'the service')}"
        if self._named and not self.path.exists():
            serve = self.command("serve")
            return f"There is no folder {self.path}. {serve} makes it and serves it, or {remedy}"
        return f"No service runs on the data folder {self.path}. Start one with {self.command('serve')}, or {remedy}"


def serves(pid: int, lock: Path) -> bool:
    """Whether that process runs and holds the folder's lock file; its number may have passed to another program."""
    if pid <= 0:
        return False
    try:
        os.kill(pid, 0)
        held = lock.stat()
    except (OSError, OverflowError):  # a process of somebody else cannot be the service of one's own folder
        return False
    descriptors = Path(f"/proc/{pid}/fd")
    return not Path("/proc/self/fd").exists() or any(_is(held, each) for each in _entries(descriptors))


def _entries(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except OSError:
        return []


def _is(held: os.stat_result, descriptor: Path) -> bool:
    try:
        return os.path.samestat(held, descriptor.stat())
    except OSError:  # closed meanwhile
        return False


@dataclass(frozen=True)
class Answer:
    """A whole answer."""

    status: int
    body: bytes

    def json(self) -> dict[str, Any]:
        """The object in it. Raises `Refused` for an error, and for what is no object."""
        try:
            found = json.loads(self.body)
        except ValueError:
            found = None
        error = found.get("error") if isinstance(found, dict) and self.status >= 400 else None
        if isinstance(error, dict):
            raise Refused(self.status, str(error.get("message")), error.get("code"))
        if self.status >= 400 or not isinstance(found, dict):
            raise Refused(self.status, f"What answers there is no Perdure service (HTTP {self.status}).", None)
        return found


@dataclass(frozen=True)
class Service:
    """A running service. Every call has its own connection and is made once."""

    host: str
    port: int
    token: str
    pid: int
    answer_seconds: float = ANSWER_SECONDS

    def get(self, path: str) -> Answer:
        """Read. Raises `NoService`, `Away`."""
        with self._connected() as connection:
            return self._whole(self._asked(connection, "GET", path))

    def post(self, path: str, fields: object = None) -> Answer:
        """Ask for a change. Raises `NoService` if it cannot have arrived, `Away` if that is not known."""
        body = None if fields is None else json.dumps(fields, ensure_ascii=False, allow_nan=False).encode()
        with self._connected() as connection:
            return self._whole(self._asked(connection, "POST", path, body))

    def lines(self, path: str) -> Generator[bytes]:
        """The lines of an answer as they come. Raises `NoService`, `Refused`; `Away` when it breaks."""
        with self._connected() as connection:
            wire = connection.sock  # the connection forgets it where the answer says that it is the last one
            got = self._asked(connection, "GET", path)
            if got.status != HTTPStatus.OK:
                self._whole(got).json()
            wire.settimeout(SILENCE_SECONDS)
            yield b""  # it is there
            while line := _told(got.readline, SILENCE_SECONDS):
                yield line

    def _connected(self) -> "closing[http.client.HTTPConnection]":
        connection = http.client.HTTPConnection(self.host, self.port, timeout=CONNECT_SECONDS)
        try:
            connection.connect()
        except OSError as error:
            raise NoService(
                f"The service (process {self.pid}) does not answer at {self.host}, port {self.port}: "
                f"{error.strerror or error}. It may be starting or stopping; try again."
            ) from None
        connection.sock.settimeout(self.answer_seconds)
        return closing(connection)

    def _asked(
        self, connection: http.client.HTTPConnection, method: str, path: str, body: bytes | None = None
    ) -> http.client.HTTPResponse:
        headers = {"Authorization": f"Bearer {self.token}"}
        if body is not None:
            headers["Content-Type"] = "application/json"

        def exchange() -> http.client.HTTPResponse:
            with suppress(BrokenPipeError, ConnectionResetError):  # a refusal may have come before all was sent
                connection.request(method, path, body, headers)
            return connection.getresponse()

        return _told(exchange, self.answer_seconds)

    def _whole(self, got: http.client.HTTPResponse) -> Answer:
        return Answer(got.status, _told(got.read, self.answer_seconds))


def _told(read: Callable[[], T], seconds: float) -> T:
    """What a connection gives. Raises `Broken`, and `Silent` when the time it has is over."""
    try:
        return read()
    except TimeoutError:
        raise Silent(seconds) from None
    except (OSError, http.client.HTTPException) as error:
        raise Broken(str(error) or type(error).__name__) from None
