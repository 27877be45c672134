"""`grammar`: what an answer may look like, told by the library that draws by it."""

from typing import Literal

import pytest
from tests.unit.runtime.drawing import ASKED, grammar_of, may_be, may_begin

from perdure.domain.model import JsonObject, JsonSchema, PlainText, Prompt, Shape, TextFormat, Tool, ToolChoice
from perdure.runtime.llamacpp.grammar import CALLS_MAX, Calling, NoGrammar, Reasoning
from perdure.runtime.llamacpp.lenient import settled

WEATHER = Tool(
    "weather",
    "The weather of a city.",
    {
        "type": "object",
        "properties": {"city": {"type": "string"}},
        "required": ["city"],
        "additionalProperties": False,
    },
)
CLOCK = Tool("clock")
JSON = JsonSchema("point", {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]})


def call(name: str, arguments: str) -> str:
    return f'<tool_call>\n{{"name": "{name}", "arguments": {arguments}}}\n</tool_call>'


PARIS, NOW = call("weather", '{"city": "Paris"}'), call("clock", "{}")


def asked(
    *tools: Tool,
    choice: ToolChoice | None = None,
    parallel: bool = True,
    text: TextFormat | None = None,
) -> Prompt:
    return Prompt(ASKED, tools, choice or ToolChoice(), parallel, text or PlainText())


def shaped(prompt: Prompt, reasoning: Reasoning) -> tuple[Shape, tuple[str, ...]]:
    return settled(prompt, reasoning, checked=False)


@pytest.mark.parametrize("prompt", [asked(), asked(WEATHER, choice=ToolChoice("none"))])
@pytest.mark.parametrize("reasoning", ["none", "marked", "open"])
def test_text_without_functions_is_free(prompt: Prompt, reasoning: Reasoning) -> None:
    """Nothing is held to anything, and no call is looked for."""
    shape, dropped = shaped(prompt, reasoning)
    assert (shape.grammar, shape.calls, shape.reasoning, dropped) == (None, None, reasoning, ())


@pytest.mark.parametrize(
    ("text", "whole"),
    [
        ("", True),
        ("It is <b>noon</b>, <tool> {", True),
        ("a <tool_cal", True),
        (PARIS, True),
        ("Let me see.\n" + PARIS, True),
        (PARIS + NOW, True),
        (PARIS + "\n" + NOW, True),
        (call("weather", '{"city":"Ö\\n"}'), True),
        (PARIS[:-1], False),
        (PARIS + "\n\n" + NOW, False),
        (PARIS + " And", False),
        ("<tool_call>", False),
        ("<tool_call>weather", False),
        (call("whether", '{"city": "Paris"}'), False),
        (call("weather", '{"city": 7}'), False),
        (call("weather", '{"city":  "Paris"}'), False),
        (call("weather", '{\n"city": "Paris"}'), False),
        (call("weather", "{}"), False),
        (call("clock", '{"city": "Paris"}'), False),
    ],
)
def test_text_may_turn_into_calls_and_calls_are_right(text: str, whole: bool) -> None:
    """Of the functions there are, with arguments of their schemas, and with nothing after them."""
    assert may_be(grammar_of(asked(WEATHER, CLOCK)), text) is whole


def test_one_call_where_calls_at_once_are_not_wanted() -> None:
    """The answer ends with it."""
    grammar = grammar_of(asked(WEATHER, CLOCK, parallel=False))
    assert may_be(grammar, "Well: " + PARIS)
    assert not may_begin(grammar, PARIS + "\n")
    assert not may_begin(grammar, PARIS + "<")


@pytest.mark.parametrize("mode", ["auto", "required"])
def test_calls_do_not_go_on_for_ever(mode: Literal["auto", "required"]) -> None:
    """After so many of them the answer ends."""
    grammar = grammar_of(asked(WEATHER, CLOCK, choice=ToolChoice(mode)))
    most = "\n".join([PARIS] * CALLS_MAX)
    assert may_be(grammar, most)
    assert not may_begin(grammar, most + "\n")
    assert not may_begin(grammar, most + "<")


def test_a_model_that_is_helped_makes_as_many_calls_as_it_should() -> None:
    """However many the caller would take."""
    for choice in (ToolChoice("auto"), ToolChoice("required")):
        grammar = grammar_of(asked(WEATHER, CLOCK, choice=choice), calling=Calling(most=1))
        assert may_be(grammar, PARIS)
        assert not may_begin(grammar, PARIS + "<")
        assert not may_begin(grammar, PARIS + "\n")


@pytest.mark.parametrize(
    ("text", "whole"),
    [
        ("", True),
        ("It is <b>noon</b>", True),
        ("\n<", True),
        (PARIS, True),
        ("Let me see.\n" + PARIS, True),
        ("<", False),
        ("<b>noon</b>", False),
        ("<tool_call>", False),
        ("a <tool_call>", False),
    ],
)
def test_what_begins_as_a_biased_call_is_one(text: str, whole: bool) -> None:
    """Else the bias would be one towards any text that begins so."""
    assert may_be(grammar_of(asked(WEATHER, CLOCK), calling=Calling(bias=4.0)), text) is whole


def test_there_is_a_bias_only_where_calls_are_free() -> None:
    """Where the answer is a call in any case, or JSON, or begins with a thought, it would do harm."""
    calling = Calling(bias=4.0)

    def bias(prompt: Prompt, reasoning: Reasoning = "none") -> float:
        return settled(prompt, reasoning, calling, checked=False)[0].call_bias

    assert bias(asked(WEATHER)) == 4.0
    assert bias(asked(WEATHER), "marked") == bias(asked(WEATHER), "open") == 0
    assert bias(asked()) == bias(asked(WEATHER, text=JSON)) == 0
    assert bias(asked(WEATHER, choice=ToolChoice("required"))) == bias(asked(WEATHER, choice=ToolChoice("none"))) == 0


def test_required_is_calls_and_nothing_else() -> None:
    """Whatever the format says of text."""
    for text in (PlainText(), JSON):
        grammar = grammar_of(asked(WEATHER, CLOCK, choice=ToolChoice("required"), text=text))
        assert may_be(grammar, PARIS)
        assert may_be(grammar, NOW + "\n" + PARIS)
        assert not may_be(grammar, "")
        assert not may_begin(grammar, "I")
        assert not may_begin(grammar, "{")


@pytest.mark.parametrize("mode", ["auto", "required"])
def test_only_the_functions_that_are_chosen(mode: str) -> None:
    """Others are not called, whoever wants them."""
    choice = ToolChoice("required" if mode == "required" else "auto", ("clock",))
    grammar = grammar_of(asked(WEATHER, CLOCK, choice=choice))
    assert may_be(grammar, NOW)
    assert not may_begin(grammar, PARIS[:24])


def test_a_call_that_must_be_and_cannot_is_refused() -> None:
    """The parameter is named."""
    with pytest.raises(NoGrammar) as refused:
        shaped(asked(WEATHER, choice=ToolChoice("required", ("clock",))), "none")
    assert refused.value.param == "tool_choice"


@pytest.mark.parametrize(
    ("text", "any_object", "point"),
    [
        ('{"x":1}', True, True),
        ('{"x": 1}', True, True),
        ('{"x": 1, "y": [true, null]}', True, True),
        ("{}", True, False),
        ('{"x":1.5}', True, False),
        ("[]", False, False),
        ("7", False, False),
        ("", False, False),
        (' {"x":1}', False, False),
        ('{"x":1} ', False, False),
        ('{ "x":1}', False, False),
        ('{"x":1}{"x":1}', False, False),
    ],
)
def test_json_is_the_whole_answer(text: str, any_object: bool, point: bool) -> None:
    """Any object, or one of a schema, without free white space."""
    assert may_be(grammar_of(asked(text=JsonObject())), text) is any_object
    assert may_be(grammar_of(asked(text=JSON)), text) is point


def test_json_with_functions_is_json_or_calls() -> None:
    """Never both, and never text."""
    grammar = grammar_of(asked(WEATHER, text=JSON))
    assert may_be(grammar, '{"x":1}')
    assert may_be(grammar, PARIS)
    assert not may_begin(grammar, '{"x":1}<')
    assert not may_begin(grammar, PARIS + "{")
    assert not may_begin(grammar, "I")


def test_arguments_are_an_object_in_any_case() -> None:
    """No schema is no arguments; a schema that says nothing is any object."""
    grammar = grammar_of(asked(CLOCK, Tool("any", None, {}), Tool("loose", None, {"type": ["object", "null"]})))
    assert may_be(grammar, call("any", '{"a": [1]}'))
    assert may_be(grammar, call("loose", "{}"))
    for name in ("any", "loose"):
        assert not may_begin(grammar, call(name, "null"))
        assert not may_begin(grammar, call(name, "[]"))
    with pytest.raises(NoGrammar) as refused:
        shaped(asked(CLOCK, Tool("wrong", None, {"type": "string"})), "none")
    assert refused.value.param == "tools[1].parameters.type"


def test_strict_or_not_the_schema_holds() -> None:
    """And so does what a client says to llguidance in its place: nothing."""
    loose = {"type": "object", "x-guidance": {"whitespace_flexible": True}, "properties": {"a": {"type": "integer"}}}
    for strict in (None, False, True):
        grammar = grammar_of(asked(Tool("f", None, loose, strict)))
        assert may_be(grammar, call("f", '{"a": 1}'))
        assert not may_begin(grammar, call("f", '{"a": "1"}'))
        assert not may_begin(grammar, call("f", '{\n"a": 1}'))


def test_a_name_of_any_characters_is_written_as_json_has_it() -> None:
    """Nothing in it is taken for the grammar's own."""
    name = 'a"b\\c\nd é /x/ %json {}'
    grammar = grammar_of(asked(Tool(name)))
    assert may_be(grammar, call('a\\"b\\\\c\\nd é /x/ %json {}', "{}"))


@pytest.mark.parametrize(
    ("text", "marked", "opened"),
    [
        ("<think>I could write <tool_call> now</think>Done", True, True),
        ("<think>hm</think>\n\n" + PARIS, True, True),
        ("\n<think>hm</think>" + PARIS, True, True),
        ("<think>never closed, <tool_call>", True, True),
        ("hm, <tool_call> perhaps</think>" + PARIS, False, True),
        ("hm" + PARIS, True, True),
        ("Text. " + PARIS + "x", False, True),
        ("<think>hm</think>Text <tool_call>x", False, False),
    ],
)
def test_calls_are_not_looked_for_in_reasoning(text: str, marked: bool, opened: bool) -> None:
    """Where the model writes for itself, it may write their marks."""
    for reasoning, whole in (("marked", marked), ("open", opened)):
        prompt = asked(WEATHER)
        assert may_be(grammar_of(prompt, "open" if reasoning == "open" else "marked"), text) is whole
        assert shaped(prompt, "open" if reasoning == "open" else "marked")[0].reasoning == reasoning


@pytest.mark.parametrize("prompt", [asked(text=JSON), asked(WEATHER, choice=ToolChoice("required"))])
def test_an_answer_that_is_forced_has_reasoning_only_where_it_has_begun(prompt: Prompt) -> None:
    """There it ends first: the model is inside of it."""
    right = PARIS if prompt.tools else '{"x":1}'
    assert shaped(prompt, "marked")[0].reasoning == "none"
    assert not may_begin(grammar_of(prompt, "marked"), "<think>")
    opened = grammar_of(prompt, "open")
    assert shaped(prompt, "open")[0].reasoning == "open"
    assert may_be(opened, "hm, {</think>" + right)
    assert not may_be(opened, right)
    assert not may_begin(opened, "hm</think>hm")
