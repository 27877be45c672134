"""`wire`: frames between parent and children."""

import io

import pytest

from perdure.domain.model import Message, Prompt, Sampling, Shape, Tool
from perdure.domain.parts import CallBegin, Text
from perdure.runtime.llamacpp import wire
from perdure.runtime.llamacpp.grammar import Calling

PROMPT = Prompt((Message(role="user", content="Ein Öl\0€😀"),), (Tool("f", None, {"type": "object"}),))
ORDERS: list[wire.Order] = [
    wire.OpenTokenizer(path=b"/m.gguf", library=None, calling=Calling(4.5, 1)),
    wire.OpenEngine(path=b"/m.gguf", library=b"/l.so", slots=4, window=64, threads=1, memory_max_bytes=1),
    wire.Encode(1, PROMPT, tokens_max=9),
    wire.Draw(1, (1, 2), done=(), sampling=Sampling(0.5, 1.0, 2**63 - 1), tokens_max=9, shape=Shape("g", "c")),
    wire.Stop(run=3),
]
ANSWER = wire.Step(
    drawn=(wire.Drawn(1, (Text("a"), CallBegin("f")), (5, 6), None), wire.Drawn(2, (), (), "stop")),
    failed=(wire.Failed(3, "why"),),
    freed=(4,),
    tokens_drawn=10,
    tokens_read=20,
    tokens_reused=30,
)


def test_orders_come_through_as_they_were_sent() -> None:
    """Several on one stream, one after the other, then its end."""
    stream = io.BytesIO(b"".join(wire.pack(order) for order in ORDERS))
    assert [wire.read_order(stream) for _ in ORDERS] == ORDERS
    assert wire.read_order(stream) is None


def test_answers_come_through_as_they_were_sent() -> None:
    """Every field of a step."""
    stream = io.BytesIO()
    wire.write_answer(stream, ANSWER)
    frame = stream.getvalue()
    assert wire.body_length(frame[:4]) == len(frame) - 4
    assert wire.answer(frame[4:]) == ANSWER


def test_a_torn_frame_is_an_end() -> None:
    """The other side died while it wrote."""
    whole = wire.pack(ORDERS[2])
    assert all(wire.read_order(io.BytesIO(whole[:cut])) is None for cut in range(len(whole)))


def test_what_is_no_frame_is_refused() -> None:
    """Text in place of a frame, another protocol's body, an answer in place of an order."""
    with pytest.raises(wire.Nonsense):
        wire.body_length(b"oops")
    with pytest.raises(wire.Nonsense):
        wire.order(b"\xc1")
    with pytest.raises(wire.Nonsense):
        wire.order(wire.pack(ANSWER)[4:])
