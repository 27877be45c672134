"""`input`: which items are messages, which are refused, and where errors point."""

from collections.abc import Iterator
from typing import Any, get_args, get_type_hints

import pytest
from openai.types.responses import response_input_item_param, response_input_message_content_list_param

from perdure.api import input_items
from perdure.api.input_items import ITEMS_NOT_SERVED, MEDIA_PARTS, TEXT_PARTS
from perdure.domain.errors import InvalidRequest
from perdure.domain.items import conversation
from perdure.domain.limits import INPUT_ITEMS_MAX, INPUT_TEXT_MAX_CHARS
from perdure.domain.model import Message

USER = {"role": "user", "content": "x"}


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


@pytest.mark.parametrize("value", ["", [], [{"role": "user", "content": ""}], [{"role": "user", "content": []}]])
def test_nothing_to_answer_is_empty_input(value: object) -> None:
    """However nothing is spelled."""
    with pytest.raises(InvalidRequest) as refused:
        input_items.read(value)
    assert (refused.value.param, refused.value.error_code) == ("input", "empty_input")


TYPE, VALUE, GONE, RANGE, NOT_YET = (
    "invalid_type",
    "invalid_value",
    "missing_required_parameter",
    "out_of_range",
    "unsupported_parameter",
)


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
        ({"role": "tool", "content": "x"}, "input[1].role", VALUE),
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
        ({"type": "function_call", "name": "f"}, "input[1].call_id", GONE),
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
