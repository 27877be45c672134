"""Holds what the tests read against the published types: those of the official client and those of Open Responses.

A client that is `watched` reads as before. Each response object, event and
chat completion that passes is validated, strictly, without a request of its own. What does not fit is gathered in
`WITNESS`, and fails the test that read it (`tests/conftest.py`).
"""

import json
import sys
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

if TYPE_CHECKING:
    from pydantic import TypeAdapter

T = TypeVar("T")
VENDOR = "perdure:"
OWN_TYPES = frozenset({"response.cancelled"})
"""Neither source has this event; the response that it carries is held against both."""


class Types(NamedTuple):
    """The type of each kind of object, or of each type of event, that a source publishes."""

    objects: dict[str, "TypeAdapter[Any]"]
    events: dict[str, "TypeAdapter[Any]"]


class Witness:
    """What was valid, by kind, and what was not."""

    def __init__(self) -> None:
        self.seen: Counter[str] = Counter()
        self.problems: list[str] = []

    def take(self) -> tuple[Counter[str], list[str]]:
        """Both, and begin anew."""
        taken = self.seen, self.problems
        self.__init__()
        return taken

    def whole(self, body: bytes) -> None:
        """Look at the body of an answer."""
        value = json.loads(body)
        if not isinstance(value, dict):
            return
        self._object(value, body)
        for each in value["data"] if value.get("object") == "list" else ():
            self._object(each, json.dumps(each).encode())

    def frame(self, frame: bytes) -> None:
        """Look at a frame of a stream."""
        data = b"\n".join(line[6:] for line in frame.split(b"\n") if line.startswith(b"data: "))
        if not data or data == b"[DONE]":
            return
        value = json.loads(data)
        kind = value.get("type")
        if kind is None:
            self._object(value, data)
        elif kind in OWN_TYPES:
            self._object(value["response"], json.dumps(value["response"]).encode())
        elif not kind.startswith(VENDOR):
            self._look(kind, data, lambda types: types.events, needed=True)

    def _object(self, value: dict[str, Any], data: bytes) -> None:
        if "sequence_number" in value:
            self.frame(b"data: " + data)
        elif "deleted" not in value:
            self._look(value.get("object", "item" if "type" in value else ""), data, lambda types: types.objects)

    def _look(
        self, kind: str, data: bytes, of: Callable[[Types], dict[str, "TypeAdapter[Any]"]], *, needed: bool = False
    ) -> None:
        from pydantic import ValidationError

        found = [(source, of(types)[kind]) for source, types in sources().items() if kind in of(types)]
        if needed and not found:
            self.problems.append(f"no source knows an event {kind}")
        for source, adapter in found:
            try:
                adapter.validate_json(_as_typed[source](data), strict=True)
            except ValidationError as error:
                self.problems.append(f"{kind} is not as {source} has it: {error}")
        if found:
            self.seen[kind] += 1


def _without_schema(data: bytes) -> bytes:
    """Where a format has a schema, Open Responses' type of a response takes only null; the official client's takes
    only the schema."""
    if b'"json_schema"' not in data:
        return data
    value = json.loads(data)
    response = value.get("response", value)
    if "schema" in (shape := response.get("text", {}).get("format", {})):
        shape["schema"] = None
    return json.dumps(value).encode()


def _with_a_code_of_theirs(data: bytes) -> bytes:
    """The official client's type of a response lists the error codes of its own service; the client itself takes any
    word, as Open Responses does, and ours are others."""
    if b'"failed"' not in data:
        return data
    value = json.loads(data)
    error = value.get("response", value).get("error")
    if isinstance(error, dict) and isinstance(error.get("code"), str):
        error["code"] = "server_error"
    return json.dumps(value).encode()


_as_typed = {"openai": _with_a_code_of_theirs, "openresponses-types": _without_schema}
WITNESS = Witness()


@cache
def sources() -> dict[str, Types]:
    """The published types."""
    return {"openai": _openai(), "openresponses-types": _open_responses()}


def _openai() -> Types:
    from openai.types import Model, responses
    from openai.types.chat import ChatCompletion, ChatCompletionChunk
    from openai.types.responses.input_token_count_response import InputTokenCountResponse
    from pydantic import TypeAdapter

    objects: dict[str, Any] = {
        "response": responses.Response,
        "response.input_tokens": InputTokenCountResponse,
        "chat.completion": ChatCompletion,
        "chat.completion.chunk": ChatCompletionChunk,
        "model": Model,
        "item": responses.ResponseItem,
    }
    union: Any = responses.ResponseStreamEvent
    return Types({name: TypeAdapter(each) for name, each in objects.items()}, _by_type(union.__args__[0].__args__))


def _open_responses() -> Types:
    import openresponses_types as types
    from pydantic import TypeAdapter

    names = [name for name in dir(types) if name.endswith("StreamingEvent") and name != "ErrorStreamingEvent"]
    return Types(
        {"response": TypeAdapter(types.ResponseResource)}, _by_type([getattr(types, name) for name in names])
    )


def _by_type(models: Any) -> dict[str, "TypeAdapter[Any]"]:
    """The models of events by the `type` that they are for: a literal, or an enumeration of one name."""
    from pydantic import TypeAdapter

    found: dict[str, TypeAdapter[Any]] = {}
    for model in models:
        kind = model.model_fields["type"].annotation
        names = getattr(kind, "__args__", None) or [member.value for member in kind]
        found |= {name: TypeAdapter(model) for name in names}
    return found


class _Reader:
    """Takes the bytes of one answer as they come."""

    def __init__(self, answer: Any) -> None:
        self._kind = answer.headers.get("content-type", "") if answer.is_success else ""
        self._held = b""

    def feed(self, piece: bytes) -> None:
        """More bytes."""
        if not self._kind.startswith(("application/json", "text/event-stream")):
            return
        self._held += piece
        if self._kind.startswith("text/event-stream"):
            *frames, self._held = self._held.split(b"\n\n")
            for frame in frames:
                WITNESS.frame(frame)

    def end(self) -> None:
        """The answer is whole."""
        if self._kind.startswith("application/json") and self._held:
            WITNESS.whole(self._held)


class _Stream:
    """The stream of an answer that shows the reader what it brings; for callers in a thread and on an event loop."""

    def __init__(self, answer: Any) -> None:
        self._inner = answer.stream
        self._reader = _Reader(answer)

    def __iter__(self) -> Iterator[bytes]:
        for piece in self._inner:
            self._reader.feed(piece)
            yield piece
        self._reader.end()

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for piece in self._inner:
            self._reader.feed(piece)
            yield piece
        self._reader.end()

    def close(self) -> None:
        self._inner.close()

    async def aclose(self) -> None:
        await self._inner.aclose()


@cache
def _watched_stream(base: type) -> Any:
    """A stream that the library of `base` takes for its own: the official client uses another one than the tests."""
    return type("WatchedStream", (_Stream, base), {})


def watched(client: T) -> T:
    """The client, of httpx or an official one, whose transport shows from now on what it brings."""
    http: Any = getattr(client, "_client", client)
    transport = http._transport
    library: Any = sys.modules[type(transport).__module__.partition(".")[0]]
    if isinstance(transport, library.AsyncBaseTransport):
        transport.handle_async_request = _async_watch(transport.handle_async_request, library.AsyncByteStream)
    else:
        transport.handle_request = _watch(transport.handle_request, library.SyncByteStream)
    return client


def _watch(handle: Callable[[Any], Any], base: type) -> Callable[[Any], Any]:
    def handle_request(request: Any) -> Any:
        answer = handle(request)
        answer.stream = _watched_stream(base)(answer)
        return answer

    return handle_request


def _async_watch(handle: Callable[[Any], Awaitable[Any]], base: type) -> Callable[[Any], Awaitable[Any]]:
    async def handle_async_request(request: Any) -> Any:
        answer = await handle(request)
        answer.stream = _watched_stream(base)(answer)
        return answer

    return handle_async_request
