"""The official `openai` client, unchanged, against the real server and the bundled model."""

from typing import Any

import openai
import pytest
from openai import Stream
from openai.types.responses import (
    Response,
    ResponseCompletedEvent,
    ResponseCreatedEvent,
    ResponseIncompleteEvent,
    ResponseStreamEvent,
)

from tests.system.server import Server

pytestmark = pytest.mark.real_model
MODEL = "smollm2-135m-instruct"
ASK: dict[str, Any] = {"model": MODEL, "input": "Say hello to the sea.", "temperature": 0, "max_output_tokens": 24}


@pytest.fixture
def client(real_server: Server) -> openai.OpenAI:
    """A client with the owner's token."""
    return real_server.client()


def ask(client: openai.OpenAI, **more: Any) -> Response:
    """A foreground response."""
    fields: dict[str, Any] = {**ASK, **more}
    return client.responses.create(**fields)


def background(client: openai.OpenAI, **more: Any) -> Response:
    """A background response."""
    return ask(client, background=True, **more)


def streamed(client: openai.OpenAI, **more: Any) -> Stream[ResponseStreamEvent]:
    """The stream of a create."""
    fields: dict[str, Any] = {**ASK, "stream": True, **more}
    return client.responses.create(**fields)


def test_create(client: openai.OpenAI) -> None:
    """A plain create answers with text and counts."""
    response = ask(client)
    assert response.status in ("completed", "incomplete")
    assert response.output_text.strip()
    assert response.usage is not None
    assert response.usage.input_tokens > 5
    assert 0 < response.usage.output_tokens <= 24


def test_instructions_and_message_items_reach_the_model(client: openai.OpenAI) -> None:
    """Other words before the model give other words after it; the counts show that they were read."""
    plain = ask(client)
    items = [{"role": "user", "content": "Say hello to the sea."}]
    told = ask(client, input=items, instructions="Answer in French.")
    assert plain.usage is not None
    assert told.usage is not None
    assert told.usage.input_tokens != plain.usage.input_tokens
    assert told.instructions == "Answer in French."


def test_stream(client: openai.OpenAI) -> None:
    """The stream's pieces are the final text, and the same seedless greedy question has the same answer."""
    text, numbers = "", list[int]()
    with streamed(client) as stream:
        for event in stream:
            numbers.append(event.sequence_number)
            if event.type == "response.output_text.delta":
                text += event.delta
            elif isinstance(event, ResponseCompletedEvent | ResponseIncompleteEvent):
                assert event.response.output_text == text
    assert numbers == list(range(len(numbers)))
    assert text == ask(client).output_text


def test_background_and_retrieve(client: openai.OpenAI) -> None:
    """A background create answers at once; reading it later gives the whole."""
    response = background(client)
    assert response.status in ("queued", "in_progress")
    assert response.background
    with client.responses.retrieve(response.id, stream=True) as stream:
        for _ in stream:
            pass
    assert client.responses.retrieve(response.id).output_text == ask(client).output_text


@pytest.mark.proves("B-02", "B-28")
def test_resume_by_cursor(client: openai.OpenAI) -> None:
    """A viewer who left comes back with his last number and misses nothing, sees nothing twice."""
    seen: list[ResponseStreamEvent] = []
    with streamed(client, background=True) as stream:
        for event in stream:
            seen.append(event)
            if len(seen) == 8:
                break
    assert isinstance(seen[0], ResponseCreatedEvent)
    response_id = seen[0].response.id
    with client.responses.retrieve(response_id, stream=True, starting_after=seen[-1].sequence_number) as stream:
        seen += list(stream)
    with client.responses.retrieve(response_id, stream=True) as stream:
        assert [event.to_json() for event in stream] == [event.to_json() for event in seen]


@pytest.mark.proves("B-01")
def test_the_stream_helper_by_id(client: openai.OpenAI) -> None:
    """The helper asks for the whole stream and filters by itself; it ends with the whole text."""
    response = background(client, max_output_tokens=None, input="Reply with one word: yes.")
    with client.responses.stream(response_id=response.id, starting_after=3) as stream:
        numbers = [event.sequence_number for event in stream]
        final = stream.get_final_response()
    assert numbers == list(range(4, 4 + len(numbers)))
    assert final.status == "completed"
    assert final.output_text == client.responses.retrieve(response.id).output_text


def test_the_stream_helper_on_create(client: openai.OpenAI) -> None:
    """The helper's accumulator is content with every event."""
    with client.responses.stream(model=MODEL, input="Reply with one word: no.", temperature=0) as stream:
        for _ in stream:
            pass
        assert stream.get_final_response().status == "completed"


@pytest.mark.proves("C-01", "C-04")
def test_cancel(client: openai.OpenAI) -> None:
    """A cancelled response is cancelled for good, with what it had; cancelling again changes nothing."""
    response = background(client, max_output_tokens=2000, input="Tell me a very long story.")
    with client.responses.retrieve(response.id, stream=True) as stream:
        next(event for event in stream if event.type == "response.output_text.delta")
    cancelled = client.responses.cancel(response.id)
    assert cancelled.status == "cancelled"
    assert cancelled.output_text
    assert client.responses.cancel(response.id) == cancelled
    assert client.responses.retrieve(response.id) == cancelled


def test_a_finished_response_stays_finished_when_cancelled(client: openai.OpenAI) -> None:
    """A late cancel returns the final object."""
    response = background(client, max_output_tokens=2)
    with client.responses.retrieve(response.id, stream=True) as stream:
        list(stream)
    final = client.responses.retrieve(response.id)
    assert client.responses.cancel(response.id) == final


@pytest.mark.proves("C-23")
@pytest.mark.parametrize("tokens", [1, 2000])
def test_delete(client: openai.OpenAI, tokens: int) -> None:
    """A deleted response is gone at once, finished or not."""
    response = background(client, max_output_tokens=tokens)
    client.responses.delete(response.id)
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(response.id)


def test_models(client: openai.OpenAI) -> None:
    """The model list has the standard shape."""
    assert [model.id for model in client.models.list()] == [MODEL]


@pytest.mark.proves("A-14")
def test_a_cut_text_says_so(client: openai.OpenAI) -> None:
    """The limit of tokens makes a response incomplete, with the reason and true counts."""
    response = ask(client, max_output_tokens=1)
    assert response.status == "incomplete"
    assert response.incomplete_details is not None
    assert response.incomplete_details.reason == "max_output_tokens"
    assert response.usage is not None
    assert response.usage.output_tokens == 1


def test_an_unknown_model_and_a_wrong_token(client: openai.OpenAI, real_server: Server) -> None:
    """Errors come as the client's own classes, with code and field."""
    with pytest.raises(openai.NotFoundError) as unknown:
        ask(client, model="gpt-4o")
    assert (unknown.value.code, unknown.value.param) == ("model_not_found", "model")
    stranger = openai.OpenAI(base_url=f"{real_server.url}/v1", api_key="wrong", max_retries=0)
    with stranger, pytest.raises(openai.AuthenticationError):
        ask(stranger)


def test_a_prompt_over_the_window_is_refused_and_not_kept(client: openai.OpenAI, real_server: Server) -> None:
    """Both numbers are told; nothing is stored."""
    before = real_server.get("/v1/tasks?limit=100")["data"]
    with pytest.raises(openai.BadRequestError) as refused:
        ask(client, input="word " * 5000)
    assert refused.value.code == "context_length_exceeded"
    assert "4096" in refused.value.message
    assert real_server.get("/v1/tasks?limit=100")["data"] == before


def test_what_is_not_said_of_sampling_is_as_the_publisher_recommends(
    client: openai.OpenAI, real_server: Server
) -> None:
    """In a response, in a completion, and beforehand in the model; what is said stays, also where it is 1."""
    found = real_server.get(f"/v1/models/{MODEL}")
    assert (found["temperature"], found["top_p"]) == (0.2, 0.9)
    short: dict[str, Any] = {"model": MODEL, "input": "Say hello.", "max_output_tokens": 2}
    silent, null = client.responses.create(**short), client.responses.create(**short, temperature=None, top_p=None)
    warm, wide = client.responses.create(**short, temperature=1), client.responses.create(**short, top_p=1)
    told = [(each.temperature, each.top_p) for each in (silent, null, warm, wide)]
    assert told == [(0.2, 0.9), (0.2, 0.9), (1, 0.9), (0.2, 1)]
    chat = client.chat.completions.create(
        model=MODEL, messages=[{"role": "user", "content": "Hello."}], max_completion_tokens=2
    )
    extra = chat.model_extra or {}
    assert (extra["temperature"], extra["top_p"]) == (0.2, 0.9)


def test_a_seed_makes_a_sampled_text_repeatable(client: openai.OpenAI) -> None:
    """The drawn seed is shown, and the same seed draws the same text."""
    first = ask(client, temperature=1.2)
    seed = first.model_extra["seed"] if first.model_extra else None
    assert isinstance(seed, int)
    again = ask(client, temperature=1.2, extra_body={"seed": seed})
    other = ask(client, temperature=1.2, extra_body={"seed": seed + 1})
    assert again.output_text == first.output_text != other.output_text
