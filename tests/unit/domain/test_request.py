"""The request as it is kept, and as it is shown."""

import msgspec
import pytest

from perdure.domain.request import CreateRequest
from perdure.domain.response import Extension, Response, TextSettings
from perdure.testing.scripted_runtime import card

OLDEST = (
    b'{"model":"m","messages":[{"role":"user","content":"Hello."}],"instructions":null,"background":true,'
    b'"store":true,"temperature":1.0,"top_p":1.0,"max_output_tokens":null,"metadata":{},"seed":1,'
    b'"on_restart":"resume","ignored":[]}'
)
"""As 0.1.0 writes it. Never changed: what was accepted then is read by every later version."""


def test_a_request_that_the_first_version_has_kept_can_be_read() -> None:
    """A field that came later has its default."""
    kept = msgspec.json.decode(OLDEST, type=CreateRequest)
    assert (kept.model, kept.seed, kept.tools) == ("m", 1, ())


def test_a_request_is_drawn_by_only_once_it_is_settled() -> None:
    """Nothing would say how: so a mistake of ours is an error, not a text that nobody asked for."""
    kept = msgspec.json.decode(OLDEST, type=CreateRequest)
    assert kept.settled(card("m")) == kept
    for field in ("temperature", "top_p"):
        with pytest.raises(AssertionError, match="settled"):
            assert msgspec.structs.replace(kept, **{field: None}).sampling


def test_every_field_of_a_request_is_told_in_its_response() -> None:
    """Under its own name, but for those that another one tells, or that decide how the answer is told."""
    told = {*Response.__struct_fields__, *Extension.__struct_fields__, *TextSettings.__struct_fields__}
    untold = {"choice", "logprobs", "places", "shape", "stop"}
    assert set(CreateRequest.__struct_fields__) - told == untold
