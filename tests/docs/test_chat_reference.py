"""docs/reference/chat-completions.md has every field, role and member of the chat interface, and no other."""

from typing import get_args

import pytest

from perdure.api import chat_fields, chat_messages
from perdure.api.chat_answer import ChatMessage, FinishReason
from perdure.api.chat_body import STOP_MAX_CHARS, STOPS_MAX
from perdure.domain import limits
from tests.docs.repository import REFERENCE, codes, rows, section

PAGE = REFERENCE / "chat-completions.md"
FIELDS = {
    "Same as in a create of a response": chat_fields.SAME,
    "Of this interface": chat_fields.SERVED - chat_fields.SAME,
    "Known and not served": chat_fields.NOT_SERVED,
    "Accepted without effect": chat_fields.HINTS,
    "From elsewhere": chat_fields.ELSEWHERE,
    "Messages": chat_messages.ROLES,
    "The completion": {*ChatMessage.__struct_fields__} - {"role"},
    "Why it ends": get_args(FinishReason),
}


@pytest.mark.parametrize("title", FIELDS)
def test_the_names_are_those_of_the_program(title: str) -> None:
    """Each in the table of what becomes of it."""
    assert set(rows(section(PAGE, title))) == set(FIELDS[title])


@pytest.mark.parametrize("field", chat_fields.NOT_SERVED)
def test_a_field_that_is_not_served_has_its_remedy(field: str) -> None:
    """As the error shows it."""
    assert rows(section(PAGE, "Known and not served"))[field] == [chat_fields.NOT_SERVED[field][1]]


@pytest.mark.parametrize("field", [name for name, right in chat_fields.ELSEWHERE.items() if "`" in right])
def test_a_field_from_elsewhere_names_the_right_one(field: str) -> None:
    """As the error names it."""
    (here,) = rows(section(PAGE, "From elsewhere"))[field]
    assert codes(here) == codes(chat_fields.ELSEWHERE[field])


@pytest.mark.parametrize(
    "phrase",
    [
        f"or up to {STOPS_MAX}, of up to {STOP_MAX_CHARS} characters",
        f"0 to {limits.TOP_LOGPROBS_MAX}: how many likely tokens",
        f"up to {limits.UNKNOWN_FIELDS_MAX} of them",
        f"its rows go {limits.EPHEMERAL_KEEP_SECONDS} seconds after its end",
        f"After {limits.KEEPALIVE_SECONDS:g} seconds of silence",
    ],
)
def test_a_bound_is_the_one_that_is_kept_to(phrase: str) -> None:
    """Numbers in the text are those of the source."""
    assert phrase in PAGE.read_text()
