"""A caller on a bare socket."""

import json
import socket
from typing import Any
from urllib.parse import urlsplit

from tests.system.server import Server


class Caller:
    """A client on a bare socket, who can hang up at any moment."""

    def __init__(self, server: Server, tail_bytes: int = 0, **fields: Any) -> None:
        """Send a create, but for its last `tail_bytes`, which are kept in `unsent`."""
        address = urlsplit(server.url)
        body = json.dumps({"model": server.model_name, "input": "Go on.", "max_output_tokens": 1900, **fields})
        self.socket = socket.create_connection((str(address.hostname), int(address.port or 0)), timeout=60)
        head = (
            f"POST /v1/responses HTTP/1.1\r\nHost: {address.netloc}\r\nAuthorization: Bearer {server.token}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        whole = (head + body).encode()
        self.unsent = whole[len(whole) - tail_bytes :]
        self.socket.sendall(whole[: len(whole) - tail_bytes])

    def reads_until(self, mark: bytes) -> bytes:
        """Read on until the mark was seen."""
        got = b""
        while mark not in got:
            piece = self.socket.recv(65536)
            assert piece, got
            got += piece
        return got

    def hangs_up(self) -> None:
        """Close the connection."""
        self.socket.close()
