"""`input`: which items are messages, which are refused, and where errors point."""

from collections.abc import Iterator
from typing import Any, get_args, get_type_hints

import msgspec
import pytest
from openai.types.responses import response_input_item_param, response_input_message_content_list_param

from perdure.api import input_items
from perdure.api.create_body import CreateBody
from perdure.api.input_items import ITEMS_NOT_SERVED, MEDIA_PARTS, NAME_MAX_CHARS, TEXT_PARTS
from perdure.domain.errors import InvalidRequest
from perdure.domain.items import conversation, named
from perdure.domain.limits import INPUT_ITEMS_MAX, INPUT_TEXT_MAX_CHARS, JSON_DEPTH_MAX
from perdure.domain.model import Message, ToolCall
from perdure.domain.recovery import OnRestart
from perdure.domain.response import FunctionCall, OutputMessage, OutputText, ReasoningItem, ReasoningText

from .harness import GONE, NOT_HERE, RANGE, TYPE, VALUE

USER = {"role": "user", "content": "x"}
CALL = {"type": "function_call", "call_id": "call_1", "name": "f", "arguments": "{}"}
RESULT = {"type": "function_call_output", "call_id": "call_1", "output": "12"}
READER = CreateBody(OnRestart.RESUME, OnRestart.FAIL, lambda: 1)


def types_of(union: Any) -> Iterator[str]:
    """The `type` values that the official client declares for the members of a union."""
    for member in get_args(union):
        yield from literals(get_type_hints(member).get("type"))


def literals(hint: Any) -> Iterator[str]:
    """The strings of a `Literal`, wherever in the hint it stands."""
    for value in get_args(hint):
        if isinstance(value, str):
            yield value
        else:
            yield from literals(value)


def messages(value: object) -> tuple[Message, ...]:
    """What the model gets of an input."""
    return conversation(None, input_items.read(value).items)


def test_a_string_is_a_message_of_the_user() -> None:
    """White space is text like any other."""
    assert messages(" \n") == (Message("user", " \n"),)


@pytest.mark.parametrize(
    ("item", "message"),
    [
        ({"role": "user", "content": "x"}, Message("user", "x")),
        ({"type": "message", "role": "user", "content": "x"}, Message("user", "x")),
        ({"type": None, "role": "user", "content": "x"}, Message("user", "x")),
        ({"role": "system", "content": "x"}, Message("system", "x")),
        ({"role": "developer", "content": "x"}, Message("system", "x")),
        ({"role": "assistant", "content": "x", "phase": "commentary"}, Message("assistant", "x")),
        ({"role": "user", "content": [{"type": "input_text", "text": "a"}]}, Message("user", "a")),
        (
            {"role": "user", "content": [{"type": "input_text", "text": "a"}, {"type": "text", "text": "b"}]},
            Message("user", "ab"),
        ),
        (
            {
                "type": "message",
                "id": "msg_1",
                "status": "completed",
                "role": "assistant",
                "content": [{"type": "output_text", "text": "a", "annotations": [], "logprobs": []}],
            },
            Message("assistant", "a"),
        ),
        (
            {
                "type": "message",
                "id": None,
                "status": None,
                "role": "assistant",
                "content": [{"type": "output_text", "text": "a", "annotations": None}],
                "extra": {"x": 1},
            },
            Message("assistant", "a"),
        ),
    ],
)
def test_what_is_a_message_is_read_as_one(item: object, message: Message) -> None:
    """With and without type, as the caller writes it and as the service returned it."""
    assert messages([item]) == (message,)


def test_order_and_empty_messages_are_kept() -> None:
    """An empty message among others stays where it is."""
    items = [USER, {"role": "assistant", "content": []}, {"role": "user", "content": "y"}]
    assert messages(items) == (Message("user", "x"), Message("assistant", ""), Message("user", "y"))


@pytest.mark.parametrize(
    "value", ["", [], [{"role": "user", "content": ""}], [{"role": "user", "content": []}], [{"type": "reasoning"}]]
)
def test_nothing_to_answer_is_empty_input(value: object) -> None:
    """However nothing is spelled."""
    with pytest.raises(InvalidRequest) as refused:
        READER.read({"model": "m", "input": value})
    assert (refused.value.param, refused.value.error_code) == ("input", "empty_input")


@pytest.mark.parametrize(
    ("item", "param", "code"),
    [
        ("x", "input[1]", TYPE),
        (None, "input[1]", TYPE),
        ([], "input[1]", TYPE),
        ({}, "input[1].role", GONE),
        ({"content": "x"}, "input[1].role", GONE),
        ({"role": "user"}, "input[1].content", GONE),
        ({"role": "user", "content": None}, "input[1].content", GONE),
        ({"role": "User", "content": "x"}, "input[1].role", VALUE),
        ({"role": 5, "content": "x"}, "input[1].role", TYPE),
        ({"role": "user", "content": 5}, "input[1].content", TYPE),
        ({"role": "user", "content": {"text": "x"}}, "input[1].content", TYPE),
        ({"role": "user", "content": ["x"]}, "input[1].content[0]", TYPE),
        ({"role": "user", "content": [{"text": "x"}]}, "input[1].content[0].type", GONE),
        ({"role": "user", "content": [{"type": 5, "text": "x"}]}, "input[1].content[0].type", TYPE),
        ({"role": "user", "content": [{"type": "odd", "text": "x"}]}, "input[1].content[0].type", VALUE),
        ({"role": "user", "content": [{"type": "input_text"}]}, "input[1].content[0].text", GONE),
        ({"role": "user", "content": [{"type": "input_text", "text": 5}]}, "input[1].content[0].text", TYPE),
        ({"role": "user", "content": "x" * (INPUT_TEXT_MAX_CHARS + 1)}, "input[1].content", RANGE),
        ({"role": "user", "content": [{}] * (INPUT_ITEMS_MAX + 1)}, "input[1].content", RANGE),
        ({"type": "odd", "role": "user", "content": "x"}, "input[1].type", VALUE),
        ({"type": 5, "role": "user", "content": "x"}, "input[1].type", TYPE),
        ({**CALL, "call_id": None}, "input[1].call_id", GONE),
        ({**CALL, "call_id": ""}, "input[1].call_id", VALUE),
        ({**CALL, "call_id": 5}, "input[1].call_id", TYPE),
        ({**CALL, "call_id": "x" * (NAME_MAX_CHARS + 1)}, "input[1].call_id", RANGE),
        ({**CALL, "name": None}, "input[1].name", GONE),
        ({**CALL, "name": ""}, "input[1].name", VALUE),
        ({**CALL, "arguments": None}, "input[1].arguments", GONE),
        ({**CALL, "arguments": {}}, "input[1].arguments", TYPE),
        ({**CALL, "id": 5}, "input[1].id", TYPE),
        ({**CALL, "id": "x" * (NAME_MAX_CHARS + 1)}, "input[1].id", RANGE),
        ({**RESULT, "call_id": None}, "input[1].call_id", GONE),
        ({**RESULT, "output": None}, "input[1].output", GONE),
        ({**RESULT, "output": 5}, "input[1].output", TYPE),
        ({**RESULT, "output": [{"type": "odd"}]}, "input[1].output[0].type", VALUE),
        ({"type": "reasoning", "summary": "x"}, "input[1].summary", TYPE),
        ({"type": "reasoning", "content": ["x"]}, "input[1].content[0]", TYPE),
        ({"type": "reasoning", "encrypted_content": 5}, "input[1].encrypted_content", TYPE),
        ({"type": "item_reference"}, "input[1].id", GONE),
        ({"type": "item_reference", "id": ""}, "input[1].id", VALUE),
        ({"type": "compaction", "encrypted_content": "x"}, "input[1].type", NOT_HERE),
        ({"role": "tool", "content": "x", "tool_call_id": "c"}, "input[1].role", NOT_HERE),
        ({"role": "function", "content": "x", "name": "f"}, "input[1].role", NOT_HERE),
        ({"role": "assistant", "content": None, "tool_calls": [{}]}, "input[1].tool_calls", NOT_HERE),
        ({"role": "assistant", "content": "", "function_call": {"name": "f"}}, "input[1].function_call", NOT_HERE),
        ({"role": "assistant", "content": None}, "input[1].content", GONE),
        ({"role": "assistant", "content": [{"type": "refusal"}]}, "input[1].content[0].refusal", GONE),
        ({"role": "assistant", "content": "x", "phase": "odd"}, "input[1].phase", VALUE),
    ],
)
def test_what_is_no_message_is_refused_where_it_stands(item: object, param: str, code: str) -> None:
    """The path names the item, the part and the member."""
    with pytest.raises(InvalidRequest) as refused:
        input_items.read([USER, item])
    assert (refused.value.param, refused.value.error_code) == (param, code)


def test_what_a_model_of_text_cannot_take_is_kept_and_named() -> None:
    """The third item's second part is named as such, and shown as it came."""
    item = {"role": "user", "content": [{"type": "input_text", "text": "a"}, {"type": "input_file", "file_id": "f"}]}
    found = input_items.read([USER, USER, item])
    assert found.ignored == ["input[2].content[1]"]
    assert found.items[2]["content"][1] == {"type": "input_file", "file_id": "f"}
    assert conversation(None, found.items)[2].content == "a"


def test_every_item_type_of_the_official_client_is_known() -> None:
    """A new type in the client's package makes this fail until it is put in the table."""
    known = set(types_of(response_input_item_param.ResponseInputItemParam))
    served = {"message", "function_call", "function_call_output", "reasoning", "item_reference"}
    assert known - served == ITEMS_NOT_SERVED


def test_every_part_type_of_the_official_client_is_known() -> None:
    """The same for the parts of a message."""
    known = set(types_of(response_input_message_content_list_param.ResponseInputContentParam))
    assert known <= {*MEDIA_PARTS, *TEXT_PARTS}


def written() -> list[dict[str, Any]]:
    """Items as the service writes them: one of each type, whole and cut off."""
    text = {"type": "output_text", "text": "Hello", "annotations": [], "logprobs": []}
    found: list[Any] = [
        ReasoningItem("rs_x_0", "completed", (ReasoningText("Hm."),)),
        OutputMessage("msg_x_1", "completed", (OutputText("Hello"),)),
        FunctionCall("fc_x_2", "completed", "call_x_2", "f", '{"a": 1}'),
        OutputMessage("msg_x_3", "incomplete"),
        FunctionCall("fc_x_4", "incomplete", "call_x_4", "f", '{"a'),
    ]
    items = [msgspec.json.decode(msgspec.json.encode(each)) for each in found]
    assert items[1]["content"] == [text]
    return items


OPTIONAL = {
    "message": ("id", "status", "type"),
    "function_call": ("id", "status"),
    "reasoning": ("id", "status", "content", "summary"),
}


@pytest.mark.proves("A-08")
@pytest.mark.parametrize("how", ["complete", "missing", "null"])
@pytest.mark.parametrize("number", range(5))
def test_what_the_service_wrote_is_accepted_back(number: int, how: str) -> None:
    """As it came, without optional members, and with null in their place; the model reads the same each time."""
    whole = written()[number]
    item = dict(whole)
    for name in OPTIONAL[whole["type"]] if how != "complete" else ():
        if how == "missing":
            del item[name]
        else:
            item[name] = None
    given = {**item, "odd": {"x": 1}, "type": item.get("type") or (None if how == "null" else "message")}
    found = READER.read({"model": "m", "input": [given, USER]})
    if how == "complete":
        assert found.items[0] == whole
    assert conversation(None, found.items) == conversation(None, [whole, *input_items.read([USER]).items])
    assert "input[0].odd" in found.request.ignored


def test_a_call_that_was_cut_off_is_known_by_its_arguments() -> None:
    """Without a status it must not pass for a whole one, and with one it is what it says."""
    cut = {**CALL, "arguments": '{"a'}
    given = [cut, {**cut, "status": "completed"}, CALL, {**CALL, "status": "incomplete"}, {**CALL, "arguments": "[]"}]
    statuses = [item["status"] for item in input_items.read(given).items]
    assert statuses == ["incomplete", "completed", "completed", "incomplete", "incomplete"]


@pytest.mark.parametrize("depth", [JSON_DEPTH_MAX - 1, JSON_DEPTH_MAX, 5000, 100_000])
def test_arguments_are_no_deeper_than_a_body(depth: int) -> None:
    """They stand in a string, where the bound of the body does not reach."""
    for arguments in ('{"a":' + "[" * depth + "]" * depth + "}", '{"a":' * depth):
        whole = depth < JSON_DEPTH_MAX and arguments.endswith("}")
        (found,) = input_items.read([{**CALL, "arguments": arguments}]).items
        assert found["status"] == ("completed" if whole else "incomplete")


def test_calls_and_their_results_are_read() -> None:
    """A result is a text, or a list of texts and of what the model does not get."""
    parts = [
        {"type": "input_text", "text": "1"},
        {"type": "input_image", "image_url": "u"},
        {"type": "text", "text": "2"},
    ]
    found = input_items.read([CALL, RESULT, {**RESULT, "output": parts}])
    assert conversation(None, found.items) == (
        Message("assistant", "", (ToolCall("call_1", "f", "{}"),)),
        Message("tool", "12", call_id="call_1"),
        Message("tool", "12", call_id="call_1"),
    )
    assert found.ignored == ["input[2].output[1]"]


def test_reasoning_is_kept_and_named() -> None:
    """With whatever it holds; the model does not get it."""
    item = {
        "type": "reasoning",
        "id": "rs_1",
        "summary": [{"type": "summary_text", "text": "s"}],
        "content": [{"type": "reasoning_text", "text": "t"}],
        "encrypted_content": "e",
    }
    found = input_items.read([item, USER])
    assert found.items[0] == {**item, "status": "completed"}
    assert found.ignored == ["input[0]"]
    assert len(conversation(None, found.items)) == 1


@pytest.mark.parametrize("reference", [{"id": "msg_1"}, {"type": None, "id": "msg_1"}])
def test_a_reference_may_lack_its_type(reference: dict[str, Any]) -> None:
    """It is the one item besides a message that may."""
    (found,) = input_items.read([reference]).items
    assert found == {"type": "item_reference", "id": "msg_1"}


def test_an_empty_id_is_none() -> None:
    """The item gets one of the service's."""
    (found,) = input_items.read([{**USER, "id": ""}]).items
    assert named([found], "x")[0]["id"] == "msg_x_in0"


def test_texts_take_the_kind_of_their_role() -> None:
    """However they were called; what was cited stays, and probabilities are not carried along."""
    cited = [{"type": "file_path", "file_id": "f", "index": 0}]
    given = {"type": "output_text", "text": "a", "annotations": cited, "logprobs": [{"token": "a"}]}
    user, assistant = input_items.read(
        [
            {"role": "user", "content": [given]},
            {"role": "assistant", "content": [given, {"type": "text", "text": "b"}]},
        ]
    ).items
    assert user["content"] == [{"type": "input_text", "text": "a"}]
    assert assistant["content"] == [
        {"type": "output_text", "text": "a", "annotations": cited, "logprobs": []},
        {"type": "output_text", "text": "b", "annotations": [], "logprobs": []},
    ]


def test_the_label_of_a_message_is_kept() -> None:
    """It changes no text, and is listed as it came."""
    found = input_items.read([{"role": "assistant", "content": "x", "phase": "commentary"}])
    assert (found.items[0]["phase"], found.ignored) == ("commentary", [])


@pytest.mark.parametrize(
    ("item", "ignored"),
    [
        ({**USER, "name": "Ann", "odd": None}, ["input[0].name"]),
        ({**CALL, "namespace": "crm", "caller": None, "async": False}, ["input[0].namespace"]),
        ({**RESULT, "name": "f"}, ["input[0].name"]),
        ({"role": "user", "content": [{"type": "input_text", "text": "x", "odd": 1}]}, ["input[0].content[0].odd"]),
    ],
)
def test_members_that_nobody_reads_are_named(item: dict[str, Any], ignored: list[str]) -> None:
    """Tolerated, and not in silence."""
    assert input_items.read([item]).ignored == ignored
