"""Messages of a chat request as items: what each becomes, what is left out and named, and where errors point."""

from collections.abc import Iterator
from typing import Any

import pytest
from openai.types.chat import (
    ChatCompletionAssistantMessageParam,
    ChatCompletionDeveloperMessageParam,
    ChatCompletionSystemMessageParam,
    ChatCompletionToolMessageParam,
    ChatCompletionUserMessageParam,
)

from perdure.api import chat_messages, input_items
from perdure.domain.errors import InvalidRequest
from perdure.domain.items import Item, conversation
from perdure.domain.limits import INPUT_ITEMS_MAX
from perdure.domain.model import Message, ToolCall

from .harness import GONE, NOT_HERE, TYPE, VALUE
from .sdk_cases import Cases, fields_of

HELLO = {"role": "user", "content": "hello"}
CALL = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"a":1}'}}
CALLED = {"role": "assistant", "content": None, "tool_calls": [CALL]}
RESULT = {"role": "tool", "tool_call_id": "c1", "content": "2"}


def items(*messages: dict[str, Any]) -> list[Item]:
    """The items of messages that hold nothing without effect."""
    found = chat_messages.read(list(messages))
    assert found.ignored == []
    return found.items


def ignored(*messages: dict[str, Any]) -> list[str]:
    """What is named."""
    return chat_messages.read(list(messages)).ignored


def refused(value: object) -> InvalidRequest:
    """The error for `messages`."""
    with pytest.raises(InvalidRequest) as error:
        chat_messages.read(value)
    return error.value


@pytest.mark.parametrize("role", ["system", "developer", "user", "assistant"])
@pytest.mark.parametrize("content", ["hello", [{"type": "text", "text": "hel"}, {"type": "text", "text": "lo"}]])
def test_messages_are_what_they_are_in_a_create_of_a_response(role: str, content: Any) -> None:
    """The same items, so the same prompt."""
    message = {"role": role, "content": content}
    assert items(message) == input_items.read([message]).items


def test_a_round_of_tools() -> None:
    """What a model reads: the call with its arguments, and the result by the name of the call."""
    other = {**CALL, "id": "c2"}
    said = {"role": "assistant", "content": "Let me see.", "tool_calls": [CALL, other]}
    results = [{**RESULT, "tool_call_id": "c2"}, {**RESULT, "content": [{"type": "text", "text": "3"}]}]
    calls = ["messages[1].tool_calls[0]", "messages[1].tool_calls[1]"]
    places = ["messages[0]", "messages[1]", *calls, "messages[2]", "messages[3]"]
    assert chat_messages.read([HELLO, said, *results]).places == places
    assert conversation(None, items(HELLO, said, *results)) == (
        Message("user", "hello"),
        Message("assistant", "Let me see.", (ToolCall("c1", "f", '{"a":1}'), ToolCall("c2", "f", '{"a":1}'))),
        Message("tool", "2", call_id="c2"),
        Message("tool", "3", call_id="c1"),
    )


@pytest.mark.parametrize("content", [{}, {"content": None}, {"content": ""}, {"content": []}])
def test_calls_need_no_content(content: dict[str, Any]) -> None:
    """Null, absence and emptiness beside calls are no message of their own."""
    said = {"role": "assistant", "tool_calls": [CALL], **content}
    assert [item["type"] for item in items(HELLO, said, RESULT)] == [
        "message",
        "function_call",
        "function_call_output",
    ]


def test_an_answer_is_taken_back_as_the_client_dumps_it() -> None:
    """With every member that the client's type declares, most of them null."""
    dumped = {"content": "Hi.", "refusal": None, "annotations": None, "audio": None, "function_call": None}
    assert items(HELLO, {"role": "assistant", **dumped, "tool_calls": None})[1]["content"][0]["text"] == "Hi."
    assert items(HELLO, {"role": "assistant", **dumped, "annotations": [], "tool_calls": []})


def test_a_refusal_is_text() -> None:
    """Beside the content or in it."""
    inside = {"role": "assistant", "content": [{"type": "refusal", "refusal": "No."}]}
    assert conversation(None, items(HELLO, inside))[1].content == "No."
    assert items(HELLO, inside)[1] == items(HELLO, {"role": "assistant", "content": None, "refusal": "No."})[1]


@pytest.mark.parametrize(
    ("part", "kept"),
    [
        (
            {"type": "image_url", "image_url": {"url": "data:x", "detail": "low"}},
            {"type": "input_image", "image_url": "data:x", "detail": "low"},
        ),
        (
            {"type": "image_url", "image_url": {"url": "data:x"}},
            {"type": "input_image", "image_url": "data:x", "detail": "auto"},
        ),
        (
            {"type": "input_audio", "input_audio": {"data": "x", "format": "wav"}},
            {"type": "input_audio", "input_audio": {"data": "x", "format": "wav"}},
        ),
        ({"type": "file", "file": {"file_id": "x"}}, {"type": "input_file", "file_id": "x"}),
    ],
)
def test_what_is_no_text_is_kept_left_out_and_named(part: dict[str, Any], kept: dict[str, Any]) -> None:
    """The model reads the rest."""
    message = {"role": "user", "content": [{"type": "text", "text": "Look:"}, part]}
    assert ignored(message) == ["messages[0].content[1]"]
    found = chat_messages.read([message]).items
    assert found[0]["content"][1] == kept
    assert conversation(None, found) == (Message("user", "Look:"),)


@pytest.mark.parametrize(
    ("message", "path"),
    [
        ({**HELLO, "name": "Ann"}, "messages[0].name"),
        ({**HELLO, "x": 0}, "messages[0].x"),
        ({**HELLO, "tool_calls": [CALL]}, "messages[0].tool_calls"),
        ({"role": "assistant", "content": "x", "reasoning_content": "hm"}, "messages[0].reasoning_content"),
        ({"role": "assistant", "content": "x", "audio": {"id": "a"}}, "messages[0].audio"),
        (
            {"role": "user", "content": [{"type": "text", "text": "x", "cache_control": {"type": "ephemeral"}}]},
            "messages[0].content[0].cache_control",
        ),
    ],
)
def test_members_without_effect_are_named(message: dict[str, Any], path: str) -> None:
    """They change no text."""
    assert ignored(message) == [path]


def test_a_call_that_was_cut_off_is_left_out_with_its_result() -> None:
    """No template could show it. What its caller made of it goes too, and both are named."""
    broken = {**CALL, "function": {"name": "f", "arguments": '{"a":'}}
    said = {"role": "assistant", "content": "So:", "tool_calls": [broken]}
    found = chat_messages.read([HELLO, said, RESULT])
    assert found.ignored == ["messages[1].tool_calls[0]", "messages[2]"]
    assert [item["type"] for item in found.items] == ["message", "message"]
    assert found.places == ["messages[0]", "messages[1]"]


@pytest.mark.parametrize("kind", [{}, {"type": None}])
def test_a_call_whose_type_is_not_said_is_one_of_a_function(kind: dict[str, Any]) -> None:
    """As clients leave it that put a call together from the pieces of a stream."""
    call = {key: value for key, value in CALL.items() if key != "type"} | kind
    assert items(HELLO, {"role": "assistant", "tool_calls": [call]}) == items(
        HELLO, {"role": "assistant", "tool_calls": [CALL]}
    )


def test_a_call_without_arguments_has_none() -> None:
    """Some clients put them together from no pieces at all."""
    empty = {**CALL, "function": {"name": "f", "arguments": ""}}
    assert items(HELLO, {**CALLED, "tool_calls": [empty]})[1]["arguments"] == "{}"


@pytest.mark.parametrize(
    ("value", "param", "code"),
    [
        (None, "messages", GONE),
        ("hello", "messages", TYPE),
        ([], "messages", "empty_input"),
        ([{**HELLO, "content": ""}], "messages", "empty_input"),
        ([HELLO] * (INPUT_ITEMS_MAX + 1), "messages", "out_of_range"),
        (["hello"], "messages[0]", TYPE),
        ([{"content": "x"}], "messages[0].role", GONE),
        ([{**HELLO, "role": "critic"}], "messages[0].role", VALUE),
        ([{"role": "function", "name": "f", "content": "x"}], "messages[0].role", NOT_HERE),
        ([HELLO, {"role": "user"}], "messages[1].content", GONE),
        ([HELLO, {"role": "assistant", "content": None}], "messages[1].content", GONE),
        ([{**HELLO, "content": 5}], "messages[0].content", TYPE),
        ([{**HELLO, "content": ["x"]}], "messages[0].content[0]", TYPE),
        ([{**HELLO, "content": [{"text": "x"}]}], "messages[0].content[0].type", GONE),
        ([{**HELLO, "content": [{"type": 5}]}], "messages[0].content[0].type", TYPE),
        ([{**HELLO, "content": [{"type": "input_text"}]}], "messages[0].content[0].type", VALUE),
        ([{**HELLO, "content": [{"type": "text"}]}], "messages[0].content[0].text", GONE),
        ([{**HELLO, "content": [{"type": "image_url"}]}], "messages[0].content[0].image_url", TYPE),
        ([HELLO, {**CALLED, "tool_calls": {}}], "messages[1].tool_calls", TYPE),
        ([HELLO, {**CALLED, "tool_calls": [{**CALL, "id": ""}]}], "messages[1].tool_calls[0].id", GONE),
        (
            [HELLO, {**CALLED, "tool_calls": [{**CALL, "type": "custom"}]}],
            "messages[1].tool_calls[0].type",
            NOT_HERE,
        ),
        ([HELLO, {**CALLED, "tool_calls": [{"id": "c"}]}], "messages[1].tool_calls[0].function", TYPE),
        (
            [HELLO, {**CALLED, "tool_calls": [{"id": "c", "function": {"name": "f"}}]}],
            "messages[1].tool_calls[0].function.arguments",
            GONE,
        ),
        (
            [HELLO, {**CALLED, "function_call": {"name": "f", "arguments": "{}"}}],
            "messages[1].function_call",
            NOT_HERE,
        ),
        ([HELLO, RESULT, CALLED], "messages[1].tool_call_id", VALUE),
        ([HELLO, CALLED, {**RESULT, "tool_call_id": None}], "messages[2].tool_call_id", GONE),
        ([HELLO, CALLED, {**RESULT, "content": None}], "messages[2].content", GONE),
    ],
)
def test_an_error_points_at_its_place(value: object, param: str, code: str) -> None:
    """With the path of the first value at fault."""
    error = refused(value)
    assert (error.param, error.error_code) == (param, code)


PARAMS = {
    "system": ChatCompletionSystemMessageParam,
    "developer": ChatCompletionDeveloperMessageParam,
    "user": ChatCompletionUserMessageParam,
    "assistant": ChatCompletionAssistantMessageParam,
    "tool": ChatCompletionToolMessageParam,
}
BASES: dict[str, dict[str, Any]] = {role: {"role": role, "content": "hi"} for role in PARAMS} | {"tool": RESULT}
REFUSED = {"function_call", "tool_calls[custom]"}
EXAMPLES = {"assistant.tool_calls[function].function.arguments": "{}", "tool.tool_call_id": "c1"}


def declared() -> Iterator[tuple[str, str, Any]]:
    """The role, the label without it, and the member of every case that the client declares for a message."""
    cases = Cases(EXAMPLES, frozenset())
    for role, params in PARAMS.items():
        for member, hint in fields_of(params):
            for label, value, _ in cases.of(hint, f"{role}.{member}"):
                yield role, label.removeprefix(f"{role}."), {member: value}


@pytest.mark.proves("A-12")
@pytest.mark.parametrize(("role", "label", "member"), list(declared()))
def test_every_declared_case_is_read_named_or_refused(role: str, label: str, member: dict[str, Any]) -> None:
    """None is dropped in silence: it changes what is read, is named by its path, or is refused by it."""
    place = 2 if role == "tool" else 1
    before = [HELLO, CALLED][:place]
    path = f"messages[{place}]"
    wanted = f"{path}.{label.split('[')[0].split('.')[0].split('=')[0]}"
    if any(label.startswith(start) for start in REFUSED):
        assert refused([*before, {**BASES[role], **member}]).param.startswith(wanted)  # pyright: ignore[reportOptionalMemberAccess] -- None fails too
        return
    plain, found = (chat_messages.read([*before, message]) for message in (BASES[role], {**BASES[role], **member}))
    assert found.items != plain.items or found.ignored or member.items() <= BASES[role].items()
    assert all(each.startswith(wanted) for each in found.ignored)
