"""What a model's answer is made of while it is drawn: text, reasoning before it, and calls of functions.

The runtime tells them apart, since only it knows how a model writes a call; from here on nobody has to look into a
text for one.
"""

from collections.abc import Iterable

import msgspec


class TopLogprob(msgspec.Struct, frozen=True):
    """A token that could have been drawn, and the natural logarithm of its probability."""

    token: str
    logprob: float
    bytes: tuple[int, ...]


class Logprob(msgspec.Struct, frozen=True):
    """A drawn token, with the likeliest ones of its place beside it."""

    token: str
    logprob: float
    bytes: tuple[int, ...]
    top_logprobs: tuple[TopLogprob, ...] = ()


class Text(msgspec.Struct, frozen=True, tag="text"):
    """Text of a message. `logprobs`, where they were asked for, has an entry for each token of the text."""

    text: str
    logprobs: tuple[Logprob, ...] = ()


class Reasoning(msgspec.Struct, frozen=True, tag="reasoning"):
    """What a model writes for itself before it answers."""

    text: str


class CallBegin(msgspec.Struct, frozen=True, tag="call"):
    """The model begins to call a function."""

    name: str


class CallArguments(msgspec.Struct, frozen=True, tag="arguments"):
    """More of the call's arguments, which are one JSON object in the end."""

    text: str


class CallEnd(msgspec.Struct, frozen=True, tag="call_end"):
    """The call's arguments are whole."""


Part = Text | Reasoning | CallBegin | CallArguments | CallEnd


def joined(parts: Iterable[Part]) -> list[Part]:
    """The same with neighbours of one kind put together; empty ones are left out."""
    found: list[Part] = []
    for part in parts:
        last = found[-1] if found else None
        if isinstance(part, Text) and isinstance(last, Text):
            found[-1] = Text(last.text + part.text, last.logprobs + part.logprobs)
        elif isinstance(part, Reasoning) and isinstance(last, Reasoning):
            found[-1] = Reasoning(last.text + part.text)
        elif isinstance(part, CallArguments) and isinstance(last, CallArguments):
            found[-1] = CallArguments(last.text + part.text)
        elif not isinstance(part, Text | Reasoning | CallArguments) or part.text:
            found.append(part)
    return found
