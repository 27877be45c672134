"""Tools, and the choice among them. Functions are served; tools of other kinds are left out, and named.

The chat interface has the same tools in another wrapping and reads them with the same functions.
"""

from collections.abc import Collection, Sequence
from typing import Any, Literal, NamedTuple, cast

from perdure.api.values import (
    choice,
    elements,
    flag,
    kept,
    members,
    missing,
    name,
    out_of_range,
    strangers,
    text,
    unsupported,
    wrong_type,
    wrong_value,
)
from perdure.domain import limits
from perdure.domain.model import Tool, ToolChoice

Mode = Literal["none", "auto", "required"]

MODES = ("none", "auto", "required")
FUNCTION = frozenset({"type", "name", "description", "parameters", "strict"})
"""The members of a function that are read."""


class Chosen(NamedTuple):
    """A choice as the response shows it, and what it means."""

    shown: Any
    meant: ToolChoice


class Functions(NamedTuple):
    """The functions among the tools, and the path of each."""

    tools: tuple[Tool, ...]
    places: tuple[str, ...]


def read(value: object, ignored: list[str], within: str | None = None) -> Functions:
    """The functions of `tools`; `ignored` gets the paths of the others, and of members without effect.

    `within` names the member that holds the function, where a tool is not the function itself.
    """
    given = [] if value is None else elements(value, "tools", "an array of tools")
    if len(given) > limits.TOOLS_MAX:
        raise out_of_range("tools", f"at most {limits.TOOLS_MAX} tools long")
    found: dict[str, Tool] = {}
    places: list[str] = []
    for index, each in enumerate(given):
        where = f"tools[{index}]"
        tool = members(each, where)
        if kind(tool, where) == "function":
            one = _function(tool, where, ignored, within, found)
            found[one.name] = one
            places.append(where if within is None else f"{where}.{within}")
        else:
            ignored.append(where)
    return Functions(tuple(found.values()), tuple(places))


def kind(given: dict[str, Any], where: str) -> str:
    """The `type` of an object that must have one."""
    found = given.get("type")
    if found is None:
        raise missing(f"{where}.type", "a string, such as `function`")
    if not isinstance(found, str):
        raise wrong_type(f"{where}.type", "a string")
    return found


def choose(value: object, tools: Sequence[Tool], ignored: list[str]) -> Chosen:
    """What `tool_choice` says, where these are the functions. Raises `InvalidRequest`."""
    if value is None:
        return Chosen("auto", ToolChoice())
    if isinstance(value, str):
        mode = cast("Mode", choice(value, "tool_choice", MODES))
        return Chosen(mode, meaning(mode, None, tools))
    if not isinstance(value, dict):
        raise wrong_type("tool_choice", "a string or an object")
    given = members(value, "tool_choice")
    wanted = kind(given, "tool_choice")
    if wanted == "function":
        one = _named(given, "tool_choice", ignored)
        return Chosen(one, meaning("required", (one["name"],), tools))
    if wanted == "allowed_tools":
        return _allowed(given, tools, ignored)
    raise unsupported(
        "tool_choice",
        f"`tool_choice` must be one of {', '.join(MODES)}, or of type `function` or `allowed_tools`: tools of other"
        " kinds are not served.",
    )


def meaning(mode: Mode, names: tuple[str, ...] | None, tools: Collection[Tool]) -> ToolChoice:
    """The choice, if it can be made among these functions. Raises `InvalidRequest`."""
    if not {tool.name for tool in tools}.issuperset(names or ()):
        raise wrong_value("tool_choice", "the name of a function in `tools`; other tools are left out")
    if mode == "required" and not tools:
        raise wrong_value("tool_choice", "`auto` or `none` where `tools` holds no function")
    return ToolChoice(mode, names)


def function(given: dict[str, Any], where: str, ignored: list[str]) -> Tool:
    """One function. Raises `InvalidRequest`."""
    called = name(given.get("name"), f"{where}.name", limits.FUNCTION_NAME_MAX_CHARS, "_-.")
    told, parameters, strict = (given.get(member) for member in ("description", "parameters", "strict"))
    ignored.extend(path for path in strangers(given, FUNCTION, where) if not _is_default(given, path))
    return Tool(
        name=called,
        description=None if told is None else text(told, f"{where}.description", limits.DESCRIPTION_MAX_CHARS),
        parameters=None if parameters is None else schema(parameters, f"{where}.parameters"),
        strict=None if strict is None else flag(strict, f"{where}.strict"),
    )


def schema(value: object, where: str) -> dict[str, Any]:
    """A JSON Schema; whether it can be kept to is the model's to say."""
    return kept(members(value, where), where, limits.SCHEMA_MAX_BYTES)


def _function(
    tool: dict[str, Any], where: str, ignored: list[str], within: str | None, taken: Collection[str]
) -> Tool:
    if within is not None:
        ignored.extend(strangers(tool, ("type", within), where))
        where = f"{where}.{within}"
        if tool.get(within) is None:
            raise missing(where, "an object with the `name` of the function")
        tool = members(tool[within], where)
    elif tool.get("name") is None and isinstance(tool.get("function"), dict):
        raise unsupported(
            f"{where}.function",
            f"`{where}.function` belongs to the chat interface; here its members stand in the tool itself.",
        )
    found = function(tool, where, ignored)
    if found.name in taken:
        raise wrong_value(f"{where}.name", "unlike the names of the functions before it")
    return found


def _is_default(given: dict[str, Any], path: str) -> bool:
    """The model calls every function by itself, which may be spelt out."""
    return path.endswith(".allowed_callers") and given["allowed_callers"] == ["direct"]


def _named(given: dict[str, Any], where: str, ignored: list[str]) -> dict[str, str]:
    if given.get("name") is None:
        raise missing(f"{where}.name", "the name of a function in `tools`")
    ignored.extend(strangers(given, FUNCTION, where))
    return {"type": "function", "name": text(given["name"], f"{where}.name", limits.FUNCTION_NAME_MAX_CHARS)}


def _allowed(given: dict[str, Any], tools: Sequence[Tool], ignored: list[str]) -> Chosen:
    where = "tool_choice.tools"
    listed = elements(given.get("tools"), where, "an array of tools")
    if not 1 <= len(listed) <= limits.TOOLS_MAX:
        raise out_of_range(where, f"1 to {limits.TOOLS_MAX} tools long")
    mode = given.get("mode")
    mode = cast("Mode", "auto" if mode is None else choice(mode, "tool_choice.mode", MODES))
    ignored.extend(strangers(given, ("type", "mode", "tools"), "tool_choice"))
    shown = [_allowed_one(each, f"{where}[{index}]", ignored) for index, each in enumerate(listed)]
    names = tuple(dict.fromkeys(one["name"] for one in shown))
    return Chosen({"type": "allowed_tools", "mode": mode, "tools": shown}, meaning(mode, names, tools))


def _allowed_one(value: object, where: str, ignored: list[str]) -> dict[str, str]:
    given = members(value, where)
    if kind(given, where) != "function":
        raise unsupported("tool_choice", "`tool_choice` may allow functions only; other tools are left out.")
    return _named(given, where, ignored)
