"""The body of POST /v1/chat/completions: from received JSON to the request and the items of a response.

What the two interfaces have in common is read by the functions of `create_body`, so that it cannot come to mean two
things.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import msgspec

from perdure.api import chat_fields, chat_messages, fields, text_format, tools
from perdure.api.create_body import CreateBody
from perdure.api.options import REASONING
from perdure.api.tools import Chosen, Mode
from perdure.api.values import (
    choice,
    elements,
    flag,
    integer,
    members,
    missing,
    out_of_range,
    strangers,
    text,
    unsupported,
    wrong_type,
    wrong_value,
)
from perdure.domain import limits
from perdure.domain.errors import InvalidRequest
from perdure.domain.items import Item
from perdure.domain.model import Places, Tool
from perdure.domain.request import CreateRequest

STOPS_MAX = 4
STOP_MAX_CHARS = 512
_FORMAT = "response_format.json_schema"


@dataclass(frozen=True)
class ChatAsked:
    """What a chat request asks for. `places` has the path of what each item was made of; `include_usage` says whether
    a stream ends with the counts of tokens."""

    request: CreateRequest
    items: Sequence[Item]
    places: Sequence[str]
    stream: bool
    include_usage: bool


class ChatBody:
    """Reads bodies; what is the same in a create of a response is read by `create_body`."""

    def __init__(self, create_body: CreateBody) -> None:
        self._create_body = create_body

    def read(self, body: dict[str, Any]) -> ChatAsked:
        """What is asked for. Raises `InvalidRequest` with the path of the first value at fault."""
        ignored = fields.sort_out(body, chat_fields.SERVED, chat_fields.NOT_SERVED, chat_fields.ELSEWHERE)
        same = {field: value for field, value in body.items() if field in chat_fields.SAME}
        request = self._create_body.read_part(same).request
        stream = _flag(body, "stream")
        include_usage = _stream_options(body.get("stream_options"), ignored)
        if include_usage and not stream:
            ignored.append("stream_options.include_usage")  # the counts are in the answer anyway
        given = chat_messages.read(body.get("messages"))
        own: dict[str, Any] = {
            "store": _flag(body, "store"),
            "max_output_tokens": _tokens(body),
            "stop": _stop(body.get("stop")),
            **_tool_fields(body, ignored),
            **_text_fields(body, ignored),
        }
        ignored = [*ignored, *request.ignored, *given.ignored]
        request = msgspec.structs.replace(request, **own, ignored=tuple(ignored))
        return ChatAsked(request, given.items, given.places, stream, include_usage)


def _flag(body: dict[str, Any], name: str) -> bool:
    value = body.get(name)
    return False if value is None else flag(value, name)


def _stream_options(value: object, ignored: list[str]) -> bool:
    """Whether counts of tokens are wanted. Nothing is padded, so asking for it is named."""
    given = {} if value is None else members(value, "stream_options")
    wanted = {name: given.get(name) for name in ("include_usage", "include_obfuscation")}
    for name, each in wanted.items():
        if each is not None:
            flag(each, f"stream_options.{name}")
    ignored.extend(strangers(given, ("include_usage",), "stream_options"))
    return bool(wanted["include_usage"])


def _tokens(body: dict[str, Any]) -> int | None:
    """The limit of tokens, which has two names. Two limits that differ leave none to be kept to."""
    names = ("max_completion_tokens", "max_tokens")
    given = [
        integer(body[name], name, limits.OUTPUT_TOKENS_MIN, limits.OUTPUT_TOKENS_MAX)
        for name in names
        if body.get(name) is not None
    ]
    if len(set(given)) > 1:
        raise wrong_value("max_tokens", "left out where `max_completion_tokens` says something else")
    return given[0] if given else None


def _stop(value: object) -> tuple[str, ...]:
    if value is None:
        return ()
    if not isinstance(value, str | list):
        raise wrong_type("stop", "a string or an array of strings")
    listed = [value] if isinstance(value, str) else elements(value, "stop", "a string or an array of strings")
    if len(listed) > STOPS_MAX:
        raise out_of_range("stop", f"at most {STOPS_MAX} strings")
    where = "stop" if isinstance(value, str) else "stop[{}]"
    found = [text(each, where.format(index), STOP_MAX_CHARS) for index, each in enumerate(listed)]
    if "" in found:
        raise wrong_value(where.format(found.index("")), "a string that is not empty")
    return tuple(dict.fromkeys(found))


def _text_fields(body: dict[str, Any], ignored: list[str]) -> dict[str, Any]:
    verbosity, effort = body.get("verbosity"), body.get("reasoning_effort")
    if verbosity is not None and choice(verbosity, "verbosity", text_format.VERBOSITIES) != "medium":
        ignored.append("verbosity")
    if effort is not None:
        choice(effort, "reasoning_effort", REASONING["effort"])
        ignored.append("reasoning_effort")
    return {
        "format": text_format.read_format(body.get("response_format"), "response_format", ignored, "json_schema"),
        "verbosity": verbosity or text_format.VERBOSITY_DEFAULT,
        "reasoning": None if effort is None else {"effort": effort, "summary": None},
        **_logprobs(body),
    }


def _logprobs(body: dict[str, Any]) -> dict[str, Any]:
    wanted, likely = _flag(body, "logprobs"), body.get("top_logprobs")
    likely = 0 if likely is None else integer(likely, "top_logprobs", 0, limits.TOP_LOGPROBS_MAX)
    if likely and not wanted:
        raise wrong_value("top_logprobs", "left out, or 0, unless `logprobs` is true")
    return {"logprobs": wanted, "top_logprobs": likely}


def _tool_fields(body: dict[str, Any], ignored: list[str]) -> dict[str, Any]:
    functions, places = tools.read(body.get("tools"), ignored, within="function")
    chosen = _choose(body.get("tool_choice"), functions, ignored)
    return {
        "tools": functions,
        "places": Places(places, _FORMAT),
        "tool_choice": chosen.shown,
        "choice": chosen.meant,
    }


def _choose(value: object, functions: Sequence[Tool], ignored: list[str]) -> Chosen:
    """What `tool_choice` says. The response shows it in the words of its own interface."""
    if not isinstance(value, dict):
        return tools.choose(value, functions, ignored)
    given = members(value, "tool_choice")
    wanted = tools.kind(given, "tool_choice")
    if wanted == "allowed_tools":
        return _allowed(given, functions, ignored)
    if wanted != "function":
        return tools.choose(given, functions, ignored)  # refuses it
    one = _named(given, "tool_choice", ignored)
    return Chosen(one, tools.meaning("required", (one["name"],), functions))


def _allowed(given: dict[str, Any], functions: Sequence[Tool], ignored: list[str]) -> Chosen:
    where = "tool_choice.allowed_tools"
    ignored.extend(strangers(given, ("type", "allowed_tools"), "tool_choice"))
    if given.get("allowed_tools") is None:
        raise missing(where, "an object with `mode` and `tools`")
    allowed = members(given["allowed_tools"], where)
    ignored.extend(strangers(allowed, ("mode", "tools"), where))
    listed = elements(allowed.get("tools"), f"{where}.tools", "an array of tools")
    if not 1 <= len(listed) <= limits.TOOLS_MAX:
        raise out_of_range(f"{where}.tools", f"1 to {limits.TOOLS_MAX} tools long")
    mode = cast("Mode", choice(allowed.get("mode") or "auto", f"{where}.mode", tools.MODES))
    shown = [_named(each, f"{where}.tools[{index}]", ignored) for index, each in enumerate(listed)]
    names = tuple(dict.fromkeys(one["name"] for one in shown))
    return Chosen({"type": "allowed_tools", "mode": mode, "tools": shown}, tools.meaning(mode, names, functions))


def _named(value: object, where: str, ignored: list[str]) -> dict[str, str]:
    given = members(value, where)
    if tools.kind(given, where) != "function":
        raise unsupported(f"{where}.type", f"`{where}.type` must be `function`; other tools are left out.")
    ignored.extend(strangers(given, ("type", "function"), where))
    where = f"{where}.function"
    if given.get("function") is None:
        raise missing(where, "an object with the `name` of a function in `tools`")
    function = members(given["function"], where)
    ignored.extend(strangers(function, tools.FUNCTION, where))
    if function.get("name") is None:
        raise missing(f"{where}.name", "the name of a function in `tools`")
    called = text(function["name"], f"{where}.name", limits.FUNCTION_NAME_MAX_CHARS)
    return {"type": "function", "name": called}


_ITEM = re.compile(r"(?<![\w.])input\[(\d+)\](?:\.(\w+))?")
_OF_ITEMS = {"call_id": "tool_call_id", "output": "content"}
_OF_CALLS = {"call_id": "id", "name": "function.name", "arguments": "function.arguments"}
"""The members of items, and of the calls among them, that have another name in this interface."""
_NAMES = (
    (re.compile(r"(?<![\w.])input(?=`|$)"), "messages"),
    (re.compile(r"(?<![\w.])text\.format\b"), _FORMAT),
    (re.compile(r"(?<![\w.])max_output_tokens\b"), "max_completion_tokens"),
)


def renamed(error: InvalidRequest, places: Sequence[str]) -> InvalidRequest:
    """What the service found wrong, with the names of this interface for what it names. `places` are the paths of
    the items."""

    def own(found: re.Match[str]) -> str:
        number, member = int(found[1]), found[2]
        if number >= len(places):  # somebody's words
            return found[0]
        place = places[number]
        others = _OF_CALLS if ".tool_calls[" in place else _OF_ITEMS
        return place if member is None else f"{place}.{others.get(member, member)}"

    def plain(words: str) -> str:
        for pattern, name in _NAMES:
            words = pattern.sub(name, words)
        return _ITEM.sub(own, words)

    param = None if error.param is None else plain(error.param)
    return type(error)(plain(error.message), param=param, code=error.error_code)
