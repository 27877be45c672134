"""A helper: sends a prepared request again and again over so many connections, each waiting for its answer.

Each request is another one: its number stands in place of `NUMBER`.

It does as little as one can, since it shares the machine with what it measures.
"""

import asyncio
import time
from typing import Any, cast

import uvloop

from benchmarks.processes import heard, say

RUN_SECONDS_MAX = 120

NUMBER = "00000000"

_END = b"\r\n\r\n"
_LENGTH = b"content-length: "


class Load:
    """One run: `total` requests of the same bytes."""

    def __init__(self, request: bytes, total: int) -> None:
        self._before, self._after = request.split(NUMBER.encode())
        self.left = total
        self.open = total
        self.statuses: dict[str, int] = {}
        self.names: list[str] = []
        self.latencies: list[float] = []
        self.sizes: set[int] = set()
        self.done = asyncio.get_running_loop().create_future()

    def next(self) -> bytes:
        """The next request."""
        self.left -= 1
        return b"%b%08d%b" % (self._before, self.left, self._after)

    def answered(self, answer: bytes, seconds: float) -> None:
        """Note an answer."""
        status = answer[9:12].decode()
        self.statuses[status] = self.statuses.get(status, 0) + 1
        at = answer.find(b"/v1/responses/resp_")
        if at >= 0:
            self.names.append(answer[at + 19 : answer.index(b"\r", at)].decode())
        self.latencies.append(seconds)
        self.open -= 1
        if self.open == 0:
            self.done.set_result(None)


class Connection(asyncio.Protocol):
    """One connection: one request at a time."""

    def __init__(self, load: Load) -> None:
        self._load = load
        self._held = b""
        self._sent = 0.0
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is none by name

    def connection_lost(self, exc: Exception | None) -> None:
        if not self._load.done.done():
            self._load.done.set_exception(exc or ConnectionError("the server closed a connection"))

    def send(self) -> None:
        """Send the next request, if one is left."""
        if self._load.left and self._transport is not None:
            self._sent = time.perf_counter()
            self._transport.write(self._load.next())

    def data_received(self, data: bytes) -> None:
        held = self._held = self._held + data if self._held else data
        head = held.find(_END)
        if head < 0:
            return
        at = held.find(_LENGTH, 0, head)  # a 304 has none
        length = int(held[at + len(_LENGTH) : held.index(b"\r", at)]) if at >= 0 else 0
        if len(held) < head + 4 + length:
            return
        self._held = b""
        self._load.sizes.add(len(held) - head - 4)
        self._load.answered(held, time.perf_counter() - self._sent)
        self.send()


async def run(question: dict[str, Any]) -> dict[str, Any]:
    load = Load(question["request"].encode(), question["total"])
    loop = asyncio.get_running_loop()
    pairs = [
        await loop.create_connection(lambda: Connection(load), question["host"], question["port"])
        for _ in range(question["connections"])
    ]
    began, cpu = time.perf_counter(), time.process_time()
    for _, connection in pairs:
        connection.send()
    async with asyncio.timeout(RUN_SECONDS_MAX):
        await load.done
    seconds = time.perf_counter() - began
    for transport, _ in pairs:
        transport.close()
    latencies = sorted(load.latencies)
    return {
        "seconds": seconds,
        "client_cpu": time.process_time() - cpu,
        "statuses": load.statuses,
        "names": load.names,
        "bytes": max(load.sizes),
        "p50": latencies[len(latencies) // 2],
        "p99": latencies[int(len(latencies) * 0.99)],
    }


def main() -> None:
    """Answer questions until there are no more."""
    say({"ready": True})
    while question := heard():
        with asyncio.Runner(loop_factory=uvloop.Loop) as runner:
            say(runner.run(run(question)))


if __name__ == "__main__":
    main()
