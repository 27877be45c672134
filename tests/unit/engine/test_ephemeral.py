"""What is not to be stored is there for a minute after its end, and then in no byte of the data folder. (That it
goes while the service runs, and from log, metrics and backups too, is shown with a real one.)"""

from pathlib import Path

import pytest
from tests.unit.engine.stage import Stage, scenario, started, user

from perdure.domain.errors import NotFound
from perdure.domain.limits import EPHEMERAL_KEEP_SECONDS
from perdure.domain.model import JsonSchema, Tool
from perdure.domain.parts import CallArguments, CallBegin, CallEnd, Part, Reasoning, Text
from perdure.testing.scripted_runtime import Script

from .conversing import answered, call, chained, result

SAID = (
    "prompt",
    "instructions",
    "metadata",
    "tool",
    "schema",
    "argument",
    "result",
    "caller",
    "text",
    "reasoning",
    "called",
)
MARKS = {name: f"quartz-{name}" for name in SAID}


def found(folder: Path) -> set[str]:
    """Which marks stand in any file."""
    contents = [file.read_bytes() for file in folder.rglob("*") if file.is_file()]
    return {mark for mark in (*MARKS.values(), "granite") if any(mark.encode() in content for content in contents)}


async def ephemeral(stage: Stage) -> str:
    """A response with a mark in every field of its request and in all that it writes."""
    shows: dict[int, tuple[Part, ...]] = {
        0: (Reasoning(MARKS["reasoning"]),),
        1: (Text(MARKS["text"]),),
        2: (CallBegin("f"), CallArguments(f'{{"a":"{MARKS["called"]}"}}'), CallEnd()),
    }
    prompt = f"{MARKS['instructions']}granite{MARKS['prompt']}{MARKS['result']}"
    stage.runtime.play("granite", Script(1))
    stored = await answered(stage, [user("granite")])
    stage.runtime.play(prompt, Script(4, shows=shows))
    items = [user(MARKS["prompt"]), call("c1", f'{{"a":"{MARKS["argument"]}"}}'), result("c1", MARKS["result"])]
    return await answered(
        stage,
        items,
        store=False,
        instructions=MARKS["instructions"],
        metadata={"key": MARKS["metadata"]},
        tools=(Tool(MARKS["tool"], "what", {"type": "object"}),),
        format=JsonSchema("name", {"title": MARKS["schema"]}),
        user=MARKS["caller"],
        **chained(stored),
    )


@pytest.mark.proves("C-19")
@scenario
async def test_after_its_minute_nothing_of_it_is_left(tmp_path: Path) -> None:
    """Up to then it can be read; what it went on from stays."""
    async with started(tmp_path) as stage:
        ident = await ephemeral(stage)
        assert {item["type"] for item in (await stage.response(ident))["output"]} == {
            "reasoning",
            "message",
            "function_call",
        }
        assert found(tmp_path) == {*MARKS.values(), "granite"}
        stage.clock.advance(EPHEMERAL_KEEP_SECONDS - 1)
        await stage.response(ident)
        assert ident not in [
            name
            for name, _ in (await stage.engine.responses(stage.principal, limit=9, after=None, ascending=True)).data
        ]
        stage.clock.advance(1)
        for read in (
            stage.engine.response(stage.principal, ident),
            stage.engine.input_items(stage.principal, ident, limit=1, after=None, ascending=True),
        ):
            with pytest.raises(NotFound):
                await read
        await stage.store.gone(ident)
        assert stage.reports == []
    assert found(tmp_path) == {"granite"}
