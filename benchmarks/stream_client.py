"""A helper: so many streaming requests at once, and when the first text of each arrived.

The same code for both servers: it keeps what comes and looks for two marks while it runs. The rest is read
afterwards.
"""

import asyncio
import json
import time
from dataclasses import dataclass, field
from typing import Any

import uvloop

from benchmarks.processes import heard, say

RUN_SECONDS_MAX = 600
END = b"data: [DONE]"


@dataclass
class Stream:
    """What came, and when. Times are those of the system's monotonic clock, which all processes share."""

    came: bytes = b""
    first: float = 0.0
    reads: list[tuple[float, int]] = field(default_factory=list[tuple[float, int]])
    """After each read: when, and how many bytes had come by then."""

    def arrivals(self) -> list[float]:
        """When each numbered event was complete."""
        found: list[float] = []
        at, reads = 0, iter(self.reads)
        when, length = next(reads)
        while (at := self.came.find(b'"sequence_number":%d,' % len(found), at)) >= 0:
            end = self.came.index(b"\n\n", at) + 2
            while length < end:
                when, length = next(reads)
            found.append(when)
        return found


async def _stream(host: str, port: int, request: str, mark: bytes) -> Stream:
    reader, writer = await asyncio.open_connection(host, port, limit=1 << 20)
    writer.write(request.encode())
    stream = Stream()
    while END not in stream.came[-64:]:
        piece = await reader.read(1 << 16)
        now = time.monotonic()
        if not piece:
            raise ConnectionError(stream.came[-500:].decode(errors="replace"))
        stream.came += piece
        stream.reads.append((now, len(stream.came)))
        if not stream.first and mark in stream.came:
            stream.first = now
    writer.close()
    return stream


def events_of(came: bytes) -> list[dict[str, Any]]:
    """The JSON of every event, out of a chunked answer."""
    head, _, rest = came.partition(b"\r\n\r\n")
    if not head.startswith(b"HTTP/1.1 200"):
        raise ConnectionError(came[:500].decode(errors="replace"))
    body = b""
    while rest:
        size, _, rest = rest.partition(b"\r\n")
        length = int(size or b"0", 16)
        if not length:
            break
        body, rest = body + rest[:length], rest[length + 2 :]
    lines = [line[6:] for line in body.decode().split("\n") if line.startswith("data: ")]
    return [json.loads(line) for line in lines if line != "[DONE]"]


def _ours(events: list[dict[str, Any]]) -> dict[str, Any]:
    end = events[-1]["response"]
    text = "".join(event["delta"] for event in events if event["type"] == "response.output_text.delta")
    usage = end["usage"]
    return {
        "text": text,
        "tokens": usage["output_tokens"],
        "prompt_tokens": usage["input_tokens"],
        "events": len(events),
        "id": end["id"],
    }


def _peer(events: list[dict[str, Any]]) -> dict[str, Any]:
    text = "".join(choice["delta"].get("content") or "" for event in events for choice in event.get("choices", ()))
    usage = next(event["usage"] for event in reversed(events) if event.get("usage"))
    return {
        "text": text,
        "tokens": usage["completion_tokens"],
        "prompt_tokens": usage["prompt_tokens"],
        "cached": usage.get("prompt_tokens_details", {}).get("cached_tokens", 0),
        "events": len(events),
    }


async def _run(question: dict[str, Any]) -> dict[str, Any]:
    ours = question["kind"] == "ours"
    mark = b'"response.output_text.delta"' if ours else b'"content":"'
    where = question["host"], question["port"]
    began, cpu = time.monotonic(), time.process_time()
    async with asyncio.timeout(RUN_SECONDS_MAX):
        found = await asyncio.gather(*(_stream(*where, request, mark) for request in question["requests"]))
    cpu = time.process_time() - cpu
    streams = [
        {"first": stream.first - began, **(_ours if ours else _peer)(events_of(stream.came))} for stream in found
    ]
    if question.get("arrivals"):
        streams = [{**told, "arrivals": stream.arrivals()} for told, stream in zip(streams, found, strict=True)]
    return {"seconds": max(stream.reads[-1][0] for stream in found) - began, "client_cpu": cpu, "streams": streams}


def main() -> None:
    """Answer questions until there are no more."""
    say({"ready": True})
    while question := heard():
        with asyncio.Runner(loop_factory=uvloop.Loop) as runner:
            say(runner.run(_run(question)))


if __name__ == "__main__":
    main()
