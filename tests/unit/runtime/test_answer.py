"""`answer` and `text` together: the parts of an answer out of drawn tokens."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.domain.model import Sampling, Shape
from perdure.domain.parts import CallArguments, CallBegin, CallEnd, Logprob, Part, Reasoning, Text, joined
from perdure.runtime.llamacpp.answer import is_object, reader_of
from perdure.runtime.llamacpp.notation import CALL_ARGUMENTS, CALL_CLOSE, CALL_OPEN, THINK_CLOSE, THINK_OPEN
from perdure.runtime.llamacpp.text import Pieces, Run, TextFailed

CALLS = Shape(calls="tool_call")
MARKED = Shape(reasoning="marked")
OPEN = Shape(reasoning="open")
BOTH = Shape(calls="tool_call", reasoning="marked")
PLAIN = Shape()
FORCED = Shape(calls="tool_call", forced=True)
BIASED = Shape(calls="tool_call", call_bias=4.0)
END = b"<end>"
"""A token that closes the turn; it is in no text."""


def call(name: str, arguments: str) -> str:
    return CALL_OPEN + name + CALL_ARGUMENTS + arguments + CALL_CLOSE


def called(name: str, arguments: str) -> list[Part]:
    return [CallBegin(name), CallArguments(arguments), CallEnd()]


def logprob_of(token: int, data: bytes) -> Logprob:
    return Logprob(str(token), 0.0, tuple(data))


def draw(
    tokens: list[bytes], shape: Shape, stop: tuple[str, ...] = (), *, first: int = 0, told: bool = False
) -> list[Run]:
    """Every piece from the token `first` on. The text is cut off at its limit unless `END` is its last token."""
    pieces = Pieces(lambda token: tokens[token], reader_of(shape, Sampling(1.0, 1.0, 0, stop=stop)))
    pieces.go_on(range(first))
    runs: list[Run] = []
    if first and pieces.stopped:
        return runs
    for token in range(first, len(tokens)):
        if tokens[token] == END:
            return [*runs, pieces.finish(token, whole=True)]
        pieces.add(token, logprob_of(token, tokens[token]) if told else None)
        if pieces.stopped:
            return [*runs, pieces.finish(whole=True)]
        runs += filter(None, [pieces.take()])
    return [*runs, pieces.finish(whole=False)]


def parts_of(runs: list[Run]) -> list[Part]:
    return joined(part for run in runs for part in run.parts)


def shown(text: str, shape: Shape, stop: tuple[str, ...] = (), *, whole: bool = True) -> list[Part]:
    """The parts of a text that is drawn one character a token."""
    tokens = [character.encode() for character in text]
    return parts_of(draw([*tokens, END] if whole else tokens, shape, stop))


def chop(data: bytes, sizes: list[int]) -> list[bytes]:
    """Cut bytes into tokens of the sizes given, over and over; a size of 0 is a token without bytes."""
    tokens: list[bytes] = []
    at = turn = 0
    while at < len(data):
        size = sizes[turn % len(sizes)]
        tokens.append(data[at : at + size])
        at, turn = at + size, turn + 1
    return tokens


words = st.sampled_from(
    [
        CALL_OPEN + "f",
        CALL_ARGUMENTS + '{"a": "}"',
        CALL_ARGUMENTS + '{"a": {"b": 1}',
        "}" + CALL_CLOSE,
        call("f", "{}"),
        call("get", '{"x": [1, {"y": null}]}'),
        CALL_CLOSE,
        "<tool_call>",
        "\n",
        THINK_OPEN,
        THINK_CLOSE,
        "  ",
        "x",
        "<",
        "}",
        '"',
        "é€😀",
        "stop",
        "sto",
        "\ufffd",
    ]
)
texts = st.lists(words, max_size=12).map("".join)
cuts = st.lists(st.integers(0, 5), min_size=1, max_size=4).filter(any)
THOUGHT_AND_FORCED = Shape(calls="tool_call", reasoning="open", forced=True)
shapes = st.sampled_from(
    [CALLS, MARKED, OPEN, BOTH, PLAIN, FORCED, BIASED, Shape(calls="tool_call", reasoning="open"), THOUGHT_AND_FORCED]
)
stops = st.sampled_from([(), ("stop",), ("\n", "x<"), ("<tool", "sto€", "é")])


def outcome(tokens: list[bytes], shape: Shape, stop: tuple[str, ...], *, first: int = 0) -> list[Run] | str:
    try:
        return draw(tokens, shape, stop, first=first, told=True)
    except TextFailed as failed:
        return str(failed)


def untold(runs: list[Run] | str) -> list[Part] | str:
    """The parts of an outcome without probabilities, which depend on the tokens."""
    if isinstance(runs, str):
        return runs
    return [Text(part.text) if isinstance(part, Text) else part for part in parts_of(runs)]


@given(text=texts, sizes=cuts, shape=shapes, stop=stops, whole=st.booleans())
def test_parts_do_not_depend_on_the_tokens(
    text: str, sizes: list[int], shape: Shape, stop: tuple[str, ...], whole: bool
) -> None:
    """However marks, characters and stop texts are spread over tokens, the joined parts are those of one token."""
    end = [END] * whole
    cut = outcome([*chop(text.encode(), sizes), *end], shape, stop)
    assert untold(cut) == untold(outcome([text.encode(), *end], shape, stop))


@given(text=texts, sizes=cuts, shape=shapes, stop=stops, whole=st.booleans())
def test_an_answer_can_go_on_after_any_piece(
    text: str, sizes: list[int], shape: Shape, stop: tuple[str, ...], whole: bool
) -> None:
    """A machine that is fed what was drawn before gives the pieces that the first one gave, with their tokens and
    probabilities; every token is in a piece.
    """
    tokens = [*chop(text.encode(), sizes), *[END] * whole]
    runs = outcome(tokens, shape, stop)
    if isinstance(runs, str):
        return
    at = 0
    for done, run in enumerate(runs[:-1], start=1):
        at += len(run.tokens)
        assert outcome(tokens, shape, stop, first=at) == runs[done:]
    assert [token for run in runs for token in run.tokens] == list(range(at + len(runs[-1].tokens)))


@given(text=texts, sizes=cuts, shape=shapes, stop=stops, whole=st.booleans())
def test_calls_are_in_order_and_their_arguments_are_objects(
    text: str, sizes: list[int], shape: Shape, stop: tuple[str, ...], whole: bool
) -> None:
    """Whatever the model writes. Only a text that is cut off leaves a call open, and then it is the last part."""
    runs = outcome([*chop(text.encode(), sizes), *[END] * whole], shape, stop)
    parts = [] if isinstance(runs, str) else parts_of(runs)
    for place, part in enumerate(parts):
        before = parts[place - 1] if place else None
        assert isinstance(part, CallArguments) == isinstance(before, CallBegin)
        if isinstance(part, CallArguments) and (whole or place < len(parts) - 1):
            assert isinstance(parts[place + 1], CallEnd)
            assert isinstance(json.loads(part.text), dict)


@given(text=texts, sizes=cuts, shape=shapes, stop=stops)
def test_each_token_of_a_text_has_one_probability(
    text: str, sizes: list[int], shape: Shape, stop: tuple[str, ...]
) -> None:
    """In order, none twice; and the bytes of a text are among those of its tokens."""
    tokens = chop(text.encode(), sizes)
    runs = outcome(tokens, shape, stop)
    parts = [] if isinstance(runs, str) else parts_of(runs)
    told = [part for part in parts if isinstance(part, Text)]
    numbers = [int(entry.token) for part in told for entry in part.logprobs]
    assert numbers == sorted(set(numbers))
    assert all(tokens[number] for number in numbers)
    if shape == PLAIN and not stop:
        assert numbers == [number for number, data in enumerate(tokens) if data]
        assert b"".join(bytes(entry.bytes) for part in told for entry in part.logprobs) == text.encode()


@pytest.mark.parametrize(
    ("text", "shape", "parts"),
    [
        ("Hello <b>", CALLS, [Text("Hello <b>")]),
        (" Hello", CALLS, [Text(" Hello")]),
        (call("f", '{"a": {}}'), CALLS, called("f", '{"a": {}}')),
        (call("f", "{}"), PLAIN, [Text(call("f", "{}"))]),
        ("\n \n" + call("f", "{}"), CALLS, called("f", "{}")),
        ("Hm.\n" + call("f", "{}"), CALLS, [Text("Hm.\n"), *called("f", "{}")]),
        (call("f", "{}") + "\n" + call("g", "{}") + "\n", CALLS, [*called("f", "{}"), *called("g", "{}")]),
        (call("f", "{}") + "\nDone. ", CALLS, [*called("f", "{}"), Text("Done. ")]),
        ("<tool_call>{}", CALLS, [Text("<tool_call>{}")]),
        (CALL_OPEN + '"', CALLS, [Text(CALL_OPEN + '"')]),
        (CALL_OPEN + "a\\", CALLS, [Text(CALL_OPEN + "a\\")]),
        ("<tool_call>" + call("f", "{}"), CALLS, [Text("<tool_call>"), *called("f", "{}")]),
        ("<think>\n Why? \n</think>\n\nSo.", MARKED, [Reasoning("Why? \n"), Text("So.")]),
        ("\n<think>Why?</think>", MARKED, [Reasoning("Why?")]),
        ("<think></think>So.", MARKED, [Text("So.")]),
        ("<think>Why?", MARKED, [Reasoning("Why?")]),
        ("The <think> mark </think>", MARKED, [Text("The <think> mark </think>")]),
        ("<think>a</think><think>b</think>", MARKED, [Reasoning("a"), Text("<think>b</think>")]),
        ("\nWhy? </thin</think> So.", OPEN, [Reasoning("Why? </thin"), Text("So.")]),
        ("<think>" + call("f", "{}") + "</think>", BOTH, [Reasoning(call("f", "{}"))]),
        ("<think>a</think>\n" + call("f", "{}"), BOTH, [Reasoning("a"), *called("f", "{}")]),
        ("  ", BOTH, [Text("  ")]),
        ("", BOTH, []),
        (CALL_OPEN + "f" + CALL_ARGUMENTS + '{"a": {}}', CALLS, called("f", '{"a": {}}')),
        (CALL_OPEN + "f" + CALL_ARGUMENTS + '{"a": {}}}\n</tool', CALLS, called("f", '{"a": {}}')),
        ("A <too", CALLS, [Text("A <too")]),
        ("<too", BIASED, [Text("<too")]),
        ("<too", FORCED, [Text("<too")]),
        (call("f", "{}") + "<too", CALLS, [*called("f", "{}"), Text("<too")]),
    ],
)
def test_a_text_that_its_model_ended(text: str, shape: Shape, parts: list[Part]) -> None:
    """Marks are found where they are marks, white space is left out where it belongs to none of the parts."""
    assert shown(text, shape) == parts


@pytest.mark.parametrize(
    ("text", "shape", "parts"),
    [
        ("Hello <tool", CALLS, [Text("Hello <tool")]),
        (CALL_OPEN + "get_we", CALLS, []),
        ("\n" + CALL_OPEN, CALLS, []),
        ("Well, " + CALL_OPEN + "get_we", CALLS, [Text("Well, ")]),
        (CALL_OPEN + "f" + CALL_ARGUMENTS, CALLS, [CallBegin("f")]),
        (CALL_OPEN + "f" + CALL_ARGUMENTS + '{"a": {}', CALLS, [CallBegin("f"), CallArguments('{"a": {}')]),
        (CALL_OPEN + "f" + CALL_ARGUMENTS + '{"a": {}}', CALLS, [CallBegin("f"), CallArguments('{"a": {}}')]),
        (CALL_OPEN + "f" + CALL_ARGUMENTS + "{}}\n</tool_c", CALLS, [CallBegin("f"), CallArguments("{}")]),
        ("<think>Why? </th", MARKED, [Reasoning("Why? </th")]),
        ("<thi", MARKED, [Text("<thi")]),
        ("\n\n", CALLS, [Text("\n\n")]),
        ("<too", CALLS, [Text("<too")]),
        ("<", BIASED, []),
        ("<tool_call>", BIASED, []),
        ("\n<too", BIASED, [Text("\n<too")]),
        ("A <too", BIASED, [Text("A <too")]),
        ("<", FORCED, []),
        ("<tool_call>", FORCED, []),
        ('{"a": "<too', FORCED, [Text('{"a": "<too')]),
        ('{"a": "<tool_call>', FORCED, [Text('{"a": "<tool_call>')]),
        ("hm</think>\n<too", THOUGHT_AND_FORCED, [Reasoning("hm")]),
        (call("f", "{}") + "<", CALLS, called("f", "{}")),
        (call("f", "{}") + "\n<too", CALLS, called("f", "{}")),
    ],
)
def test_a_text_that_was_cut_off(text: str, shape: Shape, parts: list[Part]) -> None:
    """What waited is shown as what it is so far; a call is left open."""
    assert shown(text, shape, whole=False) == parts


@pytest.mark.parametrize("wrong", ['{"a": ', "{} {}", "[]", '{"a": NaN}', '{"a": "\n"}', "{'a': 1}"])
@pytest.mark.parametrize("close", [CALL_CLOSE, ""])
def test_a_call_whose_arguments_are_no_object_fails(wrong: str, close: str) -> None:
    """Once its name has been shown there is no way back to a text."""
    with pytest.raises(TextFailed, match="not a JSON object"):
        shown(CALL_OPEN + "f" + CALL_ARGUMENTS + wrong + close, CALLS)


@pytest.mark.parametrize(
    ("text", "stop", "shape", "parts"),
    [
        ("one two three", ("two",), PLAIN, [Text("one ")]),
        ("one two three", ("three", "two"), PLAIN, [Text("one ")]),
        ("abcd", ("bcx", "c"), PLAIN, [Text("ab")]),
        ("abc", ("bcd",), PLAIN, [Text("abc")]),
        ("stop", ("stop",), PLAIN, []),
        ("a</tool_call>b", ("</tool_call>",), CALLS, [Text("a")]),
        (call("f", '{"stop": 1}') + "a stop", ("stop",), CALLS, [*called("f", '{"stop": 1}'), Text("a ")]),
        ("<think>stop</think>a stop", ("stop",), MARKED, [Reasoning("stop"), Text("a ")]),
        (call("f", "{}"), ("<tool", "\n"), CALLS, called("f", "{}")),
    ],
)
def test_stop_texts_end_messages(text: str, stop: tuple[str, ...], shape: Shape, parts: list[Part]) -> None:
    """Before the earliest one, which is not shown; they are no part of reasoning or calls."""
    assert shown(text, shape, stop) == parts


def test_the_text_ends_with_the_token_that_completes_a_stop_text() -> None:
    """It is the last one, and nothing of it is shown from the stop text on."""
    runs = draw([b"on", b"e st", b"op th", b"ree"], PLAIN, ("stop",), told=True)
    told = (logprob_of(0, b"on"), logprob_of(1, b"e st"))
    assert runs == [Run((Text("on", told[:1]),), (0,)), Run((Text("e ", told[1:]),), (1, 2))]


def test_what_is_certain_is_shown_at_once_and_what_is_not_waits() -> None:
    """A piece ends with each token but those in the middle of a mark or at one."""
    tokens = [
        b"Well",
        b", <",
        b"tool_call",
        b">\n",
        b'{"name": "',
        b"f",
        b'", "arguments": {"a": ',
        b"1",
        b"}}\n</tool",
    ]
    runs = draw([*tokens, b"_call>", b"\n", END], CALLS)
    assert [run.tokens for run in runs] == [(0,), (1, 2, 3, 4, 5, 6), (7,), (8, 9), (10, 11)]
    assert runs[1].parts == (Text(", "), CallBegin("f"), CallArguments('{"a": '))
    assert runs[3].parts == (CallArguments("}"), CallEnd())


def test_the_tokens_of_a_character_are_all_told() -> None:
    """Each with its own bytes; those of a call, of reasoning and of control tokens are not."""
    euro, mark = "€".encode(), call("f", "{}").encode()
    tokens = [THINK_OPEN.encode(), b"hm", b"</think>\n", b"a" + euro[:1], b"", euro[1:2], euro[2:], mark, END]
    parts = parts_of(draw(tokens, BOTH, told=True))
    told = tuple(logprob_of(token, tokens[token]) for token in (3, 5, 6))
    assert parts == [Reasoning("hm"), Text("a€", told), *called("f", "{}")]


@pytest.mark.parametrize(("text", "is_one"), [("{}", True), ('{"a": "\\ud800"}', True), ("[" * 10_000, False)])
def test_what_an_object_is(text: str, is_one: bool) -> None:
    """Half a surrogate pair may be escaped, as JSON has it; numbers of any length are numbers."""
    assert is_object(text) is is_one
    assert is_object('{"a": ' + "9" * 10_000 + "}")
