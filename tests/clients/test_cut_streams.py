"""A stream that is cut again and again, read as bytes."""

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.system.server import Server, data_of

CUTS = 10
PIECE_MAX_BYTES = 3_000
LENGTH = 3_000  # tokens: still being written when the server is killed
WORD = {"type": "string", "minLength": 5, "maxLength": 5}
WORDS = {"type": "array", "minItems": 200, "maxItems": 200, "items": WORD}
NOTE = {
    "type": "function",
    "name": "note",
    "description": "Notes words.",
    "parameters": {"type": "object", "properties": {"words": WORDS}, "required": ["words"]},
    "strict": False,
}
ANSWERS: dict[str, dict[str, Any]] = {
    "output_text": {"seed": 1},
    "function_call_arguments": {"seed": 2, "tools": [NOTE], "tool_choice": "required"},
}


def read(server: Server, response_id: str, after: int | None, budget: int | None) -> bytes:
    """The bytes of a stream, and no more than `budget` of them: the reader leaves wherever that is."""
    params = {"stream": "true"} | ({} if after is None else {"starting_after": str(after)})
    got = b""
    with server.http.stream("GET", f"/v1/responses/{response_id}", params=params) as answer:
        assert answer.status_code == 200
        for piece in pieces(answer):
            got += piece
            if budget is not None and len(got) >= budget:
                return got[:budget]
    return got


def pieces(answer: httpx.Response) -> Iterator[bytes]:
    """What comes, without the comments that keep a silent connection alive."""
    for piece in answer.iter_raw():
        yield piece.replace(b": keep-alive\n\n", b"")


@pytest.mark.proves("B-02", "B-07")
@pytest.mark.parametrize("kind", ANSWERS)
def test_a_stream_that_was_cut_ten_times_is_the_whole_stream(tiny_model: Path, tmp_path: Path, kind: str) -> None:
    """Ten cuts at any byte, each time back by the number of the last whole event, and a kill of the server after one:
    byte for byte what somebody reads who was never cut off."""
    rng = random.Random(kind)
    seen, last = b"", None
    with Server(tmp_path / "data", tiny_model, window_tokens=4096).start() as server:
        created = server.create(max_output_tokens=LENGTH, **ANSWERS[kind])["id"]
        server.holds(created)
        for cut in range(CUTS):
            got = read(server, created, last, rng.randrange(1, PIECE_MAX_BYTES))
            if cut == 0:
                server.kill()
                server.start()
            whole = got[: got.rfind(b"\n\n") + 2] if b"\n\n" in got else b""
            seen += whole
            if whole:
                last = data_of(whole.decode().rstrip().rpartition("\n\n")[2])["sequence_number"]
        seen += read(server, created, last, None)
        assert seen.endswith(b"data: [DONE]\n\n")
        assert seen == read(server, created, None, None)
        assert f"event: response.{kind}.done\n".encode() in seen
        assert b"event: perdure:task.retried\n" not in seen
