"""`client.chat.completions` of the official client."""

import json

import openai
import pytest
from openai.types.chat import ChatCompletionMessageFunctionToolCall, ChatCompletionMessageParam

from .wishes import CHAT_WEATHER, REAL, SHORT, TINY, Fruit

QUESTION: ChatCompletionMessageParam = {"role": "user", "content": "What is the weather in Lima?"}


@pytest.mark.real_model
def test_create_and_stream_say_the_same(real: openai.OpenAI) -> None:
    """Asked for the likeliest tokens, the text is the same at once and in pieces, and as long as counted."""
    whole = real.chat.completions.create(model=REAL, messages=[QUESTION], temperature=0, max_completion_tokens=SHORT)
    assert whole.id.startswith("chatcmpl-")
    assert whole.usage is not None
    assert 0 < whole.usage.completion_tokens <= SHORT
    chunks = list(
        real.chat.completions.create(
            model=REAL,
            messages=[QUESTION],
            temperature=0,
            max_completion_tokens=SHORT,
            stream=True,
            stream_options={"include_usage": True},
        )
    )
    told = [chunk.choices[0] for chunk in chunks if chunk.choices]
    assert "".join(choice.delta.content or "" for choice in told) == whole.choices[0].message.content
    assert told[-1].finish_reason == whole.choices[0].finish_reason
    assert chunks[-1].choices == []
    assert chunks[-1].usage == whole.usage


@pytest.mark.real_model
def test_a_tool_is_called_and_its_result_fed_back(real: openai.OpenAI) -> None:
    """The call has arguments of its schema; with its result, the model goes on to a text."""
    called = real.chat.completions.create(
        model=REAL, messages=[QUESTION], tools=[CHAT_WEATHER], tool_choice="required", parallel_tool_calls=False
    )
    assert called.choices[0].finish_reason == "tool_calls"
    calls = called.choices[0].message.tool_calls
    assert calls is not None
    (call,) = calls
    assert isinstance(call, ChatCompletionMessageFunctionToolCall)
    assert json.loads(call.function.arguments)["city"] in ("Paris", "Lima")
    own: ChatCompletionMessageParam = {
        "role": "assistant",
        "tool_calls": [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.function.name, "arguments": call.function.arguments},
            }
        ],
    }
    result: ChatCompletionMessageParam = {"role": "tool", "tool_call_id": call.id, "content": "22 degrees"}
    answer = real.chat.completions.create(
        model=REAL,
        messages=[QUESTION, own, result],
        tools=[CHAT_WEATHER],
        tool_choice="none",
        max_completion_tokens=SHORT,
    )
    assert answer.choices[0].message.content


def test_parse(tiny: openai.OpenAI) -> None:
    """An answer of a given shape arrives as an object of it."""
    parsed = tiny.chat.completions.parse(model=TINY, messages=[QUESTION], response_format=Fruit)
    assert isinstance(parsed.choices[0].message.parsed, Fruit)


def test_the_stream_helper(tiny: openai.OpenAI) -> None:
    """The helper is content with every chunk, and reads a shape and a call from them."""
    with tiny.chat.completions.stream(model=TINY, messages=[QUESTION], response_format=Fruit) as stream:
        for _ in stream:
            pass
        assert isinstance(stream.get_final_completion().choices[0].message.parsed, Fruit)
    with tiny.chat.completions.stream(
        model=TINY, messages=[QUESTION], tools=[CHAT_WEATHER], tool_choice="required", parallel_tool_calls=False
    ) as stream:
        kinds = [event.type for event in stream]
        (choice,) = stream.get_final_completion().choices
    assert "tool_calls.function.arguments.done" in kinds
    assert choice.message.tool_calls is not None
    assert json.loads(choice.message.tool_calls[0].function.arguments)["city"] in ("Paris", "Lima")


def test_chats_are_not_kept_and_say_so(tiny: openai.OpenAI) -> None:
    """What reads or changes a kept chat is refused, and names what is kept instead."""
    for call in (
        lambda: tiny.chat.completions.list(limit=5),
        lambda: tiny.chat.completions.retrieve("chatcmpl-1"),
        lambda: tiny.chat.completions.update("chatcmpl-1", metadata={}),
        lambda: tiny.chat.completions.delete("chatcmpl-1"),
        lambda: tiny.chat.completions.messages.list("chatcmpl-1"),
    ):
        with pytest.raises(openai.InternalServerError) as later:
            call()
        assert later.value.code == "not_implemented"
        assert "/v1/responses" in later.value.message


def test_errors(tiny: openai.OpenAI) -> None:
    """They name the field as this interface has it."""
    with pytest.raises(openai.BadRequestError) as bad:
        tiny.chat.completions.create(model=TINY, messages=[], max_completion_tokens=1)
    assert bad.value.param == "messages"
    with pytest.raises(openai.NotFoundError) as unknown:
        tiny.chat.completions.create(model="gpt-4o", messages=[QUESTION])
    assert unknown.value.code == "model_not_found"
