"""The events of a stream, as clients of the field need them (A-01, A-02, A-04, A-11, B-09, B-11).

The application over the engine and a real store; a scripted runtime writes reasoning, texts and calls, and comes to
each of the ends that there are. All that is read here is held against the published types (`tests/witness.py`).
"""

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.unit.engine.stage import Stage, scenario

from perdure.domain.events import TERMINAL_TYPES
from perdure.domain.parts import CallArguments, CallBegin, CallEnd, Logprob, Reasoning, Text
from perdure.domain.recovery import OnRestart
from perdure.ports.runtime import JobFailed
from perdure.testing.scripted_runtime import MODEL, Script

from .harness import client
from .test_conditional_kept import app_of, serving
from .test_repeating import Caller
from .test_sse import events

ASK = "ask"
BODY: dict[str, Any] = {"model": MODEL, "input": ASK, "stream": True, "seed": 7}
SAID: dict[int, Any] = {
    0: (Reasoning("Let me "),),
    1: (Reasoning("think."),),
    2: (Text("It is ", (Logprob("It is ", -0.5, (73,)),)),),
    3: (Text("warm.", (Logprob("warm.", -1.5, (119,)),)),),
    4: (CallBegin("weather"), CallArguments('{"place":')),
    5: (CallArguments('"sea"}'), CallEnd()),
    6: (CallBegin("time"), CallArguments("{}"), CallEnd(), Text("So be it.")),
}
LENGTH = 8
EARLY = asyncio.CancelledError()
"""The script's way to let a generation go away without an end."""
FAULT = RuntimeError("a pointer at /home/ada/model")
BAD_CALL = JobFailed("the model wrote arguments of a call that are not a JSON object")

ENDS: dict[str, tuple[dict[str, Any], list[tuple[int, Any]], str, str | None]] = {
    "it closes its turn": ({}, [], "completed", None),
    "a limit of tokens": ({"max_output_tokens": 5}, [], "incomplete", None),
    "it raises": ({}, [(3, JobFailed("out of range"))], "failed", "generation_failed"),
    "it goes away without an end": ({}, [(4, EARLY)], "failed", "generation_failed"),
    "a call that cannot be parsed": ({}, [(5, BAD_CALL)], "failed", "generation_failed"),
    "a fault that passes": ({}, [(3, FAULT)], "completed", None),
    "a fault that stays": ({}, [(3, FAULT)] * 9, "failed", "attempts_exhausted"),
    "before the first token": ({}, [(0, JobFailed("no room"))], "failed", "generation_failed"),
}
TYPES_OF = {
    "message": ["output_item.added", "content_part.added", "output_text.delta", "output_text.done",
                "content_part.done", "output_item.done"],
    "reasoning": ["output_item.added", "content_part.added", "reasoning_text.delta", "reasoning_text.done",
                  "content_part.done", "output_item.done"],
    "function_call": ["output_item.added", "function_call_arguments.delta", "function_call_arguments.done",
                      "output_item.done"],
}  # fmt: skip


@asynccontextmanager
async def calling(folder: Path, script: Script | None = None) -> AsyncGenerator[tuple[Stage, httpx.AsyncClient]]:
    """A client of a stage that answers `ASK` by the script."""
    async with serving(folder) as stage, client(app_of(stage)) as http:
        stage.runtime.play(ASK, script or Script(LENGTH, shows=SAID))
        yield stage, http


async def asked(http: httpx.AsyncClient, **fields: Any) -> list[dict[str, Any]]:
    """The events of a streamed create, numbered from 0 without a gap, with one end."""
    answer = await http.post("/v1/responses", json={**BODY, **fields})
    assert answer.status_code == 200, answer.text
    found = events(answer.text)
    assert [event["sequence_number"] for event in found] == list(range(len(found)))
    ends = [event["type"] for event in found if event["type"] in TERMINAL_TYPES]
    assert ends == [found[-1]["type"]]
    return found


def of_items(found: list[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """The events of each item, by its id, in their order."""
    items: dict[str, list[dict[str, Any]]] = {}
    for event in found:
        if "output_index" in event:
            items.setdefault(event.get("item_id") or event["item"]["id"], []).append(event)
    return items


def without_repeats(kinds: list[str]) -> list[str]:
    """Several of the same in a row are one."""
    return [kind for n, kind in enumerate(kinds) if n == 0 or kinds[n - 1] != kind]


@pytest.mark.proves("A-01", "A-02")
@pytest.mark.parametrize("logprobs", [False, True])
@scenario
async def test_each_item_has_its_whole_life_in_the_stream(tmp_path: Path, logprobs: bool) -> None:
    """Added, part added, deltas, done with all of it, part done, item done; one after the other, then the end."""
    async with calling(tmp_path) as (_, http):
        include = ["message.output_text.logprobs"] if logprobs else []
        found = await asked(http, include=include)
    kinds = [event["type"].removeprefix("response.") for event in found]
    assert kinds[:2] == ["created", "in_progress"]
    response = found[-1]["response"]
    lives = of_items(found)
    assert list(lives) == [item["id"] for item in response["output"]]
    assert [item["type"] for item in response["output"]] == [
        *("reasoning", "message", "function_call", "function_call", "message")
    ]
    assert [event for life in lives.values() for event in life] == found[2:-1]
    for place, (name, life) in enumerate(lives.items()):
        item = response["output"][place]
        told = [event["type"].removeprefix("response.") for event in life]
        assert without_repeats(told) == TYPES_OF[item["type"]], name
        assert {event["output_index"] for event in life} == {place}
        adds_up(item, life)


def adds_up(item: dict[str, Any], life: list[dict[str, Any]]) -> None:
    """The deltas are the text that is told at the end of the part, in the item and in the response."""
    joined = "".join(event["delta"] for event in life if event["type"].endswith(".delta"))
    assert life[-1]["item"] == item
    if item["type"] == "function_call":
        assert joined == life[-2]["arguments"] == item["arguments"]
        return
    (part,) = item["content"]
    assert {event["content_index"] for event in life if "content_index" in event} == {0}
    assert joined == life[-3]["text"] == life[-2]["part"]["text"] == part["text"]
    if item["type"] == "message":
        assert (part["annotations"], life[1]["part"]["annotations"]) == ([], [])
        parts = [event["logprobs"] for event in life if event["type"].endswith("text.delta")]
        assert all(isinstance(each, list) for each in parts)
        told = [each["token"] for logprobs in parts for each in logprobs]
        assert told == [each["token"] for each in life[-3]["logprobs"]] == [x["token"] for x in part["logprobs"]]


@pytest.mark.proves("A-01", "B-09")
@pytest.mark.parametrize("how", ENDS)
@pytest.mark.parametrize("background", [False, True])
@scenario
async def test_every_stream_has_one_end_and_the_row_is_the_same(tmp_path: Path, how: str, background: bool) -> None:
    """However the engine ends in mid-reply: one terminal event, as the response is stored, and nothing after it."""
    fields, troubles, status, code = ENDS[how]
    async with calling(tmp_path, Script(LENGTH, shows=SAID, troubles=list(troubles))) as (_, http):
        found = await asked(http, background=background, **fields)
        last = found[-1]
        assert last["type"] == f"response.{status}"
        stored = (await http.get(f"/v1/responses/{last['response']['id']}")).json()
        assert stored == last["response"]
        assert (stored["status"], stored["error"] and stored["error"]["code"]) == (status, code)
        assert "/home/ada" not in json.dumps(found)
        given = sum(event["type"] == "response.output_item.added" for event in found)
        done = sum(event["type"] == "response.output_item.done" for event in found)
        assert given == done == len(stored["output"])
        if status == "completed":
            assert len(stored["output"]) == 5


@pytest.mark.proves("B-09")
@scenario
async def test_a_cancelled_stream_has_its_one_end_too(tmp_path: Path) -> None:
    """In mid-reply, for the viewer who is there and for the one who comes later."""
    async with calling(tmp_path, Script(LENGTH, shows=SAID, gates={3: asyncio.Event()})) as (stage, http):
        viewer = asyncio.create_task(asked(http, background=True))
        held = await stage.store.until("r0001", lambda task: task.tokens_kept == 3)
        answer = await http.post(f"/v1/responses/resp_{held.ident}/cancel")
        found = await viewer
        assert found[-1]["type"] == "response.cancelled"
        assert found[-1]["response"] == answer.json()
        assert events((await http.get(f"/v1/responses/resp_{held.ident}?stream=true")).text) == found


@pytest.mark.proves("B-11")
@pytest.mark.parametrize("how", ["foreground stream", "background stream", "foreground", "background poll"])
@scenario
async def test_a_failure_after_the_first_tokens_is_told_and_keeps_what_was_written(tmp_path: Path, how: str) -> None:
    """By the event with the next number and by each read alike, with code and message and the text so far."""
    script = Script(LENGTH, shows=SAID, troubles=[(4, JobFailed("the model gave no number"))])
    async with calling(tmp_path, script) as (stage, http):
        body = {**BODY, "background": "background" in how, "stream": "stream" in how}
        answer = await http.post("/v1/responses", json=body)
        assert answer.status_code == (202 if how == "background poll" else 200)
        await stage.ended("r0001")
        path = "/v1/responses/resp_r0001"
        stored, replay = (await http.get(path)).json(), events((await http.get(f"{path}?stream=true")).text)
    assert stored["status"] == "failed"
    assert stored["error"] == {"code": "generation_failed", "message": "the model gave no number"}
    assert [item["content"][0]["text"] for item in stored["output"]] == ["Let me think.", "It is warm."]
    assert (replay[-1]["type"], replay[-1]["response"]) == ("response.failed", stored)
    assert [event["sequence_number"] for event in replay] == list(range(len(replay)))
    if "stream" in how:
        assert events(answer.text) == replay
    elif how == "foreground":
        assert answer.json() == stored


@pytest.mark.proves("A-04")
@pytest.mark.parametrize("retried", [False, True])
@scenario
async def test_the_first_event_is_the_created_one_and_no_id_ever_changes(tmp_path: Path, retried: bool) -> None:
    """In events, at the end, in later reads, after a restart; the official helper is content with all of it, also
    where a text was begun anew, which is told by an event of our own."""
    script = Script(LENGTH, shows=SAID, gates={6: asyncio.Event()} if retried else {})
    async with calling(tmp_path, script) as (stage, http):
        ident = await stage.submit(ASK, on_restart=OnRestart.RETRY)
        if retried:
            await stage.store.until(ident, lambda task: task.tokens_kept == 6)
            script.gates[6].set()
            await stage.restart()
        await stage.ended(ident)
        path = f"/v1/responses/resp_{ident}"
        app = app_of(stage)
        async with client(app) as later:
            seen = [events((await later.get(f"{path}?stream=true")).text) for _ in range(2)]
            reads = [(await later.get(path)).json() for _ in range(3)]
        async with Caller(app) as official, official.responses.stream(response_id=f"resp_{ident}") as helped:
            types = [event.type async for event in helped]
            final = await helped.get_final_response()
        del http
    found = seen[0]
    assert seen[1] == found
    assert (found[0]["type"], found[0]["sequence_number"]) == ("response.created", 0)
    assert {event["response"]["id"] for event in found if "response" in event} == {f"resp_{ident}"}
    begun = [event["item"]["id"] for event in found if event["type"] == "response.output_item.added"]
    ended = [event["item"]["id"] for event in found if event["type"] == "response.output_item.done"]
    assert begun == ended
    assert len(set(begun)) == len(begun)
    assert reads == [found[-1]["response"]] * 3
    assert [item["id"] for item in reads[0]["output"]] == begun[-5:]
    own = [event["type"] for event in found if not event["type"].startswith("response.")]
    assert own == (["perdure:task.retried"] if retried else [])
    assert types == [event["type"] for event in found]
    assert (final.id, [item.to_dict()["id"] for item in final.output]) == (f"resp_{ident}", begun[-5:])


@pytest.mark.proves("A-11")
@scenario
async def test_a_response_has_every_key_that_it_needs(tmp_path: Path) -> None:
    """Lists that are empty are there, what is not is null, times are numbers; strictly as the client declares it."""
    async with calling(tmp_path) as (_, http):
        response = (await http.post("/v1/responses", json={**BODY, "stream": False})).json()
        _, message, call, _, _ = response["output"]
        (part,) = message["content"]
    assert part == {"type": "output_text", "text": "It is warm.", "annotations": [], "logprobs": part["logprobs"]}
    assert isinstance(part["logprobs"], list)
    assert call.keys() == {"id", "type", "status", "call_id", "name", "arguments"}
    assert response["usage"] == {
        "input_tokens": len(ASK),
        "output_tokens": LENGTH,
        "total_tokens": len(ASK) + LENGTH,
        "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
        "output_tokens_details": {"reasoning_tokens": 2},
    }
    shown = {"parallel_tool_calls": True, "tool_choice": "auto", "tools": [], "error": None,
             "incomplete_details": None, "metadata": {}, "object": "response"}  # fmt: skip
    assert {name: response[name] for name in shown} == shown
    assert all(isinstance(response[name], int) for name in ("created_at", "completed_at"))
