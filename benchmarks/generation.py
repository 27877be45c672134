"""Tokens per second and time to first token through HTTP, against the bare library and llama.cpp's own server.

The three have the same model, threads, rows a call, slots and window, and draw the likeliest token, so that they do
the same work and should give the same texts. They take turns, the order changing from round to round; the two that
rest hold memory and use no processor.
"""

import json
import statistics
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
from tests.system.server import Server

from benchmarks.figures import Result, Row, many, ratio, spread
from benchmarks.plan import Plan
from benchmarks.processes import Helper, cpu_seconds
from perdure.runtime.llamacpp.bundled import MISSING, find_bundled

SETTINGS = {"slots": 8, "window": 1024, "threads": 1}
STREAMS = (1, 4, 8)
TOKENS, QUICK_TOKENS = 96, 32
THINGS = (
    "a lighthouse keeper", "a clockmaker in winter", "two sisters and a map", "a train that never stops",
    "a river that forgets", "the last librarian", "a garden under the sea", "a mountain village",
    "a violin without strings", "a ship made of glass", "an old bridge", "a baker and a king",
)  # fmt: skip
SHARE_OF_THREAD = 1.25
"""What one computing thread and what serves it can use of the processor; more would mean more threads than said."""

NAMES = {"bare": "bare library", "peer": "llama.cpp's server"}
AIMS = {("bare", streams): "≥ 0.95" for streams in STREAMS} | {("peer", 1): "≥ 0.97", ("peer", 8): "≥ 1.0"}

Run = dict[str, Any]
Asked = list[str]
"""The instructions and the question."""

Runner = Callable[[list[Asked], int], Run]


def prompts(number: int, streams: int) -> list[Asked]:
    """As many prompts as there are streams, others from round to round. All their texts are long.

    No two of a whole run begin alike: the service would not read again what it has read before, the others would.
    """
    things = [THINGS[(number * 5 + n) % len(THINGS)] for n in range(streams)]
    first = 100 * (number + 1) + 10 * streams
    return [[f"{first + n} is a story.", f"Write a long story about {thing}."] for n, thing in enumerate(things)]


def request(port: int, path: str, body: dict[str, Any], token: str = "") -> str:
    """The bytes of a request on a connection of its own."""
    sent = json.dumps(body)
    bearer = f"authorization: Bearer {token}\r\n" if token else ""
    return (
        f"POST {path} HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\n{bearer}content-type: application/json\r\n"
        f"content-length: {len(sent)}\r\nconnection: close\r\n\r\n{sent}"
    )


def ours(server: Server, client: Helper) -> Runner:
    """How to run prompts through the service."""
    assert server.process is not None
    port, token = int(server.url.rsplit(":", 1)[1]), server.token
    service, engine = psutil.Process(server.process.pid), server.engine_child()

    def run(texts: list[Asked], tokens: int) -> Run:
        body = {"model": server.model_name, "temperature": 0, "max_output_tokens": tokens, "stream": True}
        requests = [
            request(port, "/v1/responses", {**body, "instructions": system, "input": text}, token)
            for system, text in texts
        ]
        before = cpu_seconds(service), cpu_seconds(engine)
        found = client.ask(kind="ours", host="127.0.0.1", port=port, requests=requests)
        found["service_cpu"], found["engine_cpu"] = cpu_seconds(service) - before[0], cpu_seconds(engine) - before[1]
        found["cpu"] = found["service_cpu"] + found["engine_cpu"]
        return found

    return run


def theirs(peer: Helper, client: Helper) -> Runner:
    """How to run prompts through llama.cpp's own server."""
    port = int(peer.hello["address"].rsplit(":", 1)[1])

    def run(texts: list[Asked], tokens: int) -> Run:
        how: dict[str, Any] = {"stream": True, "stream_options": {"include_usage": True}, "cache_prompt": False}
        body = {"temperature": 0, "max_tokens": tokens, **how}
        requests = [
            request(port, "/v1/chat/completions", {**body, "messages": messages})
            for messages in (
                [{"role": "system", "content": system}, {"role": "user", "content": text}] for system, text in texts
            )
        ]
        before = cpu_seconds(peer.hello["pid"])
        found = client.ask(kind="peer", host="127.0.0.1", port=port, requests=requests)
        found["cpu"] = cpu_seconds(peer.hello["pid"]) - before
        return found

    return run


@contextmanager
def sides(folder: Path) -> Generator[dict[str, Runner]]:
    """The three, each ready and warm."""
    model = find_bundled()
    if model is None:
        raise RuntimeError(MISSING)
    settings = json.dumps(SETTINGS)
    slots, window, threads = SETTINGS.values()
    with (
        Server(folder / "served", slots=slots, window_tokens=window, threads=threads) as server,
        Helper("bare_llama", str(model), settings) as bare,
        Helper("peer", str(model), settings) as peer,
        Helper("stream_client") as client,
    ):
        if {name: peer.hello[name] for name in SETTINGS} != SETTINGS:
            raise AssertionError(f"the peer runs with {peer.hello}")
        server.start()
        runners: dict[str, Runner] = {
            "ours": ours(server, client),
            "bare": lambda texts, tokens: bare.ask(prompts=texts, tokens=tokens),
            "peer": theirs(peer, client),
        }
        for run in runners.values():
            run([["1 is a greeting.", "Hello."]], 4)
        yield runners


def check(found: dict[str, Run], tokens: int) -> None:
    """Fail unless all three did the work that they were asked for, with the threads that they were given."""
    for name, run in found.items():
        counts = [stream["tokens"] for stream in run["streams"]]
        if set(counts) != {tokens}:
            raise AssertionError(f"{name} gave {counts} tokens in place of {tokens}")
        if run["cpu"] > run["seconds"] * SHARE_OF_THREAD + 0.1:
            raise AssertionError(f"{name} used {run['cpu']:.1f} s of processor in {run['seconds']:.1f} s")
    lengths = {name: [stream["prompt_tokens"] for stream in run["streams"]] for name, run in found.items()}
    if len({tuple(each) for each in lengths.values()}) != 1:
        raise AssertionError(f"the prompts have different lengths: {lengths}")


def measure(plan: Plan) -> Result:
    """Run the rounds."""
    tokens = QUICK_TOKENS if plan.quick else TOKENS
    found: dict[int, list[dict[str, Run]]] = {streams: [] for streams in STREAMS}
    with sides(plan.folder) as runners:
        for number in range(plan.rounds(2, 5)):
            for streams in STREAMS:
                plan.note(f"generation: round {number + 1}, {streams} streams")
                order = list(runners)[number % 3 :] + list(runners)[: number % 3]
                texts = prompts(number, streams)
                turn = {name: runners[name](texts, tokens) for name in order}
                check(turn, tokens)
                found[streams].append(turn)
    return Result(_rows(found, tokens), {"settings": SETTINGS, "tokens": tokens, "rounds": found, **same(found)})


def _rate(run: Run) -> float:
    return sum(stream["tokens"] for stream in run["streams"]) / run["seconds"]


def _first(run: Run) -> float:
    return statistics.median(stream["first"] for stream in run["streams"])


def same(found: dict[int, list[dict[str, Run]]]) -> dict[str, str]:
    """How many texts are the same on both sides."""
    shares: dict[str, str] = {}
    for other in ("bare", "peer"):
        pairs = [
            (mine["text"], its["text"])
            for turns in found.values()
            for turn in turns
            for mine, its in zip(turn["ours"]["streams"], turn[other]["streams"], strict=True)
        ]
        shares[f"same_text_as_{other}"] = f"{sum(mine == its for mine, its in pairs)} of {len(pairs)}"
    return shares


def _rows(found: dict[int, list[dict[str, Run]]], tokens: int) -> list[Row]:
    rows: list[Row] = []
    for streams, turns in found.items():
        label = f"{many(streams, 'stream')} of {tokens} tokens"
        for what, of, unit, scale, digits in (
            ("tokens per second", _rate, "/s", 1.0, 1),
            ("time to first token", _first, "ms", 1e3, 0),
            ("processor time of a token", _cpu, "ms", 1e3, 1),
        ):
            mine = [of(turn["ours"]) for turn in turns]
            for name, shown in NAMES.items():
                its = [of(turn[name]) for turn in turns]
                rows.append(
                    Row(
                        f"{what}, {label}",
                        f"{spread(mine).median * scale:.{digits}f} {unit}",
                        f"{shown}, {spread(its).median * scale:.{digits}f} {unit}",
                        ratio(mine, its).shown(),
                        AIMS.get((name, streams), "") if of is _rate else "",
                    )
                )
    shares = same(found)
    rows.append(Row("same text, greedy", shares["same_text_as_bare"], "bare library"))
    rows.append(Row("same text, greedy", shares["same_text_as_peer"], "llama.cpp's server"))
    return rows


def _cpu(run: Run) -> float:
    return run["cpu"] / sum(stream["tokens"] for stream in run["streams"])
