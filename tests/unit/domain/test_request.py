"""The request as it is kept, and as it is shown."""

import msgspec

from perdure.domain.request import CreateRequest
from perdure.domain.response import Extension, Response, TextSettings

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


def test_every_field_of_a_request_is_told_in_its_response() -> None:
    """Under its own name, but for those that another one tells, or that decide how the answer is told."""
    told = {*Response.__struct_fields__, *Extension.__struct_fields__, *TextSettings.__struct_fields__}
    untold = {"choice", "logprobs", "places", "shape", "stop"}
    assert set(CreateRequest.__struct_fields__) - told == untold
