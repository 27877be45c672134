"""Frameworks that people build agents with, unchanged, on the tiny model: what to call is forced, and every step of
the mechanics is theirs and ours."""

import asyncio
from collections.abc import Callable, Generator
from typing import Any, Literal, cast

import httpx
import openai
import pytest
from agents import (
    Agent,
    FunctionToolResult,
    ModelSettings,
    OpenAIResponsesModel,
    RunConfig,
    Runner,
    ToolsToFinalOutputResult,
    function_tool,
)
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, HumanMessage, ToolMessage
from langchain_openai import ChatOpenAI

from tests.system.server import Server
from tests.witness import watched

from .wishes import SHORT, TINY, Weather


def test_openai_agents_runs_an_agent_with_two_tools(tiny_server: Server) -> None:
    """It calls both, one after the other, each with arguments that the function takes, and its result goes back."""
    called: list[str] = []

    @function_tool
    def get_weather(city: Literal["Paris", "Lima"]) -> str:
        """The weather in a city."""
        called.append(f"weather in {city}")
        agent.model_settings = forced("get_time")
        return "22 degrees"

    @function_tool
    def get_time(zone: Literal["west", "east"]) -> str:
        """The time in a zone."""
        called.append(f"time in {zone}")
        return "noon"

    def both(_: object, results: list[FunctionToolResult]) -> ToolsToFinalOutputResult:
        (result,) = results
        return ToolsToFinalOutputResult(is_final_output=result.tool.name == "get_time", final_output=result.output)

    agent = Agent[None](
        name="clerk",
        instructions="Use the tools.",
        model_settings=forced("get_weather"),
        tools=[get_weather, get_time],
        tool_use_behavior=both,
        reset_tool_choice=False,
    )

    async def run() -> Any:
        async with openai.AsyncOpenAI(base_url=f"{tiny_server.url}/v1", api_key=tiny_server.token) as client:
            agent.model = OpenAIResponsesModel(TINY, watched(client))
            without_reports = RunConfig(tracing_disabled=True)
            return await Runner.run(agent, "How is it in Lima?", max_turns=2, run_config=without_reports)

    assert asyncio.run(run()).final_output == "noon"
    assert [each.partition(" in ")[0] for each in called] == ["weather", "time"]
    assert {each.partition(" in ")[2] for each in called} <= {"Paris", "Lima", "west", "east"}


def forced(tool: str) -> ModelSettings:
    """The agent has to call this tool: left to itself, the tiny model would say noise."""
    return ModelSettings(tool_choice=tool, parallel_tool_calls=False)


@pytest.fixture
def http() -> Generator[httpx.Client]:
    """What LangChain's client sends by; its own one is shared with all others, and nobody closes it."""
    with httpx.Client(timeout=60, trust_env=False) as client:
        yield watched(client)


@pytest.mark.parametrize("responses", [True, False], ids=["responses", "chat completions"])
def test_langchain_streams_and_calls_a_tool(tiny_server: Server, http: httpx.Client, responses: bool) -> None:
    """It reads a text in pieces, gets a call with arguments of the tool's schema, and sends the result back."""
    llm = ChatOpenAI(
        model=TINY,
        base_url=f"{tiny_server.url}/v1",
        api_key=lambda: tiny_server.token,
        use_responses_api=responses,
        max_retries=0,
        http_client=http,
    )
    pieces = list(llm.bind(max_tokens=SHORT).stream("Tell me a story."))
    assert len(pieces) > 1
    assert all(isinstance(piece, AIMessageChunk) for piece in pieces)
    assert "".join(text_of(piece) for piece in pieces)
    armed = cast("Callable[..., Any]", llm.bind_tools)([Weather], tool_choice="required", parallel_tool_calls=False)
    asked = HumanMessage("What is the weather in Lima?")
    answer = cast("AIMessage", armed.invoke([asked]))
    (call,) = answer.tool_calls
    assert Weather.model_validate(call["args"])
    told = llm.bind(max_tokens=SHORT).invoke([asked, answer, ToolMessage("22 degrees", tool_call_id=call["id"])])
    assert text_of(told)


def text_of(message: BaseMessage) -> str:
    """The text of a message, in whatever form it came."""
    return str(message.text)
