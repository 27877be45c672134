"""A chat of ten turns: what is read in each, and the time to its first token, against llama.cpp's own server.

Three sides: the service, asked for each turn by `previous_response_id`; the same with instructions whose first words
are others in each turn, so that nothing can be reused; and the peer with its prompt cache, which is sent the whole
conversation each time, as its interface wants it. The service's and the peer's prompts are the same.
"""

import json
import statistics
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
from tests.system.server import Server

from benchmarks.figures import Result, Row, ratio, spread
from benchmarks.generation import check, request
from benchmarks.plan import Plan
from benchmarks.processes import Helper, cpu_seconds
from perdure.runtime.llamacpp.bundled import MISSING, find_bundled

SETTINGS = {"slots": 2, "window": 1024, "threads": 1}
TURNS = 10
TOKENS = 16
INSTRUCTIONS = (
    "{number} is the number of this lesson. You are a patient teacher of natural history. You answer every question "
    "in one or two plain sentences, without lists and without headings, and you never ask anything back."
)
QUESTIONS = (
    "Why is the sky blue?", "Why do leaves fall in autumn?", "How do bees find their way home?",
    "What is a comet made of?", "Why is the sea salt?", "How old can a tortoise get?", "Why do cats purr?",
    "What makes thunder?", "How do plants drink?", "Why is snow white?",
)  # fmt: skip
NAMES = {"unlike": "other first words each turn", "peer": "llama.cpp's server"}

Stream = dict[str, Any]
Chat = list[Stream]
Talk = Callable[[int], Chat]


def _instructions(number: int) -> str:
    return INSTRUCTIONS.format(number=1000 + number)


def ours(server: Server, client: Helper, *, alike: bool) -> Talk:
    """How to hold a chat with the service. All of its turns begin alike, or none does."""
    assert server.process is not None
    port = int(server.url.rsplit(":", 1)[1])
    processes = psutil.Process(server.process.pid), server.engine_child()
    how = {"model": server.model_name, "temperature": 0, "max_output_tokens": TOKENS, "stream": True}

    def talk(number: int) -> Chat:
        chat: Chat = []
        for turn, question in enumerate(QUESTIONS):
            first = number * (TURNS + 1) + (0 if alike else turn + 1)
            body: dict[str, Any] = {**how, "input": question, "instructions": _instructions(first)}
            if chat:
                body["previous_response_id"] = chat[-1]["id"]
            asked = [request(port, "/v1/responses", body, server.token)]
            read, used = _read(server), sum(map(cpu_seconds, processes))
            found = client.ask(kind="ours", host="127.0.0.1", port=port, requests=asked)
            cpu = sum(map(cpu_seconds, processes)) - used
            chat.append(_turn(found, cpu, _read(server) - read))
        return chat

    return talk


def theirs(peer: Helper, client: Helper) -> Talk:
    """How to hold a chat with llama.cpp's own server."""
    port = int(peer.hello["address"].rsplit(":", 1)[1])
    options = {"stream_options": {"include_usage": True}, "cache_prompt": True}
    how = {"temperature": 0, "max_tokens": TOKENS, "stream": True, **options}

    def talk(number: int) -> Chat:
        chat: Chat = []
        messages = [{"role": "system", "content": _instructions(number * (TURNS + 1))}]
        for question in QUESTIONS:
            messages.append({"role": "user", "content": question})
            asked = [request(port, "/v1/chat/completions", {**how, "messages": messages})]
            used = cpu_seconds(peer.hello["pid"])
            found = client.ask(kind="peer", host="127.0.0.1", port=port, requests=asked)
            cpu = cpu_seconds(peer.hello["pid"]) - used
            (stream,) = found["streams"]
            chat.append(_turn(found, cpu, stream["prompt_tokens"] - stream["cached"]))
            messages.append({"role": "assistant", "content": stream["text"]})
        return chat

    return talk


def _turn(found: dict[str, Any], cpu: float, read: int) -> Stream:
    """A turn; fails where it is not as many tokens as asked for, or drawn by more than one thread."""
    found["cpu"] = cpu
    check({"chat": found}, TOKENS)
    return {**found["streams"][0], "cpu": cpu, "seconds": found["seconds"], "read": read}


def _read(server: Server) -> int:
    return sum(model["tokens_read"] for model in server.get("/v1/service")["models"])


@contextmanager
def sides(folder: Path) -> Generator[dict[str, Talk]]:
    """The three, each ready and warm."""
    model = find_bundled()
    if model is None:
        raise RuntimeError(MISSING)
    slots, window, threads = SETTINGS.values()
    with (
        Server(folder / "served", slots=slots, window_tokens=window, threads=threads) as server,
        Helper("peer", str(model), json.dumps({**SETTINGS, "cache": True})) as peer,
        Helper("stream_client") as client,
    ):
        server.start()
        server.engine_child()
        yield {
            "ours": ours(server, client, alike=True),
            "unlike": ours(server, client, alike=False),
            "peer": theirs(peer, client),
        }


def measure(plan: Plan) -> Result:
    """Hold the chats."""
    found: list[dict[str, Chat]] = []
    with sides(plan.folder) as talks:
        for number in range(plan.rounds(1, 3)):
            plan.note(f"chat: round {number + 1}")
            order = list(talks)[number % 3 :] + list(talks)[: number % 3]
            found.append({name: talks[name](number) for name in order})
            for mine, its in zip(found[-1]["ours"], found[-1]["peer"], strict=True):
                if mine["text"] == its["text"] and mine["prompt_tokens"] != its["prompt_tokens"]:
                    raise AssertionError("the prompts have different lengths")
    return Result(_rows(found), {"settings": SETTINGS, "tokens": TOKENS, "rounds": found})


def _first(chat: Chat) -> float:
    return statistics.median(turn["first"] for turn in chat[1:])


def _last(chat: Chat) -> float:
    return chat[-1]["first"]


def _cpu(chat: Chat) -> float:
    return sum(turn["cpu"] for turn in chat)


def _all_read(chat: Chat) -> float:
    return sum(turn["read"] for turn in chat)


def _rows(found: list[dict[str, Chat]]) -> list[Row]:
    rows: list[Row] = []
    for what, of, unit, scale in (
        ("tokens of prompts read in ten turns", _all_read, "", 1.0),
        ("time to first token, median of the turns after the first", _first, " ms", 1e3),
        ("time to first token, tenth turn", _last, " ms", 1e3),
        ("processor time of the whole chat", _cpu, " s", 1.0),
    ):
        mine = [of(chats["ours"]) for chats in found]
        for name, shown in NAMES.items():
            its = [of(chats[name]) for chats in found]
            figures = [f"{spread(each).median * scale:,.{int(unit == ' s')}f}{unit}" for each in (mine, its)]
            rows.append(Row(what, figures[0], f"{shown}, {figures[1]}", ratio(mine, its).shown()))
    pairs = [
        (mine["text"], its["text"]) for each in found for mine, its in zip(each["ours"], each["peer"], strict=True)
    ]
    rows.append(Row("same answer, greedy", f"{sum(a == b for a, b in pairs)} of {len(pairs)}", NAMES["peer"]))
    return rows
