"""The official client against the real server: create, stream, retrieve, resume, cancel, delete, and its errors."""

import asyncio
from collections.abc import Awaitable, Callable

import openai
import pytest
from openai import AsyncOpenAI
from tests.witness import watched

from .harness import application, serving
from .scripted import MODEL, OWNER_TOKEN, TEXTS, ScriptedService

TEXT = "".join(TEXTS)


def with_client(test: Callable[[AsyncOpenAI, ScriptedService], Awaitable[None]]) -> None:
    """Run `test` with a client of a served script."""

    async def run() -> None:
        service = ScriptedService()
        async with (
            serving(application(service)) as base,
            watched(AsyncOpenAI(base_url=f"{base}/v1", api_key=OWNER_TOKEN, max_retries=0)) as client,
        ):
            await asyncio.wait_for(test(client, service), 20)

    asyncio.run(run())


def test_create_retrieve_and_delete() -> None:
    """The object that was created is the one that is read, until it is deleted."""

    async def test(client: AsyncOpenAI, service: ScriptedService) -> None:
        created = await client.responses.create(model=MODEL, input="Hello?", metadata={"a": "b"})
        assert (created.output_text, created.status, created.metadata) == (TEXT, "completed", {"a": "b"})
        assert await client.responses.retrieve(created.id) == created
        await client.responses.delete(created.id)
        with pytest.raises(openai.NotFoundError) as missing:
            await client.responses.retrieve(created.id)
        assert missing.value.code == "not_found"
        assert missing.value.request_id is not None

    with_client(test)


def test_streams_by_iteration_and_by_the_helper() -> None:
    """Both read the whole text; the helper's final response is complete."""

    async def test(client: AsyncOpenAI, service: ScriptedService) -> None:
        stream = await client.responses.create(model=MODEL, input="Hello?", stream=True)
        seen = [event async for event in stream]
        assert [event.sequence_number for event in seen] == list(range(len(seen)))
        async with client.responses.stream(model=MODEL, input="Hello?") as helper:
            final = await helper.get_final_response()
        assert final.output_text == TEXT

    with_client(test)


def test_a_background_stream_is_left_and_resumed_by_cursor() -> None:
    """After a break the client reads on from its number, live; nothing is missing and nothing comes twice."""

    async def test(client: AsyncOpenAI, service: ScriptedService) -> None:
        service.hold = True
        stream = await client.responses.create(model=MODEL, input="Hello?", background=True, stream=True)
        seen = [await anext(stream), await anext(stream), await anext(stream)]
        await stream.close()
        (ident,) = service.kept
        rest = await client.responses.retrieve(f"resp_{ident}", stream=True, starting_after=seen[-1].sequence_number)
        seen.append(await anext(rest))
        service.finish(ident)
        seen += [event async for event in rest]
        assert [event.sequence_number for event in seen] == list(range(len(service.kept[ident].events)))
        assert seen[-1].type == "response.completed"

    with_client(test)


def test_the_helper_replays_by_id() -> None:
    """It asks for everything and filters by itself."""

    async def test(client: AsyncOpenAI, service: ScriptedService) -> None:
        created = await client.responses.create(model=MODEL, input="Hello?", background=True)
        async with client.responses.stream(response_id=created.id, starting_after=4) as helper:
            final = await helper.get_final_response()
        assert final.output_text == TEXT

    with_client(test)


def test_background_is_polled_and_cancelled() -> None:
    """202 is as good as 200 for the client."""

    async def test(client: AsyncOpenAI, service: ScriptedService) -> None:
        service.hold = True
        created = await client.responses.create(model=MODEL, input="Hello?", background=True)
        assert created.status == "queued"
        cancelled = await client.responses.cancel(created.id)
        assert cancelled.status == "cancelled"
        assert (await client.responses.retrieve(created.id)).status == "cancelled"

    with_client(test)


def test_errors_are_the_client_s_own_classes() -> None:
    """Each with code and param."""

    async def test(client: AsyncOpenAI, service: ScriptedService) -> None:
        with pytest.raises(openai.BadRequestError) as bad:
            await client.responses.create(model=MODEL, input="x", temperature=3)
        assert (bad.value.param, bad.value.code) == ("temperature", "out_of_range")
        with pytest.raises(openai.NotFoundError) as unknown:
            await client.responses.create(model="other", input="x")
        assert (unknown.value.param, unknown.value.code) == ("model", "model_not_found")
        with pytest.raises(openai.AuthenticationError):
            await client.with_options(api_key="wrong").models.list()
        with pytest.raises(openai.BadRequestError) as chosen:
            await client.responses.create(
                model=MODEL, input="x", tools=[{"type": "web_search"}], tool_choice={"type": "web_search_preview"}
            )
        assert chosen.value.param == "tool_choice"

    with_client(test)


def test_models_are_listed_and_read() -> None:
    """The standard shape."""

    async def test(client: AsyncOpenAI, service: ScriptedService) -> None:
        assert [model.id async for model in client.models.list()] == [MODEL]
        assert (await client.models.retrieve(MODEL)).owned_by == "local"

    with_client(test)
