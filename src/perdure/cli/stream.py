"""The events of a response, however often the connection breaks and the service is started anew."""

import json
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from http import HTTPStatus
from typing import Any

from perdure.cli.contact import Folder, Service
from perdure.cli.failures import Away, Broken, CommandFailed, NoService, Refused, Unknown
from perdure.domain.events import TERMINAL_TYPES

PAUSE_MIN_SECONDS = 0.05
PAUSE_MAX_SECONDS = 1.0
_DONE = b"[DONE]"


class Event:
    """An event: its JSON as it came, and what is in it."""

    __slots__ = ("data", "line", "number", "type")

    def __init__(self, line: bytes) -> None:
        self.line = line
        try:
            self.data: dict[str, Any] = json.loads(line)
            self.number: int = self.data["sequence_number"]
            self.type: str = self.data["type"]
        except (ValueError, KeyError, TypeError):
            raise CommandFailed("What answers there is no Perdure service.") from None


class Absence:
    """The time between two connections: a growing pause, a bound on all of it, one note when it begins to last."""

    def __init__(self, bound_seconds: float | None, note: Callable[[str], None]) -> None:
        self._bound = bound_seconds
        self._note = note
        self._tries = 0
        self._since = 0.0

    @property
    def lasts(self) -> bool:
        """Whether nothing has come since the last connection broke."""
        return self._tries > 0

    def wait(self, reason: str) -> None:
        """Wait before the next try. Raises `Unknown` when that would be beyond the bound."""
        if not self._tries:
            self._since = time.monotonic()
        if self._tries == 1:
            self._note("The service is away; waiting until it is back (Ctrl-C leaves). Accepted work is kept.")
        pause = min(PAUSE_MAX_SECONDS, PAUSE_MIN_SECONDS * 2**self._tries)
        if self._bound is not None and time.monotonic() + pause > self._since + self._bound:
            raise Unknown(f"The service did not come back within {self._bound:g} s. {reason}")
        self._tries = min(self._tries + 1, 10)
        time.sleep(pause)

    def over(self) -> None:
        """Something came."""
        if self._tries > 1:
            self._note("The service is back.")
        self._tries = 0


class Events:
    """The events of a response with numbers above `after`, each once, and None where the service says that it lives.

    The first connection has to succeed; from then on it waits for a service that goes away, up to `wait_seconds`, and
    goes on with the next event. It ends with the terminal event, or when the cursor is beyond that.
    """

    def __init__(
        self, folder: Folder, response_id: str, after: int, wait_seconds: float | None, note: Callable[[str], None]
    ) -> None:
        self.last = after
        self._folder = folder
        self._id = response_id
        self._absence = Absence(wait_seconds, note)
        self._met = False

    @property
    def away(self) -> bool:
        """Whether the service is away at the moment."""
        return self._absence.lasts

    def __iter__(self) -> Iterator[Event | None]:
        while True:
            try:
                yield from self._connected(self._folder.service())
            except (Away, NoService) as lost:
                if isinstance(lost, NoService) and not self._met:
                    raise
                self._absence.wait(str(lost))
            except Refused as refusal:
                if refusal.status < HTTPStatus.INTERNAL_SERVER_ERROR or not self._met:
                    raise
                self._absence.wait(str(refusal))
            else:
                return

    def _connected(self, service: Service) -> Generator[Event | None]:
        """One connection's share. Raises `Away` when it breaks off before the end."""
        cursor = f"&starting_after={self.last}" if self.last >= 0 else ""
        for data in payloads(self._marked(service.lines(f"/v1/responses/{self._id}?stream=true{cursor}"))):
            if data is None:
                self._absence.over()
                yield None
                continue
            if data == _DONE:
                return
            event = Event(data)
            if event.number != self.last + 1:
                raise CommandFailed(f"The service sent event {event.number} after event {self.last}.")
            self.last = event.number
            self._absence.over()
            yield event
            if event.type in TERMINAL_TYPES:
                return
        raise Broken("the stream ended before the answer did")

    def _marked(self, lines: Iterable[bytes]) -> Iterator[bytes]:
        for line in lines:
            self._met = True
            yield line


def payloads(lines: Iterable[bytes]) -> Iterator[bytes | None]:
    """The data of each server-sent event, None for each comment. What a broken connection cut short is left out."""
    data: bytes | None = None
    for line in lines:
        if line.startswith(b":"):
            yield None
        elif line.startswith(b"data: "):
            data = line[6:].rstrip(b"\r\n")
        elif line in (b"\n", b"\r\n") and data is not None:
            yield data
            data = None
