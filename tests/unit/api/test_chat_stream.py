"""Chunks against the completion: what a stream adds up to is what the same response says in one piece."""

import json
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from openai.lib.streaming.chat import ChatCompletionStreamState
from openai.types.chat import ChatCompletion, ChatCompletionChunk

from perdure.api.chat_answer import completion, failure
from perdure.api.chat_stream import Chunks
from perdure.domain.events import Event
from perdure.domain.journal import Journal
from perdure.domain.parts import CallArguments, CallBegin, CallEnd, Logprob, Part, Reasoning, Text, TopLogprob
from perdure.domain.recovery import OnRestart
from perdure.domain.request import CreateRequest
from perdure.domain.response import Response, ResponseError

NOW = 1_790_000_000
LIKELY = Logprob("a", -0.5, (97,), (TopLogprob("a", -0.5, (97,)), TopLogprob("b", -1.5, (98,))))


def request(**more: Any) -> CreateRequest:
    """A chat request."""
    return CreateRequest(
        model="m",
        instructions=None,
        background=False,
        store=False,
        temperature=1.0,
        top_p=1.0,
        max_output_tokens=None,
        metadata={"k": "v"},
        seed=7,
        on_restart=OnRestart.FAIL,
        ignored=("messages[0].name",),
        **more,
    )


def log(batches: Sequence[Sequence[Part]], end: str, **more: Any) -> list[Event]:
    """The events of a response that ended this way."""
    journal = Journal("X", NOW, request(**more), 3)
    events = journal.create() + journal.claim()
    for batch in batches:
        events += journal.write(batch, (1,))
    ends = {
        "completed": lambda: journal.finish(NOW + 1),
        "incomplete": journal.cut,
        "failed": lambda: journal.fail(ResponseError("generation_failed", "It broke.", "badly")),
        "cancelled": journal.cancel,
    }
    return events + ends[end]()


def frames(events: Sequence[Event], *, include_usage: bool = False) -> list[str]:
    """What stands behind `data:` in each frame."""
    render = Chunks(include_usage=include_usage)
    sent = [frame.decode() for event in events for frame in render(event)]
    assert all(frame.startswith("data: ") and frame.endswith("\n\n") and "\n" not in frame[:-2] for frame in sent)
    return [frame.removeprefix("data: ").strip() for frame in sent]


def chunks(events: Sequence[Event], *, include_usage: bool = False) -> list[dict[str, Any]]:
    """The chunks of a stream that ends well."""
    *sent, done = frames(events, include_usage=include_usage)
    assert done == "[DONE]"
    return [json.loads(each) for each in sent]


def whole(events: Sequence[Event], *, logprobs: bool = False) -> dict[str, Any]:
    """The completion of the same response."""
    snapshot = events[-1].snapshot
    assert snapshot is not None
    ended = msgspec.json.decode(snapshot, type=Response)
    assert failure(ended) is None
    return json.loads(msgspec.json.encode(completion(ended, logprobs=logprobs)))


def call(name: str, pieces: list[str]) -> list[Part]:
    """A call, its arguments in pieces."""
    return [CallBegin(name), *map(CallArguments, pieces), CallEnd()]


def one(kind: type[Text] | type[Reasoning], shown: str) -> list[Part]:
    """One part."""
    return [kind(shown)]


WORD = st.text(max_size=5)
ANSWERS = st.lists(
    st.one_of(
        st.builds(one, st.sampled_from([Text, Reasoning]), WORD),
        st.builds(call, st.sampled_from(["look_up", "add"]), st.lists(WORD, max_size=4)),
    ),
    max_size=8,
)
"""What a model may write: text, reasoning and calls in any order and any cut."""


@settings(max_examples=30)  # the accumulator of the client is slow
@given(ANSWERS, st.sampled_from(["completed", "incomplete"]))
def test_the_chunks_add_up_to_the_completion(batches: list[list[Part]], end: str) -> None:
    """The official accumulator makes of the chunks what the caller would get without a stream."""
    events = log(batches, end)
    state = ChatCompletionStreamState()
    for chunk in chunks(events, include_usage=True):
        state.handle_chunk(ChatCompletionChunk.model_validate(chunk))
    found = state.current_completion_snapshot.to_dict(exclude_none=True)
    expected = ChatCompletion.model_validate(whole(events)).to_dict(exclude_none=True)
    assert plain(found) == plain(expected)


def plain(completed: dict[str, Any]) -> dict[str, Any]:
    """Without what the client adds to what it has put together, and the list that is empty in any case."""
    completed["object"] = "chat.completion"
    completed["choices"][0]["message"].pop("annotations", None)
    for call in completed["choices"][0]["message"].get("tool_calls", ()):
        call.pop("index", None)
    return completed


@settings(max_examples=50)
@given(ANSWERS, st.booleans())
def test_the_grammar_of_chunks(batches: list[list[Part]], include_usage: bool) -> None:
    """One id, one role chunk at the start, one reason at the end, then the counts if they were asked for."""
    sent = chunks(log(batches, "completed"), include_usage=include_usage)
    assert {(each["id"], each["created"], each["object"]) for each in sent} == {
        ("chatcmpl-X", NOW, "chat.completion.chunk")
    }
    choices = [each["choices"][0] for each in sent if each["choices"]]
    assert choices[0]["delta"] == {"role": "assistant", "content": None}
    assert [choice["finish_reason"] is not None for choice in choices] == [False] * (len(choices) - 1) + [True]
    assert all("role" not in choice["delta"] for choice in choices[1:])
    if include_usage:
        assert [each["usage"] for each in sent[:-1]] == [None] * len(choices)
        assert sent[-1]["choices"] == []
        assert sent[-1]["usage"]["total_tokens"] == 3 + len(batches)
    else:
        assert len(sent) == len(choices)
        assert not any("usage" in each for each in sent)


def test_the_pieces_of_two_calls() -> None:
    """Id, type and name come once and first; each piece says to which call it belongs."""
    batches: list[list[Part]] = [
        [Text("Let me see.")],
        [CallBegin("look_up"), CallArguments('{"a":')],
        [CallArguments("1}"), CallEnd(), CallBegin("add")],
        [CallArguments("{}"), CallEnd()],
    ]
    deltas = [each["choices"][0]["delta"] for each in chunks(log(batches, "completed"))]
    pieces = [piece for delta in deltas for piece in delta.get("tool_calls", ())]
    assert pieces == [
        {"index": 0, "id": "call_X_1", "type": "function", "function": {"name": "look_up", "arguments": ""}},
        {"index": 0, "function": {"arguments": '{"a":'}},
        {"index": 0, "function": {"arguments": "1}"}},
        {"index": 1, "id": "call_X_2", "type": "function", "function": {"name": "add", "arguments": ""}},
        {"index": 1, "function": {"arguments": "{}"}},
    ]
    assert deltas[1] == {"content": "Let me see."}


@pytest.mark.proves("A-14")
@pytest.mark.parametrize(
    ("batches", "end", "content", "reason"),
    [
        ([[Text("Hi.")]], "completed", "Hi.", "stop"),
        ([], "completed", "", "stop"),
        ([], "incomplete", "", "length"),
        ([[Text("Hi")]], "incomplete", "Hi", "length"),
        ([[Reasoning("hm")]], "incomplete", "", "length"),
        ([[CallBegin("add"), CallArguments("{}"), CallEnd()]], "completed", None, "tool_calls"),
        ([[CallBegin("add"), CallArguments("{")]], "incomplete", None, "length"),
        ([[Text("So:"), CallBegin("add"), CallEnd(), Text("!")]], "completed", "So:!", "tool_calls"),
    ],
)
def test_content_and_reason(batches: list[list[Part]], end: str, content: str | None, reason: str) -> None:
    """Null stands for no text beside calls only; a call that was cut off is not announced as one to be made."""
    choice = whole(log(batches, end))["choices"][0]
    assert (choice["message"]["content"], choice["finish_reason"]) == (content, reason)
    assert chunks(log(batches, end))[-1]["choices"][0]["finish_reason"] == reason


def test_reasoning_has_a_place_of_its_own() -> None:
    """It is no part of the content."""
    batches: list[list[Part]] = [[Reasoning("Think")], [Reasoning("ing.")], [Text("So.")]]
    message = whole(log(batches, "completed"))["choices"][0]["message"]
    assert (message["reasoning_content"], message["content"]) == ("Thinking.", "So.")
    assert "reasoning_content" not in whole(log([[Text("So.")]], "completed"))["choices"][0]["message"]


def test_logprobs_where_they_were_asked_for() -> None:
    """They go with their text, and null stands where there are none."""
    events = log([[Text("a", (LIKELY,))], [Text("a", (LIKELY,))]], "completed", logprobs=True, top_logprobs=2)
    expected = json.loads(msgspec.json.encode([LIKELY]))
    assert whole(events, logprobs=True)["choices"][0]["logprobs"] == {"content": expected * 2, "refusal": None}
    assert whole(events)["choices"][0]["logprobs"] is None
    said = [each["choices"][0]["logprobs"] for each in chunks(events)]
    assert said == [None, *[{"content": expected, "refusal": None}] * 2, None]


@pytest.mark.parametrize(("end", "code"), [("failed", "generation_failed"), ("cancelled", "response_cancelled")])
def test_a_failure_is_the_last_frame(end: str, code: str) -> None:
    """The official clients raise on it. [DONE], or silence, would make the text look whole."""
    *before, last = frames(log([[Text("Hal")]], end), include_usage=True)
    assert json.loads(last)["error"]["code"] == code
    assert [json.loads(each)["choices"][0]["finish_reason"] for each in before] == [None, None]


def test_the_reason_of_a_failure_is_told_whole() -> None:
    """The finer reason too, where there is one."""
    error = json.loads(frames(log([], "failed"))[-1])["error"]
    assert error == {
        "message": "It broke. (badly)",
        "type": "server_error",
        "param": None,
        "code": "generation_failed",
    }


def test_what_had_no_effect_is_told_in_the_first_chunk() -> None:
    """Early enough for a caller who does not want the rest."""
    first, *others = chunks(log([[Text("Hi.")]], "completed"))
    assert first["perdure"]["ignored"] == ["messages[0].name"]
    assert (first["seed"], first["metadata"]) == (7, {"k": "v"})
    assert not any({"perdure", "seed", "metadata"} & each.keys() for each in others)
