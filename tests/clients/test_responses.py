"""`client.responses` and `client.models` beyond plain texts, which `tests/system/test_openai_client.py` has."""

import json
from typing import Any

import openai
import pytest
from openai.lib import pydantic_responses_function_tool
from openai.types.responses import Response, ResponseFunctionToolCall, ResponseInputItemParam

from tests.system.server import Server, until

from .wishes import REAL, SHORT, TINY, WEATHER, Fruit, Weather

QUESTION: ResponseInputItemParam = {"role": "user", "content": "What is the weather in Lima?"}


@pytest.mark.real_model
def test_parse(real: openai.OpenAI) -> None:
    """An answer of a given shape arrives as an object of it."""
    parsed = real.responses.parse(model=REAL, input="Describe a lemon.", text_format=Fruit, temperature=0)
    assert parsed.status == "completed"
    assert isinstance(parsed.output_parsed, Fruit)
    assert json.loads(parsed.output_text) == parsed.output_parsed.model_dump()


def test_the_stream_helper_with_a_shape(tiny: openai.OpenAI) -> None:
    """The helper reads the shape from the stream, also where the text is noise."""
    with tiny.responses.stream(model=TINY, input="A fig.", text_format=Fruit) as stream:
        kinds = [event.type for event in stream]
        final = stream.get_final_response()
    assert "response.output_text.delta" in kinds
    assert isinstance(final.output_parsed, Fruit)


@pytest.mark.real_model
def test_a_tool_is_called_and_its_result_fed_back(real: openai.OpenAI) -> None:
    """A call has arguments of its schema; with its result, the model goes on to a text."""
    called = real.responses.create(
        model=REAL,
        input=[QUESTION],
        tools=[WEATHER],
        tool_choice={"type": "function", "name": "get_weather"},
        parallel_tool_calls=False,
    )
    call = called.output[0]
    assert isinstance(call, ResponseFunctionToolCall)
    assert json.loads(call.arguments)["city"] in ("Paris", "Lima")
    result: ResponseInputItemParam = {"type": "function_call_output", "call_id": call.call_id, "output": "22 degrees"}
    chained = real.responses.create(
        model=REAL, previous_response_id=called.id, input=[result], tools=[WEATHER], **answer_in_words()
    )
    own: ResponseInputItemParam = {
        "type": "function_call",
        "call_id": call.call_id,
        "name": call.name,
        "arguments": call.arguments,
    }
    replayed = real.responses.create(model=REAL, input=[QUESTION, own, result], tools=[WEATHER], **answer_in_words())
    assert chained.output_text.strip()
    assert chained.previous_response_id == called.id
    assert replayed.output_text == chained.output_text
    assert replayed.usage is not None
    assert chained.usage is not None
    assert replayed.usage.input_tokens == chained.usage.input_tokens


def answer_in_words() -> dict[str, Any]:
    """No further call, and always the likeliest token."""
    return {"tool_choice": "none", "temperature": 0, "max_output_tokens": SHORT}


def test_the_stream_helper_with_a_tool(tiny: openai.OpenAI) -> None:
    """The four events of a call come, and the helper parses the arguments with the model that they were made of."""
    with tiny.responses.stream(
        model=TINY,
        input=[QUESTION],
        tools=[pydantic_responses_function_tool(Weather)],
        tool_choice="required",
        parallel_tool_calls=False,
    ) as stream:
        kinds = [event.type for event in stream]
        call = stream.get_final_response().output[0]
    assert isinstance(call, ResponseFunctionToolCall)
    assert isinstance(getattr(call, "parsed_arguments", None), Weather)
    places = [
        kinds.index(f"response.{kind}")
        for kind in (
            "output_item.added",
            "function_call_arguments.delta",
            "function_call_arguments.done",
            "output_item.done",
        )
    ]
    assert places == sorted(places)


def test_background_is_polled_to_its_end(tiny: openai.OpenAI) -> None:
    """As the guide of the client has it: create, then retrieve until it has ended."""
    created = tiny.responses.create(model=TINY, input="Go on.", background=True, max_output_tokens=SHORT)
    assert created.status == "queued"

    def ended() -> Response | None:
        polled = tiny.responses.retrieve(created.id)
        return None if polled.status in ("queued", "in_progress") else polled

    final = until(ended, "the response to end")
    assert final.status == "incomplete"
    assert final.output_text


def test_input_items(tiny: openai.OpenAI) -> None:
    """They are listed newest first, page by page, as the client's own pager asks for them."""
    texts = [f"line {n}" for n in range(5)]
    created = tiny.responses.create(
        model=TINY, input=[{"role": "user", "content": text} for text in texts], max_output_tokens=1
    )

    def listed(**asked: Any) -> list[str]:
        pages = tiny.responses.input_items.list(created.id, limit=2, **asked)
        return [item.content[0].text for item in pages if item.type == "message"]  # pyright: ignore[reportAttributeAccessIssue] -- a list of input texts

    assert listed() == texts[::-1]
    assert listed(order="asc") == texts
    first = tiny.responses.input_items.list(created.id, limit=1, order="asc")
    assert first.data[0].id is not None
    assert listed(order="asc", after=first.data[0].id) == texts[1:]


def test_input_tokens(tiny: openai.OpenAI) -> None:
    """The count is the one that a create then has."""
    counted = tiny.responses.input_tokens.count(model=TINY, input="How long is this?")
    created = tiny.responses.create(model=TINY, input="How long is this?", max_output_tokens=1)
    assert created.usage is not None
    assert counted.input_tokens == created.usage.input_tokens > 0


def test_delete_and_cancel(tiny: openai.OpenAI) -> None:
    """What was cancelled stays to be read until it is deleted."""
    created = tiny.responses.create(model=TINY, input="Go on.", background=True)
    assert tiny.responses.cancel(created.id).status == "cancelled"
    assert tiny.responses.retrieve(created.id).status == "cancelled"
    tiny.responses.delete(created.id)
    with pytest.raises(openai.NotFoundError):
        tiny.responses.retrieve(created.id)


def test_models(tiny: openai.OpenAI) -> None:
    """A model that is listed can be read by its name, and no client removes it; another one is an error."""
    listed = list(tiny.models.list())
    assert TINY in [model.id for model in listed]
    assert tiny.models.retrieve(TINY) == next(model for model in listed if model.id == TINY)
    with pytest.raises(openai.NotFoundError) as unknown:
        tiny.models.retrieve("gpt-4o")
    assert unknown.value.code == "model_not_found"
    with pytest.raises(openai.APIStatusError) as refused:
        tiny.models.delete(TINY)
    assert refused.value.status_code == 405


def test_errors_are_of_the_clients_own_classes(tiny: openai.OpenAI, tiny_server: Server) -> None:
    """Each with its code, the field at fault, and the name of the request."""
    with pytest.raises(openai.BadRequestError) as bad:
        tiny.responses.create(model=TINY, input="x", temperature=3)
    assert (bad.value.param, bad.value.type) == ("temperature", "invalid_request_error")
    with pytest.raises(openai.NotFoundError) as unknown:
        tiny.responses.create(model="gpt-4o", input="x")
    assert unknown.value.code == "model_not_found"
    stranger = openai.OpenAI(base_url=f"{tiny_server.url}/v1", api_key="wrong", max_retries=0)
    with stranger, pytest.raises(openai.AuthenticationError) as closed:
        stranger.models.list()
    for error in (bad.value, unknown.value, closed.value):
        assert error.request_id is not None
        assert error.request_id.startswith("req_")
        assert error.message


def test_what_a_later_version_serves_says_so(tiny: openai.OpenAI) -> None:
    """Compaction is refused with a code of its own, and the client is told not to try again."""
    patient = tiny.with_options(max_retries=2)
    with pytest.raises(openai.InternalServerError) as later:
        patient.responses.compact(model=TINY, input="x")
    assert (later.value.status_code, later.value.code) == (501, "not_implemented")
    assert later.value.response.headers["x-should-retry"] == "false"
    assert later.value.response.request.headers["x-stainless-retry-count"] == "0"
