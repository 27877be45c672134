"""Events as the chunks of a streamed chat completion.

What the chunks add up to is the completion that the same request gets without a stream. A log says more than chunks
can: where items begin and end goes without a word. A failure in mid-stream is a frame with an `error`, without
`[DONE]` after it: the official clients raise it, and would take any other end for the end of the text.
"""

from typing import Any, Literal

import msgspec
from msgspec import UNSET, UnsetType

from perdure.api import errors
from perdure.api.chat_answer import (
    ChatLogprobs,
    ChatUsage,
    FinishReason,
    completion_id,
    failure,
    finish_reason,
    usage,
)
from perdure.api.sse import DONE
from perdure.domain import events as ev
from perdure.domain.errors import PerdureError
from perdure.domain.events import Event
from perdure.domain.parts import Logprob
from perdure.domain.response import Extension, Response


class CalledPiece(msgspec.Struct, frozen=True):
    """More of what is called."""

    arguments: str
    name: str | UnsetType = UNSET


class ToolCallPiece(msgspec.Struct, frozen=True):
    """More of the call with this place among the calls. Its first piece has the id and the name."""

    index: int
    function: CalledPiece
    id: str | UnsetType = UNSET
    type: Literal["function"] | UnsetType = UNSET


class ChatDelta(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a chunk adds to the message."""

    role: Literal["assistant"] | UnsetType = UNSET
    content: str | UnsetType | None = UNSET
    reasoning_content: str | UnsetType = UNSET
    tool_calls: tuple[ToolCallPiece, ...] | UnsetType = UNSET


class ChunkChoice(msgspec.Struct, frozen=True):
    """The one answer of a completion, piece by piece."""

    delta: ChatDelta
    finish_reason: FinishReason | None = None
    logprobs: ChatLogprobs | None = None
    index: Literal[0] = 0


class ChatChunk(msgspec.Struct, frozen=True):
    """A piece of a completion. From `metadata` to `perdure` it stands in the first one; `usage` in all where it was
    asked for, null up to the last."""

    id: str
    created: int
    model: str
    choices: tuple[ChunkChoice, ...]
    usage: ChatUsage | UnsetType | None = UNSET
    metadata: dict[str, str] | UnsetType = UNSET
    temperature: float | UnsetType = UNSET
    top_p: float | UnsetType = UNSET
    seed: int | UnsetType = UNSET
    perdure: Extension | UnsetType = UNSET
    object: Literal["chat.completion.chunk"] = "chat.completion.chunk"
    service_tier: Literal["default"] = "default"


class Chunks:
    """Makes the chunks of one completion from the whole log of its response, in order."""

    def __init__(self, *, include_usage: bool) -> None:
        self._include_usage = include_usage
        self._head = dict[str, Any]()
        self._calls = 0
        self._says_something = False

    def __call__(self, event: Event) -> list[bytes]:
        """The frames that stand for an event. There are none for one that tells a reader of chunks nothing."""
        if event.type == ev.CREATED:
            return [self._first(_response(event))]
        if event.type in ev.TERMINAL_TYPES:
            return self._last(_response(event))
        # A retry would take back what was shown, which chunks cannot. It happens at a start only, and no stream lives
        # through one.
        assert event.type != ev.RETRIED  # noqa: S101 -- a broken invariant of recovery
        said = self._said(event.type, msgspec.json.decode(event.data)) if event.type in _SAID else None
        return [self._chunk(said)] if said is not None else []

    def _first(self, response: Response) -> bytes:
        self._head = {"id": completion_id(response), "created": response.created_at, "model": response.model}
        more = {name: getattr(response, name) for name in ("metadata", "temperature", "top_p", "seed", "perdure")}
        return self._chunk(ChunkChoice(ChatDelta(role="assistant", content=None)), **more)

    def _said(self, kind: str, data: dict[str, Any]) -> ChunkChoice | None:
        if kind == ev.ITEM_ADDED:
            return self._begun(data["item"])
        if kind == ev.ARGUMENTS_DELTA:
            more = ToolCallPiece(self._calls - 1, CalledPiece(data["delta"]))
            return ChunkChoice(ChatDelta(tool_calls=(more,)))
        if kind == ev.REASONING_DELTA:
            return ChunkChoice(ChatDelta(reasoning_content=data["delta"]))
        self._says_something = True
        told = msgspec.convert(data["logprobs"], tuple[Logprob, ...])
        return ChunkChoice(ChatDelta(content=data["delta"]), logprobs=ChatLogprobs(told) if told else None)

    def _begun(self, item: dict[str, Any]) -> ChunkChoice | None:
        """A call is told at once, whatever its arguments will be. Everything else begins with its text."""
        if item["type"] != "function_call":
            return None
        self._says_something = True
        self._calls += 1
        called = CalledPiece("", item["name"])
        first = ToolCallPiece(self._calls - 1, called, item["call_id"], "function")
        return ChunkChoice(ChatDelta(tool_calls=(first,)))

    def _last(self, response: Response) -> list[bytes]:
        error = failure(response)
        if error is not None:
            return [error_frame(error)]
        # An answer without any text has an empty one, as without a stream, and not none.
        delta = ChatDelta() if self._says_something else ChatDelta(content="")
        frames = [self._chunk(ChunkChoice(delta, finish_reason(response)))]
        if self._include_usage:
            frames.append(self._frame((), usage=usage(response)))
        return [*frames, DONE]

    def _chunk(self, choice: ChunkChoice, **more: Any) -> bytes:
        return self._frame((choice,), usage=None if self._include_usage else UNSET, **more)

    def _frame(self, choices: tuple[ChunkChoice, ...], **more: Any) -> bytes:
        return _data(msgspec.json.encode(ChatChunk(choices=choices, **self._head, **more)))


_SAID = frozenset({ev.ITEM_ADDED, ev.TEXT_DELTA, ev.REASONING_DELTA, ev.ARGUMENTS_DELTA})


def error_frame(error: PerdureError) -> bytes:
    """An error in mid-stream."""
    return _data(errors.body(error))


def _data(value: bytes) -> bytes:
    return b"data: %s\n\n" % value


def _response(event: Event) -> Response:
    assert event.snapshot is not None  # noqa: S101 -- lifecycle events carry the response
    return msgspec.json.decode(event.snapshot, type=Response)
