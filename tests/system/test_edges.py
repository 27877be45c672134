"""Requests at the edges of HTTP, on a real socket: a handshake, long paths, bytes that are no request."""

import json
import select
import socket

import pytest

from tests.system.server import Server

HANDSHAKE = (
    "Connection: Upgrade",
    "Upgrade: websocket",
    "Sec-WebSocket-Version: 13",
    "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
)
PATIENCE_SECONDS = 60.0
ENOUGH_BYTES = 8 * 1024 * 1024  # far above the bound and what the sockets hold on both sides
PIECE = b"a" * 16 * 1024


def address(server: Server) -> tuple[str, int]:
    """Where it listens."""
    host, _, port = server.url.removeprefix("http://").rpartition(":")
    return host, int(port)


def said(server: Server, request: bytes) -> tuple[int, dict[str, str], bytes]:
    """The status, the headers and the body of one answer, read as they come."""
    with socket.create_connection(address(server), PATIENCE_SECONDS) as connection:
        connection.sendall(request)
        with connection.makefile("rb") as answer:
            status = int(answer.readline().split()[1])
            headers: dict[str, str] = {}
            while line := answer.readline().strip():
                name, _, value = line.decode().partition(":")
                headers[name.lower()] = value.strip()
            return status, headers, answer.read(int(headers["content-length"]))


def asked(server: Server, path: str, *more: str) -> bytes:
    """A request by the owner, with `more` headers."""
    lines = [f"GET {path} HTTP/1.1", f"Host: {server.url.removeprefix('http://')}"]
    return "\r\n".join([*lines, f"Authorization: Bearer {server.token}", *more, "", ""]).encode()


@pytest.mark.parametrize("path", ["/v1/responses", "/v1/realtime"])
def test_a_handshake_is_answered_at_once_and_leaves_no_trace(tiny_server: Server, path: str) -> None:
    """501 in the one shape; what is sent after it is not taken for a request, and the log stays as it was."""
    before = tiny_server.errors.read_text()
    status, headers, body = said(tiny_server, asked(tiny_server, path, *HANDSHAKE))
    assert (status, json.loads(body)["error"]["code"]) == (501, "not_implemented")
    assert headers["x-should-retry"] == "false"
    assert headers["connection"] == "close"
    assert tiny_server.errors.read_text() == before
    assert tiny_server.http.get("/healthz").status_code == 200


@pytest.mark.parametrize("size", [1_000, 60_000])
def test_a_long_path_or_query_is_answered_in_the_one_shape(tiny_server: Server, size: int) -> None:
    """Far longer than any name can be."""
    for path, code in ((f"/v1/responses/{'a' * size}", "not_found"), (f"/v1/tasks?after={'a' * size}", "not_found")):
        status, headers, body = said(tiny_server, asked(tiny_server, path))
        assert (status, json.loads(body)["error"]["code"]) == (404, code)
        assert len(body) < 1_000
        assert headers["x-request-id"].startswith("req_")


@pytest.mark.parametrize(
    "request_", [b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", b"hello\r\n\r\n"]
)
def test_bytes_that_are_no_request_get_a_plain_400(tiny_server: Server, request_: bytes) -> None:
    """A TLS greeting among them; the log is not theirs to fill."""
    before = tiny_server.errors.read_text()
    status, headers, _ = said(tiny_server, request_)
    assert (status, headers["connection"]) == (400, "close")
    assert tiny_server.errors.read_text() == before


@pytest.mark.parametrize(
    ("begun", "piece"),
    [
        (b"GET /healthz HTTP/1.1\r\nX-Long: ", PIECE),
        (b"GET /healthz HTTP/1.1\r\n", b"X-One: " + PIECE + b"\r\n"),
        (b"POST /healthz HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n", b"X-Late: " + PIECE + b"\r\n"),
    ],
    ids=["one header", "many headers", "after the body"],
)
def test_a_head_that_does_not_end_is_cut_off(tiny_server: Server, begun: bytes, piece: bytes) -> None:
    """Before a token was asked for: else anybody could fill the memory."""
    got, sent = b"", 0
    with socket.create_connection(address(tiny_server), PATIENCE_SECONDS) as connection:
        try:
            connection.sendall(begun)
            while sent < ENOUGH_BYTES:
                connection.sendall(piece)
                sent += len(piece)
                if select.select((connection,), (), (), 0)[0]:
                    if not (some := connection.recv(65536)):
                        break
                    got += some
        except ConnectionError:
            pass  # cut off while it was sending
    assert sent < ENOUGH_BYTES
    assert not got or b"HTTP/1.1 400 " in got
