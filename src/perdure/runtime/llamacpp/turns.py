"""How a conversation is put to a model: as turns that its chat template takes.

Many templates know functions and write calls in the notation of `notation`; they get them as `transformers` hands
them over. For the others, functions are explained in the system turn, calls are part of the assistant's text, and
results come in the user's turn.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from perdure.domain.model import JsonObject, JsonSchema, Message, Prompt, Tool, ToolCall
from perdure.runtime.llamacpp import notation
from perdure.runtime.llamacpp.prompts import must_call, offered, written

Turn = dict[str, Any]

_CALLING = "\n".join(
    (
        "You can call functions. Each line between the marks describes one of them:",
        "<tools>",
        "%s",
        "</tools>",
        "To call a function, write its name and its arguments, which are a JSON object, in exactly this form:",
        f"{notation.CALL_OPEN}NAME{notation.CALL_ARGUMENTS}ARGUMENTS{notation.CALL_CLOSE}",
        f"The result comes back in this form:\n{notation.RESULT_OPEN}RESULT{notation.RESULT_CLOSE}",
    )
)
_NO_PARAMETERS = {"type": "object", "properties": {}}
_OBJECT = "Answer with one JSON object and nothing else."
_SCHEMA = "Answer with JSON of this schema and nothing else{about}:\n{schema}"


class Conversation(NamedTuple):
    """What a template is given. Each of `tools` is the JSON of a function's description."""

    messages: tuple[Message, ...]
    tools: tuple[str, ...] = ()


class Abilities(NamedTuple):
    """What a template can do: write functions and calls in our notation, and take a system turn."""

    calls: bool
    system: bool


PROBE_TEXT = "probe of a text"
PROBE_SYSTEM = Conversation((Message("system", PROBE_TEXT), Message("user", "x")))
PROBE_CALL = Conversation(
    (
        Message("user", "x"),
        Message("assistant", "", (ToolCall("call_probe", "probe_name", '{"probe_key": "probe_value"}'),)),
        Message("tool", PROBE_TEXT, call_id="call_probe"),
    ),
    ('{"name":"probe_name","description":"probe of a description","parameters":{"type":"object"}}',),
)


def writes_calls(rendered: str) -> bool:
    """Whether `PROBE_CALL` was rendered with all that is in it, and the call in our notation."""
    call = _call(ToolCall("", "probe_name", '{"probe_key": "probe_value"}'))
    return all(text in rendered for text in (call, "probe of a description", PROBE_TEXT))


def conversation(prompt: Prompt, able: Abilities) -> Conversation:
    """The prompt as a template of these abilities takes it."""
    tools = tuple(_description(tool) for _, tool in offered(prompt))
    hint = _hint(prompt)
    if able.calls:
        return Conversation(_told(prompt.messages, hint, able), tools)
    calling = _CALLING % "\n".join(tools) if tools else ""
    told = "\n\n".join(filter(None, [calling, hint]))
    return Conversation(_told(tuple(_plain(prompt.messages)), told, able))


def turns(conversation: Conversation) -> tuple[list[Turn], list[Turn] | None]:
    """Messages and functions as `transformers` hands them to a template."""
    names = {call.call_id: call.name for message in conversation.messages for call in message.calls}
    tools = [{"type": "function", "function": json.loads(tool)} for tool in conversation.tools]
    return [_turn(message, names) for message in conversation.messages], tools or None


def parsed(arguments: str) -> Any:
    """The arguments of a call: an object. What is none (a model was cut off in the middle) stays a text."""
    try:
        value = json.loads(arguments)
    except (ValueError, RecursionError):
        return arguments
    return value if isinstance(value, dict) else arguments


def _description(tool: Tool) -> str:
    parameters = _NO_PARAMETERS if tool.parameters is None else tool.parameters
    return written({"name": tool.name, "description": tool.description or "", "parameters": parameters})


def _hint(prompt: Prompt) -> str:
    """What a model is told about the format of its answer. Small ones answer better to a format that they know of."""
    if must_call(prompt):
        return ""
    match prompt.format:
        case JsonObject():
            return _OBJECT
        case JsonSchema(schema=schema, description=description):
            return _SCHEMA.format(about=f" ({description})" if description else "", schema=written(schema))
        case _:
            return ""


def _told(messages: tuple[Message, ...], told: str, able: Abilities) -> tuple[Message, ...]:
    """With something said before all else: at the end of the first system turn, which is made where there is none;
    where the template takes no such turn, at the start of the first one of the user."""
    if not told:
        return messages
    if not able.system:
        at = next((place for place, message in enumerate(messages) if message.role == "user"), None)
        if at is None:
            return (Message("user", told), *messages)
        return (*messages[:at], Message("user", f"{told}\n\n{messages[at].content}"), *messages[at + 1 :])
    if messages and messages[0].role == "system":
        return (Message("system", f"{messages[0].content}\n\n{told}"), *messages[1:])
    return (Message("system", told), *messages)


def _plain(messages: tuple[Message, ...]) -> Iterator[Message]:
    """Without calls and tools' turns: as text. Results that follow each other, and what the user says to them, are
    one turn, since many templates want user and assistant in turn."""
    results: list[str] = []
    for message in messages:
        if message.role == "tool":
            results.append(f"{notation.RESULT_OPEN}{message.content}{notation.RESULT_CLOSE}")
        elif message.role == "user" and results:
            yield Message("user", "\n".join([*results, message.content]))
            results = []
        else:
            if results:
                yield Message("user", "\n".join(results))
                results = []
            calls = (_call(call) for call in message.calls)
            yield Message(message.role, "\n".join(filter(None, [message.content, *calls])))
    if results:
        yield Message("user", "\n".join(results))


def _call(call: ToolCall) -> str:
    arguments = parsed(call.arguments)
    text = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
    return f"{notation.CALL_OPEN}{written(call.name)[1:-1]}{notation.CALL_ARGUMENTS}{text}{notation.CALL_CLOSE}"


def _turn(message: Message, names: Mapping[str, str]) -> Turn:
    turn: Turn = {"role": message.role, "content": message.content}
    if message.calls:
        turn["tool_calls"] = [
            {
                "id": call.call_id,
                "type": "function",
                "function": {"name": call.name, "arguments": parsed(call.arguments)},
            }
            for call in message.calls
        ]
    if message.role == "tool":
        turn |= {"tool_call_id": message.call_id, "name": names.get(message.call_id or "", "")}
    return turn
