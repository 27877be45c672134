"""A hundred readers of one response at once, while it is written and afterwards, against a bare route.

Live: all of them wait for a held text, which then is drawn as fast as it can be written; each event is kept before
anybody sees it. Later: the same text again, from rows. The bare route sends the very same frames from memory.
"""

import http.client
import json
from dataclasses import dataclass, field

from benchmarks.figures import Result, Row, ratio, spread
from benchmarks.plan import Plan
from benchmarks.processes import Helper, cpu_seconds
from benchmarks.scripted_service import TOKEN
from perdure.testing.scripted_runtime import MODEL

READERS = 100
TOKENS, QUICK_TOKENS = 1_000, 200
AUTHORIZED = {"Authorization": f"Bearer {TOKEN}"}


@dataclass
class Runs:
    """What was measured of one side."""

    seconds: list[float] = field(default_factory=list[float])
    cpu: list[float] = field(default_factory=list[float])
    events: list[int] = field(default_factory=list[int])

    @property
    def rates(self) -> list[float]:
        """Events per second, all readers together."""
        return [READERS * events / seconds for events, seconds in zip(self.events, self.seconds, strict=True)]

    @property
    def costs(self) -> list[float]:
        """Processor time of the server for an event of one reader, in microseconds."""
        return [cpu * 1e6 / READERS / events for events, cpu in zip(self.events, self.cpu, strict=True)]


def create(server: Helper, readers: int, tokens: int) -> str:
    """A text that is held until it has its readers."""
    body = {"model": MODEL, "input": f"held {readers} {tokens}", "background": True}
    connection = http.client.HTTPConnection("127.0.0.1", server.hello["port"])
    connection.request("POST", "/v1/responses", json.dumps(body), {**AUTHORIZED, "Content-Type": "application/json"})
    answer = connection.getresponse()
    found = json.loads(answer.read())
    connection.close()
    if answer.status != 202:
        raise AssertionError(found)
    return str(found["id"])


def frames(server: Helper, ident: str) -> bytes:
    """The whole stream of a response."""
    connection = http.client.HTTPConnection("127.0.0.1", server.hello["port"])
    connection.request("GET", f"/v1/responses/{ident}?stream=true", headers=AUTHORIZED)
    found = connection.getresponse().read()
    connection.close()
    return found


def read(server: Helper, client: Helper, ident: str, runs: Runs) -> None:
    """All readers at once; everybody has got the same."""
    port, pid = server.hello["port"], server.hello["pid"]
    request = (
        f"GET /v1/responses/{ident}?stream=true HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\n"
        f"authorization: Bearer {TOKEN}\r\n\r\n"
    )
    before = cpu_seconds(pid)
    found = client.ask(kind="ours", host="127.0.0.1", port=port, requests=[request] * READERS)
    runs.cpu.append(cpu_seconds(pid) - before)
    runs.seconds.append(found["seconds"])
    told = {(stream["text"], stream["tokens"], stream["events"]) for stream in found["streams"]}
    if len(told) != 1:
        raise AssertionError(f"the readers have got {len(told)} different texts")
    runs.events.append(found["streams"][0]["events"])


def measure(plan: Plan) -> Result:
    """Run the rounds: live, later, bare route, and again."""
    tokens = QUICK_TOKENS if plan.quick else TOKENS
    live, later, bare = Runs(), Runs(), Runs()
    folder, path = plan.folder / "readers", plan.folder / "frames"
    folder.mkdir(mode=0o700)
    with Helper("stream_client") as client, Helper("scripted_service", str(folder), "1") as service:
        ident = create(service, 0, tokens)
        path.write_bytes(frames(service, ident))
        with Helper("bare_stream", str(path), str(READERS)) as peer:
            for number in range(plan.rounds(2, 5)):
                plan.note(f"readers: round {number + 1}")
                ident = create(service, READERS, tokens)
                read(service, client, ident, live)
                read(service, client, ident, later)
                read(peer, client, ident, bare)
    rows = [*_rows("while it is written", live, bare), *_rows("of a finished text", later, bare)]
    return Result(rows, {"live": vars(live), "later": vars(later), "bare": vars(bare)})


def _rows(when: str, ours: Runs, bare: Runs) -> list[Row]:
    what = f"{READERS} readers of one response, {when}"
    rate, bare_rate = spread(ours.rates).median, spread(bare.rates).median
    cost, bare_cost = spread(ours.costs).median, spread(bare.costs).median
    return [
        Row(
            f"events per second, {what}",
            f"{rate:,.0f}/s",
            f"bare route, {bare_rate:,.0f}/s",
            ratio(ours.rates, bare.rates).shown(),
        ),
        Row(
            f"processor time of an event, {what}",
            f"{cost:,.1f} µs",
            f"bare route, {bare_cost:,.1f} µs",
            ratio(ours.costs, bare.costs).shown(),
        ),
    ]
