"""Functions and formats, from a prompt through both children to the answer."""

import asyncio
import json
import re
import time
from pathlib import Path
from typing import Any

import msgspec
import psutil
import pytest

from perdure.domain.errors import InvalidRequest, ModelUnavailable
from perdure.domain.model import JsonSchema, Message, Prompt, Tool, ToolCall, ToolChoice
from perdure.domain.parts import CallArguments, CallBegin, CallEnd, Part, joined
from perdure.ports.runtime import End, PromptTooLong
from perdure.runtime.llamacpp.bundled import RECOMMENDED
from perdure.runtime.llamacpp.supervisor import LlamaRuntime
from tests.integration.runtime.tools import draw, make_job, run, running, text_of, until

ASKED = (Message("user", "Where?"),)
PLACE = {
    "type": "object",
    "properties": {"x": {"type": "integer", "minimum": 0, "maximum": 99}, "side": {"enum": ["left", "right"]}},
    "required": ["x", "side"],
    "additionalProperties": False,
}
GO = Tool("go", "Goes there.", PLACE)


async def answer(runtime: LlamaRuntime, prompt: Prompt, seed: int = 1) -> list[Part]:
    """A whole answer, which must end by itself."""
    encoded = await runtime.encode("m", prompt)
    job = msgspec.structs.replace(make_job(seed, prompt=encoded.tokens, tokens=300), shape=encoded.shape)
    pieces = await draw(runtime, job)
    assert pieces[-1].end is End.STOP
    return joined(part for piece in pieces for part in piece.parts)


def is_place(text: str) -> bool:
    """Whether the text is JSON of `PLACE`."""
    value = json.loads(text)
    return set(value) == {"x", "side"} and 0 <= value["x"] <= 99 and value["side"] in ("left", "right")


@pytest.mark.parametrize("bundled", [False, pytest.param(True, marks=pytest.mark.real_model)])
def test_a_model_that_draws_at_random_calls_functions_and_writes_json(
    tiny_model: Path, request: pytest.FixtureRequest, bundled: bool
) -> None:
    """Because it cannot do otherwise."""
    path = request.getfixturevalue("real_model") if bundled else tiny_model
    seeds = range(1 if bundled else 3)

    async def test() -> None:
        async with running(path) as runtime:
            await runtime.load("m")
            once = Prompt(ASKED, (GO, Tool("stay")), ToolChoice("required"), parallel=False)
            for seed in seeds:
                begin, arguments, end = await answer(runtime, once, seed)
                assert isinstance(begin, CallBegin)
                assert isinstance(arguments, CallArguments)
                assert isinstance(end, CallEnd)
                assert is_place(arguments.text) if begin.name == "go" else json.loads(arguments.text) == {}
            if bundled:
                return  # it takes its time
            written = Prompt(ASKED, format=JsonSchema("place", PLACE))
            encoded = await runtime.encode("m", written)
            job = msgspec.structs.replace(make_job(prompt=encoded.tokens, tokens=300), shape=encoded.shape)
            assert is_place(text_of(await draw(runtime, job)))

    run(test())


@pytest.mark.real_model
def test_the_bundled_model_calls_a_function_that_it_needs_and_answers_from_the_result(real_model: Path) -> None:
    """Of its own accord, though nobody taught it to; once, and not again when the result is there."""
    place = {"type": "object", "properties": {"location": {"type": "string"}}, "required": ["location"]}
    weather = (Tool("get_weather", "Get the current weather for a location", place),)
    question = Message("user", "What's the weather like in San Francisco?")
    called = Message("assistant", "", (ToolCall("c", "get_weather", '{"location": "San Francisco"}'),))
    result = Message("tool", "18 degrees, sunny", call_id="c")

    async def test() -> None:
        async with running(real_model, RECOMMENDED) as runtime:
            await runtime.load("m")

            async def kinds(*messages: Message) -> list[str]:
                encoded = await runtime.encode("m", Prompt(messages, weather))
                job = make_job(prompt=encoded.tokens, tokens=60, temperature=0.0, shape=encoded.shape)
                return [type(part).__name__ for piece in await draw(runtime, job) for part in piece.parts]

            drawn = await kinds(question)
            assert (drawn[0], drawn.count("CallBegin"), drawn.count("CallEnd")) == ("CallBegin", 1, 1)
            assert set(await kinds(Message("user", "Tell me a joke."))) == {"Text"}
            assert set(await kinds(question, called, result)) == {"Text"}

    run(test())


def refused(schema: dict[str, Any]) -> Prompt:
    return Prompt(ASKED, (Tool("good"), Tool("bad", None, schema)))


ENDLESS = [{"pattern": f".*a.{{{n}}}b.*"} for n in range(20, 40)]
"""Patterns that keep llguidance busy for hours."""


def test_a_prompt_is_refused_with_the_place_and_the_next_is_taken(tiny_model: Path) -> None:
    """What would bring a process down, or is too large to be looked at, is refused like a slip of the pen."""
    huge = {"type": "object", "description": "x" * 16_000_000}
    cases = [
        (refused({"properties": {"a": {"pattern": "("}}}), "tools[1].parameters.properties.a.pattern"),
        (refused({"type": "string"}), "tools[1].parameters.type"),
        (Prompt(ASKED, (GO,), ToolChoice("required", ())), "tool_choice"),
        (refused({"maximum": 2**70}), "tools"),
        (refused({"properties": {"a": {"type": "string", "allOf": ENDLESS}}}), "tools[1].parameters"),
        (Prompt(ASKED, format=JsonSchema("n", {"format": "x"}, strict=True)), "text.format.schema.format"),
    ]

    async def test() -> None:
        async with running(tiny_model) as runtime:
            await runtime.card("m")
            for prompt, param in cases:
                start = time.process_time()
                with pytest.raises(InvalidRequest) as caught:
                    await runtime.encode("m", prompt)
                assert (caught.value.param, caught.value.error_code) == (param, "invalid_request")
                assert time.process_time() - start < 1.0
                assert (await runtime.encode("m", Prompt(ASKED, (GO,)))).shape.calls == "tool_call"
            for prompt in (refused(huge), Prompt(ASKED, format=JsonSchema("n", huge))):
                with pytest.raises(PromptTooLong, match="bytes"):
                    await runtime.encode("m", prompt)

    run(test())


def test_schemas_that_take_long_hold_up_nobody(tiny_model: Path) -> None:
    """Neither who sends no schema nor who sends one that was sent before. A stop is told to who waits."""

    async def test() -> None:
        async with running(tiny_model) as runtime:
            await runtime.encode("m", Prompt(ASKED, (GO,)))
            long = [refused({"properties": {f"a{n}": {"type": "string", "allOf": ENDLESS}}}) for n in range(4)]
            waiting = [asyncio.create_task(runtime.encode("m", prompt)) for prompt in long]
            await until(lambda: len(_tried()) == 2)
            assert (await runtime.encode("m", Prompt(ASKED))).shape.grammar is None
            assert (await runtime.encode("m", Prompt(ASKED, (GO,)))).shape.calls == "tool_call"
            assert not any(task.done() for task in waiting)
        ends = await asyncio.gather(*waiting, return_exceptions=True)
        assert all(isinstance(end, ModelUnavailable) and _LOST.search(end.message) for end in ends), ends

    run(test())


SLOW = Prompt(ASKED, (Tool("slow", None, {"properties": {"n": {"type": "integer", "multipleOf": 30_011}}}),))
"""A schema without a fault that takes most of a second to try."""


@pytest.mark.parametrize("victim", ["trial", "tokenizer"])
def test_whoever_ends_a_trial_does_not_have_its_schemas_refused(tiny_model: Path, victim: str) -> None:
    """Twice in a row; the third time they are taken. The one who asked is told to try again."""

    async def test() -> None:
        async with running(tiny_model) as runtime:
            await runtime.card("m")
            for _ in range(2):
                waiting = asyncio.create_task(runtime.encode("m", SLOW))
                await until(_tried)
                (trial,) = _tried()
                (trial if victim == "trial" else psutil.Process(trial.ppid())).kill()
                with pytest.raises(ModelUnavailable, match="try again"):
                    await waiting
            assert (await runtime.encode("m", SLOW)).shape.calls == "tool_call"

    run(test())


_LOST = re.compile("ended|stopping")  # which of the two is found out first


def _tried() -> list[psutil.Process]:
    """The processes in which schemas are tried: those that children of this process have forked."""
    return [below for child in psutil.Process().children() for below in child.children()]
