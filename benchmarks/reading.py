"""A helper: reads under the engine's rule of signed reads, without HTTP, answered whole or with "it still holds".

What `build` makes is the body as the service sends it.
"""

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import uvloop

from benchmarks.processes import heard, say
from perdure.ambient.clock import SystemClock
from perdure.domain.principal import ALL_SCOPES, Principal
from perdure.engine.read import Read
from perdure.engine.record import Recorder
from perdure.engine.signed import Ask, NotModified, Reading, Signed, Signer
from perdure.engine.wakeups import Wakeups
from perdure.storage.sqlite.store import SqliteStore

CLIENT = 1


def _listed(page: Any) -> bytes:
    return msgspec.json.encode({"object": "list", "data": page.data, "has_more": page.has_more})


def _events(page: Any) -> bytes:
    events, last_seq, _more = page
    return b'{"object":"list","data":[%s],"last_seq":%d}' % (b",".join(event.json for event in events), last_seq)


class Reader:
    """A store and the rule over it."""

    def __init__(self, store: SqliteStore) -> None:
        clock = SystemClock()
        self._read = Read(store, Recorder(store, clock, Wakeups()), clock)
        self._signer = Signer(store, _fail)
        self._principal = Principal(CLIENT, "bench", ALL_SCOPES)

    def reading(self, what: str, limit: int) -> tuple[Callable[[], Reading[Any]], Callable[[Any], bytes]]:
        """How to read `what`: `list`, or the ident of a task whose events are read; and how its body is built."""
        if what == "list":
            return lambda: self._read.tasks(
                self._principal, status=None, limit=limit, after=None, ascending=False
            ), _listed
        return lambda: self._read.events(self._principal, what, -1, limit), _events

    async def measure(self, what: str, limit: int, count: int, *, known: bool) -> dict[str, float]:
        """So many reads by a client who has the answer already, or has not."""
        reading, build = self.reading(what, limit)
        ask = Ask(CLIENT, what, "bench")
        first = await self._signer(reading(), ask)
        assert isinstance(first, Signed)
        assert first.mark is not None
        if known:
            ask = Ask(CLIENT, what, "bench", frozenset({first.mark}))
        length = len(build(first.value))
        began, cpu = time.perf_counter(), time.process_time()
        for _ in range(count):
            answer = await self._signer(reading(), ask)
            assert isinstance(answer, NotModified) is known
            if isinstance(answer, Signed):
                build(answer.value)
        seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
        return {"seconds": seconds / count, "cpu": cpu / count, "bytes": length}


def _fail(what: str, error: BaseException) -> None:
    raise AssertionError(what) from error


async def _answer(path: Path) -> None:
    store = await SqliteStore.open(path)
    reader = Reader(store)
    while question := heard():
        say(await reader.measure(question["what"], question["limit"], question["count"], known=question["known"]))
    await store.close()


def main() -> None:
    """Answer questions until there are no more."""
    question = heard()
    assert question is not None
    with asyncio.Runner(loop_factory=uvloop.Loop) as runner:
        runner.run(_answer(Path(question["path"])))


if __name__ == "__main__":
    say({"ready": True})
    main()
