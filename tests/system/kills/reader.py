"""Somebody who reads a text while it is written, and comes back with his cursor after each kill."""

import threading

import httpx

from tests.system.server import Server, data_of

WAIT_SECONDS = 120.0


class Reader:
    """Keeps every frame that it has ever got, in order."""

    def __init__(self, response: str) -> None:
        self.response = response
        self.seen: list[str] = []
        self._characters = 0
        self._trouble: BaseException | None = None
        self._over = True
        self._news = threading.Condition()
        self._thread: threading.Thread | None = None

    def attach(self, server: Server) -> None:
        """Read on from the last frame, in a thread of its own, until the text ends or the service does."""
        if not self._over:
            return
        self._over = False
        self._thread = threading.Thread(target=self._read, args=(server, server.caller()), daemon=True)
        self._thread.start()

    def detach(self) -> None:
        """Wait until nothing more comes."""
        if self._thread is not None:
            self._thread.join(WAIT_SECONDS)
            assert not self._thread.is_alive(), f"the stream of {self.response} does not end"
        if self._trouble is not None:
            raise self._trouble

    def reaches(self, characters: int) -> None:
        """Wait until so much of the text was seen, or nothing more comes."""
        with self._news:
            came = self._news.wait_for(lambda: self._characters >= characters or self._over, WAIT_SECONDS)
        assert came, f"{self.response} stands still after {self._characters} characters"

    def _read(self, server: Server, client: httpx.Client) -> None:
        try:
            after = len(self.seen) - 1 if self.seen else None
            with client, server.stream(self.response, after, client) as frames:
                for frame in frames:
                    if frame == "data: [DONE]":
                        break
                    self._add(frame)
        except httpx.TransportError:
            pass  # killed before it answered
        except BaseException as error:  # noqa: BLE001 -- raised again where somebody waits for this thread
            self._trouble = error
        finally:
            with self._news:
                self._over = True
                self._news.notify_all()

    def _add(self, frame: str) -> None:
        with self._news:
            self.seen.append(frame)
            if frame.startswith("event: response.output_text.delta\n"):
                self._characters += len(data_of(frame)["delta"])
            self._news.notify_all()
