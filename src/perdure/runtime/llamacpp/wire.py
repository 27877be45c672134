"""What parent and children say to each other over the children's standard input and output.

A frame is its length (four bytes, little endian) and a MessagePack body. Orders go down, answers come up. Each child
takes one `Open…` first and answers it with its `…Ready` or with `Refused`.
"""

import struct
from typing import BinaryIO

import msgspec

from perdure.domain.model import Prompt, Sampling, Shape
from perdure.domain.parts import Part
from perdure.runtime.llamacpp.grammar import Calling

FRAME_MAX_BYTES = 256 * 1024 * 1024  # a guard against nonsense, far above the largest request body
HEADER = struct.Struct("<I")


class Nonsense(Exception):
    """The other side sent what is no frame of this protocol."""


class OpenTokenizer(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Read the vocabulary and the chat template of the model file at `path`. `calling` is how it is helped."""

    path: bytes
    library: bytes | None
    calling: Calling


class OpenEngine(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Load the model file at `path` and make room for `slots` texts of `window` tokens within the memory given."""

    path: bytes
    library: bytes | None
    slots: int
    window: int
    threads: int
    memory_max_bytes: int


class Encode(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Turn a conversation into token ids, unless it is `tokens_max` or more; the answer bears the same number."""

    number: int
    prompt: Prompt
    tokens_max: int


class Draw(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Start the text `run`: read `prompt` and `done`, then draw until `tokens_max` or the end of the turn."""

    run: int
    prompt: tuple[int, ...]
    done: tuple[int, ...]
    sampling: Sampling
    tokens_max: int
    shape: Shape


class Stop(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Free the slot of `run`; answered by its number in `Step.freed`, also if the text has ended already."""

    run: int


class TokenizerReady(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """What the file says about its model, and the library about itself and the processor.

    `token_bytes_max` is the most text that one token of the vocabulary can stand for. `sampling_temp` and
    `sampling_top_p` are what the file recommends, as it is written there; nobody has checked them.
    """

    architecture: str
    file_type: int | None
    weight_types: tuple[str, ...]
    context_train: int
    kv_bytes_per_token: int
    token_bytes_max: int
    library_version: str
    system_info: str
    sampling_temp: str | None = None
    sampling_top_p: str | None = None


class EngineReady(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The engine can draw: so many texts at once, each in a window of so many tokens."""

    slots: int
    window: int


class Refused(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The child cannot do its work with this file; the reason reads on after "cannot be used: "."""

    reason: str


class Encoded(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The token ids of a conversation, the shape of the answer, and what of the schemas is not in it."""

    number: int
    tokens: tuple[int, ...]
    shape: Shape
    dropped: tuple[str, ...] = ()


class TooLong(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The conversation cannot be fewer tokens than `least`, which are too many."""

    number: int
    least: int


class NotEncoded(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The chat template refuses the conversation, or a schema cannot be compiled: then `param` names the place."""

    number: int
    reason: str
    param: str


class Busy(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The schemas could not be tried; the reason reads on after "could not be tried: "."""

    number: int
    reason: str


class Drawn(msgspec.Struct, frozen=True, array_like=True):
    """A piece of the text `run`. With `end` set, its slot is free."""

    run: int
    parts: tuple[Part, ...]
    tokens: tuple[int, ...]
    end: str | None


class Failed(msgspec.Struct, frozen=True, array_like=True):
    """The text `run` cannot go on. Its slot is free."""

    run: int
    reason: str


class Step(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Everything that one decode call, or the orders before it, brought. The counters only grow.

    `tokens_reused` are those that were found in a slot; they and `tokens_read` are all that texts began with.
    """

    drawn: tuple[Drawn, ...]
    failed: tuple[Failed, ...]
    freed: tuple[int, ...]
    tokens_drawn: int
    tokens_read: int
    tokens_reused: int


Open = OpenTokenizer | OpenEngine
Order = OpenTokenizer | OpenEngine | Encode | Draw | Stop
Answer = TokenizerReady | EngineReady | Refused | Encoded | TooLong | NotEncoded | Busy | Step

_encoder = msgspec.msgpack.Encoder()
_orders = msgspec.msgpack.Decoder(Order)
_answers = msgspec.msgpack.Decoder(Answer)


def pack(frame: Order | Answer) -> bytes:
    """The frame with its length in front. Raises `UnicodeEncodeError` where a text holds half a surrogate pair."""
    body = _encoder.encode(frame)
    return HEADER.pack(len(body)) + body


def body_length(header: bytes) -> int:
    """The number of bytes that follow a header of four. Raises `Nonsense`."""
    (length,) = HEADER.unpack(header)
    if length > FRAME_MAX_BYTES:
        raise Nonsense(f"a frame of {length} bytes")
    return length


def order(body: bytes) -> Order:
    """The order in a frame's body. Raises `Nonsense`."""
    try:
        return _orders.decode(body)
    except msgspec.MsgspecError as error:
        raise Nonsense(str(error)) from error


def answer(body: bytes) -> Answer:
    """The answer in a frame's body. Raises `Nonsense`."""
    try:
        return _answers.decode(body)
    except msgspec.MsgspecError as error:
        raise Nonsense(str(error)) from error


def read_order(stream: BinaryIO) -> Order | None:
    """The next order from a blocking stream; `None` at its end, which also a torn frame is. Raises `Nonsense`."""
    header = stream.read(HEADER.size)
    if len(header) < HEADER.size:
        return None
    length = body_length(header)
    body = stream.read(length)
    return order(body) if len(body) == length else None


def write_answer(stream: BinaryIO, frame: Answer) -> None:
    """Write one answer whole and at once."""
    stream.write(pack(frame))
    stream.flush()
