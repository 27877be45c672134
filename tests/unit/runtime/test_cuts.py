"""Answers that are cut inside the mark of a call: what is shown of it, judged by what the grammar lets follow."""

from collections.abc import Iterator

import pytest
from tests.unit.runtime import test_batch as batch
from tests.unit.runtime.drawing import ASKED, may_begin
from tests.unit.runtime.test_answer import call, shown

from perdure.domain.model import JsonSchema, PlainText, Prompt, Shape, TextFormat, Tool, ToolChoice
from perdure.domain.parts import CallBegin, CallEnd, Text
from perdure.runtime.llamacpp.answer import waiting
from perdure.runtime.llamacpp.grammar import UNAIDED, Calling, Reasoning
from perdure.runtime.llamacpp.lenient import settled
from perdure.runtime.llamacpp.model import Model
from perdure.runtime.llamacpp.notation import CALL_MARK

BIASED = Calling(bias=4.0)
STAY, PLACE = Tool("stay"), JsonSchema("place", {"type": "object"})
CALL = call("stay", "{}")


def shape_of(choice: str, text: TextFormat, reasoning: Reasoning = "none", calling: Calling = UNAIDED) -> Shape:
    mode = ToolChoice("required" if choice == "required" else "auto")
    return settled(Prompt(ASKED, (STAY,), mode, format=text), reasoning, calling, checked=True)[0]


def marks(text: str) -> Iterator[tuple[str, str]]:
    """Each place inside what begins as a mark, or right after it: the text up to there, and how it ends like one."""
    for end in range(1, len(text) + 1):
        size = waiting(text[:end], CALL_MARK + " ")
        if size and not text.startswith("</", end - size):
            yield text[:end], CALL_MARK[:size]


FREE, FORCED, JSON = ("auto", PlainText()), ("required", PlainText()), ("auto", PLACE)


@pytest.mark.parametrize(
    ("shape", "text", "certain"),
    [
        (shape_of(*FREE), CALL, 1),
        (shape_of(*FREE), "Well, <to < " + CALL + "\n" + CALL + CALL, 23),
        (shape_of(*FREE, calling=BIASED), CALL, 11),
        (shape_of(*FREE, calling=BIASED), "\n" + CALL, 1),
        (shape_of(*FREE, calling=BIASED), "Well, " + CALL, 1),
        (shape_of(*FREE, "marked"), CALL, 1),
        (shape_of(*FREE, "marked"), "<think>hm</think>" + CALL, 1),
        (shape_of(*FREE, "open"), "hm</think>\n" + CALL, 1),
        (shape_of(*FORCED), CALL + CALL, 22),
        (shape_of(*FORCED, "marked"), CALL, 11),
        (shape_of(*FORCED, "open"), "hm</think>" + CALL, 11),
        (shape_of(*JSON), CALL + "\n" + CALL, 22),
        (shape_of(*JSON), '{"a": "<tool_call> <tool <"}', 0),
        (shape_of(*JSON, "open"), 'hm</think>{"a": "<tool_call>"}', 0),
    ],
)
def test_a_mark_is_shown_where_it_may_be_text_and_nowhere_else(shape: Shape, text: str, certain: int) -> None:
    """Cut at each place of it. In so many places of these texts it can be nothing but a mark."""
    found = 0
    assert shape.grammar is not None
    for drawn, mark in marks(text):
        parts = shown(drawn, shape, whole=False)
        last = parts[-1] if parts else None
        is_text = isinstance(last, Text) and last.text.endswith(mark)
        assert is_text is may_begin(shape.grammar, drawn + "~"), (drawn, parts)
        found += not is_text
    assert found == certain


@pytest.mark.parametrize("call_bias", [0.0, 99.0], ids=["forced", "biased"])
def test_a_cut_answer_ends_alike_wherever_it_was_taken_up(tiny: Model, call_bias: float) -> None:
    """Two calls, cut at each token of the mark of the first and of the second, resumed at each piece before."""
    twice = batch.calling("call call" if not call_bias else "TEXT | call call")
    shape = Shape(twice, calls="tool_call", call_bias=call_bias, forced=not call_bias)
    undisturbed = batch.alone(tiny, batch.shaped(3, shape, tokens=250))
    before = next(n for n, piece in enumerate(undisturbed) if CallEnd() in piece.parts)
    first = len(batch.tokens_of(undisturbed[: before + 1]))
    for limit in (*range(1, len(CALL_MARK) + 2), *range(first + 1, first + len(CALL_MARK) + 2)):
        made = batch.shaped(3, shape, tokens=limit)
        whole = batch.alone(tiny, made)
        parts = [part for piece in whole for part in piece.parts]
        assert not [part for part in parts if isinstance(part, Text)]
        assert len([part for part in parts if isinstance(part, CallBegin)]) == (limit > first)
        assert (len(batch.tokens_of(whole)), whole[-1].end) == (limit, "length")
        for cut in range(1, len(whole), 1 + len(whole) // 2):
            rest = batch.alone(tiny, batch.resumed(made, batch.tokens_of(whole[:cut])))
            assert rest == whole[cut:]
