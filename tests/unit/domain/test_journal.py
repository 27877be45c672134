"""The journal: events out of what happens, and the state out of events."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.domain import events as ev
from perdure.domain.events import Event
from perdure.domain.journal import Journal
from perdure.domain.parts import CallArguments, CallBegin, CallEnd, Logprob, Part, Reasoning, Text
from perdure.domain.recovery import OnRestart
from perdure.domain.request import CreateRequest
from perdure.domain.response import ResponseError

REQUEST = CreateRequest(
    model="tiny",
    instructions=None,
    background=True,
    store=True,
    temperature=1.0,
    top_p=1.0,
    max_output_tokens=None,
    metadata={},
    seed=7,
    on_restart=OnRestart.RESUME,
)


def new() -> Journal:
    """A journal at the start."""
    return Journal("01j", 1_700_000_000, REQUEST, input_tokens=5)


def types(log: list[Event]) -> list[str]:
    """The types of events."""
    return [event.type for event in log]


def data(event: Event) -> dict[str, Any]:
    """An event as a reader gets it."""
    return msgspec.json.decode(event.json)


def test_a_life_in_order() -> None:
    """The events of a plain answer come in the order that clients rely on."""
    journal = new()
    log = [
        *journal.create(),
        *journal.claim(),
        *journal.write([Text("Hi")], [1]),
        *journal.write([Text("!")], [2, 3]),
    ]
    log += [*journal.write([Text("")], [9]), *journal.finish(1_700_000_009)]
    assert types(log) == [
        ev.CREATED,
        ev.QUEUED,
        ev.IN_PROGRESS,
        ev.ITEM_ADDED,
        ev.PART_ADDED,
        ev.TEXT_DELTA,
        ev.TEXT_DELTA,
        ev.TEXT_DONE,
        ev.PART_DONE,
        ev.ITEM_DONE,
        ev.COMPLETED,
    ]
    assert [data(event)["sequence_number"] for event in log] == list(range(11))
    final = data(log[-1])["response"]
    assert final["status"] == "completed"
    assert final["output"][0]["content"][0]["text"] == "Hi!"
    assert final["usage"]["output_tokens"] == 4
    assert final["completed_at"] == 1_700_000_009


def test_a_foreground_response_is_not_announced_as_queued() -> None:
    """The queue is shown for background work only."""
    journal = Journal("01j", 1, msgspec.structs.replace(REQUEST, background=False), 5)
    assert types(journal.create()) == [ev.CREATED]


@pytest.mark.parametrize("ending", ["cut", "cancel", "fail"])
def test_an_early_end_closes_what_is_open(ending: str) -> None:
    """Text, part and item are closed, the item as incomplete, before the one terminal event; the text is kept."""
    journal = new()
    journal.create()
    journal.write([Text("Hal")], [1])
    closing = journal.fail(ResponseError("x", "y")) if ending == "fail" else getattr(journal, ending)()
    assert types(closing)[:3] == [ev.TEXT_DONE, ev.PART_DONE, ev.ITEM_DONE]
    assert types(closing)[3] in ev.TERMINAL_TYPES
    assert data(closing[2])["item"]["status"] == "incomplete"
    assert data(closing[3])["response"]["output"][0]["content"][0]["text"] == "Hal"


def test_an_end_before_any_text_shows_no_output() -> None:
    """Nothing is closed that was not opened."""
    journal = new()
    journal.create()
    closing = journal.cancel()
    assert types(closing) == [ev.CANCELLED]
    assert data(closing[0])["response"]["output"] == []


def test_an_answer_without_text_is_still_an_answer() -> None:
    """A model that closes its turn at once has completed a message with an empty text."""
    journal = new()
    journal.create()
    journal.write([Text("")], [9])
    log = journal.finish(1)
    assert types(log)[0] == ev.ITEM_ADDED
    assert data(log[-1])["response"]["output"][0]["content"][0]["text"] == ""


def test_a_retry_replaces_what_was_shown() -> None:
    """The old item is closed, the new attempt announced, and the new text stands at the next index, alone."""
    journal = new()
    journal.create()
    journal.write([Text("old")], [1, 2])
    again = journal.retry("server_restarted")
    assert types(again) == [ev.TEXT_DONE, ev.PART_DONE, ev.ITEM_DONE, ev.RETRIED]
    assert data(again[-1])["attempt"] == 2
    log = [*journal.write([Text("new")], [3]), *journal.finish(1)]
    assert data(log[0])["output_index"] == 1
    final = data(log[-1])["response"]
    assert [item["content"][0]["text"] for item in final["output"]] == ["new"]
    assert final["usage"]["output_tokens"] == 1
    assert final["perdure"]["attempt"] == 2


def test_a_retry_of_what_nobody_saw_is_silent() -> None:
    """Without shown output there is nothing to take back."""
    journal = new()
    journal.create()
    journal.claim()
    assert journal.retry("server_restarted") == []
    assert journal.attempt == 2


def test_tokens_without_text_are_kept_with_the_next_event() -> None:
    """No token gets lost between two pieces of text."""
    journal = new()
    journal.create()
    assert journal.write([Text("")], [1, 2]) == []
    log = journal.write([Text("é")], [3])
    assert [token for event in log for token in event.tokens] == [1, 2, 3]


def test_a_gap_in_the_log_is_refused() -> None:
    """A log with a hole is no base to go on from."""
    journal = new()
    log = [*journal.create(), *journal.claim()]
    with pytest.raises(AssertionError):
        new().replay([log[0], log[2]])


def a_call(words: list[str]) -> list[Part]:
    """A whole call, its arguments in pieces."""
    return [CallBegin("f"), *(CallArguments(word) for word in words), CallEnd()]


words = st.text(max_size=4)
parts = st.one_of(
    words.map(lambda word: [Text(word, (Logprob(word, -1.5, (1,)),) * bool(word))]),
    words.map(lambda word: [Reasoning(word)]),
    st.lists(words, max_size=3).map(a_call),
    st.just([CallBegin("f"), CallArguments("{")]),
)
pieces = st.lists(st.tuples(parts, st.lists(st.integers(0, 9), max_size=3)), max_size=8)


@given(pieces, st.sampled_from(["", "retry", "cut", "cancel", "finish"]), pieces)
def test_replay_gives_back_the_state_of_the_writer(
    first: list[tuple[list[Part], list[int]]], middle: str, then: list[tuple[list[Part], list[int]]]
) -> None:
    """The log is the snapshot: folding it yields what the writer held, whatever happened."""
    journal = new()
    log = [*journal.create(), *journal.claim()]
    for written, tokens in first:
        log += journal.write(written, tokens)
    if middle == "retry":
        log += journal.retry("server_restarted")
        for written, tokens in then:
            log += journal.write(written, tokens)
    elif middle:
        log += journal.finish(1) if middle == "finish" else getattr(journal, middle)()
    again = new().replay(log)
    again.attempt = journal.attempt  # kept in the row: a retry that nobody saw writes no event
    if len(again.tokens) == len(journal.tokens):
        assert again == journal
    assert (again.closed, again.draft, again.output_index) == (journal.closed, journal.draft, journal.output_index)
    assert journal.tokens[: len(again.tokens)] == again.tokens
