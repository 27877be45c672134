"""Many who follow and do not read hold nothing back in the database (E-01)."""

import asyncio
import socket
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import apsw
import pytest

from perdure.storage.sqlite.connection import LOG_SIZE_MAX_BYTES
from perdure.storage.sqlite.log import FRAME_HEADER_BYTES, LOG_MAX_PAGES
from tests.integration.upkept import held
from tests.system.server import TERMINAL, Server, freeze, thaw

FOLLOWERS = 24
LIST_READERS = 5
PAGE_BYTES = 4096
SHORT_BYTES = 3 * LOG_MAX_PAGES * (PAGE_BYTES + FRAME_HEADER_BYTES)
BUSY_MAX_MS = 10_000
LOOK_SECONDS = 0.1


@asynccontextmanager
async def slow_reader(server: Server, path: str) -> AsyncGenerator[None]:
    """Ask for something, read the first bytes of the answer, and then no more."""
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
    sock.setblocking(False)
    host, port = server.url.removeprefix("http://").split(":")
    await asyncio.get_running_loop().sock_connect(sock, (host, int(port)))
    reader, writer = await asyncio.open_connection(sock=sock, limit=512)
    request = f"GET {path} HTTP/1.1\r\nHost: {host}:{port}\r\nAuthorization: Bearer {server.token}\r\n\r\n"
    writer.write(request.encode())
    assert b"200 OK" in await reader.readline()
    try:
        yield
    finally:
        writer.transport.abort()


def is_free(path: Path) -> bool:
    """Whether nobody reads from the log: only then could it be started anew by whoever asks for that."""
    connection = apsw.Connection(str(path))
    connection.set_busy_timeout(BUSY_MAX_MS)
    ((busy, _, _),) = connection.execute("PRAGMA wal_checkpoint(RESTART)").fetchall()
    connection.close()
    return busy == 0


def at_work(server: Server, ids: list[str]) -> bool:
    """Whether one of them has not ended."""
    return any(server.task(each)["status"] not in TERMINAL for each in ids)


@pytest.mark.proves("E-01", "V4")
def test_no_viewer_and_no_list_holds_a_snapshot(tmp_path: Path, tiny_model: Path) -> None:
    """While events are written and dozens of callers have stopped reading in the middle of their answers, nobody
    reads from the log, and it stays far below its limit."""

    async def play(server: Server) -> None:
        path = server.data / "perdure.db"
        log = path.with_name("perdure.db-wal")
        for n in range(20):
            server.create(f"Number {n}. " * 50, max_output_tokens=1)
        freeze(child := server.engine_child())  # until all have come
        ids = [server.create(max_output_tokens=500, seed=n)["id"] for n in range(2)]
        looks = 0
        async with AsyncExitStack() as viewers:
            for n in range(FOLLOWERS):
                stream = f"/v1/responses/{ids[n % 2]}?stream=true"
                await viewers.enter_async_context(slow_reader(server, stream))
            for _ in range(LIST_READERS):
                await viewers.enter_async_context(slow_reader(server, "/v1/tasks?limit=100"))
            thaw(child)
            while await asyncio.to_thread(at_work, server, ids):
                assert await asyncio.to_thread(is_free, path)
                assert log.stat().st_size < SHORT_BYTES < LOG_SIZE_MAX_BYTES
                looks += 1
                await asyncio.sleep(LOOK_SECONDS)  # leaves the processor to those who are looked at
            assert looks
            assert await asyncio.to_thread(is_free, path)
            for each in ids:
                assert (await asyncio.to_thread(server.task, each))["status"] == "incomplete"

    with Server(tmp_path / "data", tiny_model, slots=2).start() as server:
        asyncio.run(play(server))
        assert server.terminate() == 0


def test_the_look_itself_sees_a_reader(tmp_path: Path) -> None:
    """Or the test above could not fail."""
    path = tmp_path / "perdure.db"
    writer = apsw.Connection(str(path))
    writer.pragma("journal_mode", "wal")
    writer.execute("CREATE TABLE tasks (n)")
    with held(path), pytest.MonkeyPatch.context() as patch:
        patch.setattr("tests.system.test_field_e_followers.BUSY_MAX_MS", 0)
        assert not is_free(path)
    assert is_free(path)
    writer.close()
