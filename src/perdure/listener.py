"""Listen: the server of HTTP, bounded and quiet. What a caller does wrong costs little, and is told to him alone."""

import logging
import socket
from collections.abc import Callable, Generator
from contextlib import contextmanager

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from perdure.domain.errors import RefusedToStart
from perdure.domain.limits import HEAD_MAX_BYTES

BACKLOG = 2048


class Listener(uvicorn.Server):
    """uvicorn, without its signal handling (it would end with 143), telling when it listens."""

    def __init__(self, config: uvicorn.Config, listening: Callable[[], None]) -> None:
        super().__init__(config)
        self._listening = listening
        # What a caller does wrong is told to him; in the log it would let strangers fill it.
        logging.getLogger("uvicorn.error").setLevel(logging.ERROR)

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        """Leave signals to the composition root."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen, then say so. Of two services that have taken one address in the same instant, one is refused."""
        for bound in sockets or ():
            try:
                bound.listen(BACKLOG)
            except OSError as error:
                raise RefusedToStart(f"The port is in use ({error.strerror}); choose another with --port.") from None
        await super().startup(sockets)
        self._listening()


class Connection(HttpToolsProtocol):
    """One caller's connection. A head, or what follows a body, is held in memory until it ends, before anybody has
    looked for a token: one that does not end is refused."""

    _unended = 0

    def data_received(self, data: bytes) -> None:
        """Take what came. A read counts as a whole, so the bound is exceeded by less than one read."""
        self._unended += len(data)
        super().data_received(data)
        if self._unended > HEAD_MAX_BYTES and not self.transport.is_closing():
            self.send_400_response("The head of the request is too large.")

    def on_headers_complete(self) -> None:
        """A head has ended."""
        self._unended = 0
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """A piece of a body: others bound these."""
        self._unended = 0
        super().on_body(body)
