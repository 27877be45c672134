"""From a prompt to the shape of its answer: the text of an llguidance grammar, and the schemas that it holds.

Nothing here touches llguidance: `schemas` tries the grammar out, the engine child draws by it. The model's end mark
may be drawn exactly where the grammar may end; llguidance sees to that.

What may be drawn freely is text up to `<tool_call>`: from there on it is a call. Reasoning is no place for calls, so
where the model writes for itself, the grammar knows its marks too. An answer that is nothing but calls or JSON has no
reasoning, since the grammar leaves it no room, except where the prompt has opened it already: there the model ends
it first.
"""

import json
from collections.abc import Iterator
from typing import Any, Literal, NamedTuple

from perdure.domain.model import JsonObject, JsonSchema, PlainText, Prompt, Shape, Tool
from perdure.runtime.llamacpp import notation
from perdure.runtime.llamacpp.prompts import must_call, offered, written

Reasoning = Literal["none", "marked", "open"]

# No free white space, so that a model cannot go on with it for ever; what models are used to write stays allowed.
_COMPACT = {"whitespace_flexible": False, "item_separator": ", ?", "key_separator": ": ?"}
_OBJECT = {"type": "object"}
_NOTHING = {"type": "object", "properties": {}, "additionalProperties": False}
CALLS_MAX = 8
_ANY = "(?s:.*)"
_SPACE = r"[ \t\r\n]*"


class Held(NamedTuple):
    """A schema that an answer is held to, as JSON, and the place that it has in the request. `strict` says whether it
    is refused rather than held to in part."""

    place: str
    schema: str
    strict: bool


class Calling(NamedTuple):
    """How a model is helped that was taught little of functions.

    `bias` is the `Shape.call_bias` of its answers. `most` is how many calls an answer has: small models go on with
    them for ever.
    """

    bias: float = 0.0
    most: int = CALLS_MAX


UNAIDED = Calling()


class NoGrammar(Exception):
    """The prompt asks for an answer that there cannot be. `param` names the place in the request."""

    def __init__(self, reason: str, param: str) -> None:
        super().__init__(reason)
        self.param = param


def schemas_of(prompt: Prompt) -> tuple[Held, ...]:
    """The schemas that the answer is held to: those of the functions, then that of a text. Raises `NoGrammar`."""
    tools = [_arguments(prompt.places.tool(place), tool) for place, tool in offered(prompt)]
    if must_call(prompt) and not tools:
        raise NoGrammar("it must call a function, and there is none that it may call", "tool_choice")
    whole = None if must_call(prompt) else _format(prompt)
    return (*tools, *([whole] if whole else []))


def shape_of(prompt: Prompt, reasoning: Reasoning, held: tuple[Held, ...], calling: Calling) -> Shape:
    """The shape of the answer. `reasoning` is what the model would do by itself, `held` the schemas of the prompt, or
    others in their places."""
    names = [tool.name for _, tool in offered(prompt)]
    tools, whole = held[: len(names)], held[-1] if len(held) > len(names) else None
    calls = notation.TOOL_CALL if tools else None
    if whole is None and not tools:
        return Shape(None, None, reasoning)
    free = whole is None and not must_call(prompt)
    if not free and reasoning == "marked":
        reasoning = "none"
    bias = calling.bias if free and reasoning == "none" else 0.0
    rules = [*_start(reasoning, free=free, json_too=whole is not None, calls=bool(tools), biased=bool(bias))]
    if tools:
        rules += _calls(names, tools, calling.most if prompt.parallel else 1)
    if whole:
        rules.append(f"json: %json {whole.schema}")
    return Shape("\n".join(["%llguidance {}", *rules]), calls, reasoning, bias, not free)


def _format(prompt: Prompt) -> Held | None:
    """The schema of an answer that is JSON as a whole."""
    match prompt.format:
        case PlainText():
            return None
        case JsonObject():
            return Held(prompt.places.format, _compact(_OBJECT), strict=True)
        case JsonSchema(schema=schema, strict=strict):
            return Held(f"{prompt.places.format}.schema", _compact(schema), bool(strict))


def _arguments(place: str, tool: Tool) -> Held:
    """The schema of a function's arguments, which are an object in any case."""
    place = f"{place}.parameters"
    if tool.parameters is None:
        return Held(place, _compact(_NOTHING), strict=True)
    kind = tool.parameters.get("type", "object")
    if kind != "object" and not (isinstance(kind, list) and "object" in kind):
        raise NoGrammar("arguments of a function are an object", f"{place}.type")
    return Held(place, _compact({**tool.parameters, "type": "object"}), bool(tool.strict))


def _compact(schema: dict[str, Any]) -> str:
    return written({**schema, "x-guidance": _COMPACT})


def _start(reasoning: Reasoning, *, free: bool, json_too: bool, calls: bool, biased: bool) -> Iterator[str]:
    """The rules from the start of the answer to the first call, or to the end.

    Where the first token of a call is `biased`, no text begins with it: else it would be a text as often.
    """
    forced = " | ".join(["json"] * json_too + ["calls"] * calls)
    if reasoning == "open":
        yield "start: thought answer" if not free else "start: TEXT | thought answer"
        yield f"thought[lazy]: /{_ANY}{_quoted(notation.THINK_CLOSE)}/"
        yield f"answer: {forced}" if not free else "answer: TEXT | said call_rest"
    elif not free:
        yield f"start: {forced}"
    elif reasoning == "marked":
        yield "start: TEXT | first call_rest | thought answer"
        yield f"thought[lazy]: /{_SPACE}{_quoted(notation.THINK_OPEN)}{_ANY}{_quoted(notation.THINK_CLOSE)}/"
        yield "first[lazy]: FIRST"  # nothing that begins as a thought
        yield f"FIRST: /{_ANY}{_quoted(notation.CALL_MARK)}/ & ~/{_SPACE}{_quoted(notation.THINK_OPEN)}{_ANY}/"
        yield "answer: TEXT | said call_rest"
    elif biased:
        yield f"start: TEXT? | said call_rest | {_literal(notation.CALL_MARK)} call_rest"
    else:
        yield "start: TEXT | said call_rest"
    if free:
        first = f"[^{notation.CALL_MARK[0]}]" if biased else ""
        yield f"said[lazy]: /{first}{_ANY}{_quoted(notation.CALL_MARK)}/"
        yield f"TEXT: /{first}{_ANY}/"
    elif calls:
        yield f"calls: {_literal(notation.CALL_MARK)} call_rest"


def _calls(names: list[str], tools: tuple[Held, ...], most: int) -> Iterator[str]:
    """What follows the mark of the first call."""
    again = f"({_literal(notation.CALL_BETWEEN)}? {_literal(notation.CALL_MARK)} call)"
    more = f" {again}{{0,{most - 1}}}" if most > 1 else ""
    yield f"call_rest: call{more}"
    kinds = " | ".join(f"call_{number}" for number in range(len(tools)))
    opening = notation.CALL_OPEN.removeprefix(notation.CALL_MARK)
    yield f"call: {_literal(opening)} ({kinds}) {_literal(notation.CALL_CLOSE)}"
    for number, (name, tool) in enumerate(zip(names, tools, strict=True)):
        head = written(name)[1:-1] + notation.CALL_ARGUMENTS
        yield f"call_{number}: {_literal(head)} %json {tool.schema}"


def _literal(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _quoted(text: str) -> str:
    """For a regular expression between slashes."""
    return text.replace("/", r"\/")
