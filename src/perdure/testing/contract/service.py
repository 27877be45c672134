# ruff: noqa: S101 -- assert is what a test is made of
"""Everything that is no task: version, condition, clients, models, and the end."""

import asyncio

import pytest

from perdure.domain.errors import Unavailable
from perdure.domain.model import ModelCard
from perdure.domain.principal import ALL_SCOPES, Principal, Scope
from perdure.testing.contract.suite import Place, Suite, outcomes, scenario
from perdure.testing.store_steps import (
    QUEUE_MAX,
    TOKEN,
    TOO_MANY,
    add_client,
    all_events,
    claim,
    end,
    finished,
    found,
    grow,
    moved,
    new_task,
    running,
    start,
    submitted,
)


class Service(Suite):
    """Everything that is no task: version, condition, clients, models, and the end."""

    # Version and condition.

    @pytest.mark.proves("V1", "V2")
    @scenario
    async def test_the_version_changes_with_each_commit(self, place: Place) -> None:
        """Whatever is written; and no version ever comes back, nor does one after the store was opened again."""
        store = await place.open()
        seen = [await store.version()]

        async def changed() -> None:
            seen.append(await store.version())
            assert len(set(seen)) == len(seen)

        client = await add_client(store)
        await changed()
        task = await submitted(store, "a", client)
        await changed()
        for step in (claim, start, grow, end):
            task = await moved(store, task, step)
            await changed()
        await store.purge([task.id], 100)
        await changed()
        await store.forget(100, 1)
        await changed()
        await store.boot("b", 1)
        await changed()
        store = await place.open()
        await changed()

    @pytest.mark.proves("V1", "V2")
    @scenario
    async def test_the_version_stays_where_nothing_is_committed(self, place: Place) -> None:
        """Reads of every kind leave it."""
        store = await place.open()
        task = await running(store, "a", await add_client(store))
        version = await store.version()
        await all_events(store, task)
        await store.tasks(task.client_id, status=None, limit=10, after=None, ascending=True)
        await store.unfinished(0, 10)
        await store.outlived(10**15, 10)
        await store.principal(TOKEN, 10)
        assert await store.expired("a") is None
        assert store.condition().trouble is None
        assert await store.version() == version

    @scenario
    async def test_the_condition_counts_what_was_made(self, place: Place) -> None:
        """Of a store without trouble: writes, the commits that they shared, and how long they waited."""
        store = await place.open()
        client = await add_client(store)
        before = store.condition()
        await asyncio.gather(*(store.submit(new_task(f"t{n}", client), QUEUE_MAX) for n in range(20)))
        after = store.condition()
        assert after.engine
        assert (after.trouble, after.reason, after.writes_refused) == (None, None, 0)
        assert after.writes - before.writes == 20
        assert 1 <= after.commits - before.commits <= 20
        assert after.write_waits[-1] == (float("inf"), after.writes)
        bounds, counts = zip(*after.write_waits, strict=True)
        assert list(bounds) == sorted(bounds)
        assert list(counts) == sorted(counts)
        assert after.write_wait_seconds_sum > before.write_wait_seconds_sum

    # Clients, models, the service itself.

    @scenario
    async def test_a_token_names_its_client(self, place: Place) -> None:
        """With the scopes it was given; an unknown token names nobody."""
        store = await place.open()
        scopes = frozenset({Scope.RESPONSES_READ, Scope.MODELS_READ})
        client = await store.add_client("reader", TOKEN, "prefix", scopes, 1)
        assert await store.principal(TOKEN, 10) == Principal(client, "reader", scopes)
        assert await store.principal(b"\x09" * 32, 10) is None

    @scenario
    async def test_a_new_token_ends_the_old_one(self, place: Place) -> None:
        """The client stays who he is."""
        store = await place.open()
        client = await add_client(store)
        await submitted(store, "a", client)
        again = await store.add_client("owner", b"\x02" * 32, "other", frozenset({Scope.SERVICE_READ}), 2)
        assert again == client
        assert await store.principal(TOKEN, 10) is None
        assert await store.principal(b"\x02" * 32, 10) == Principal(client, "owner", frozenset({Scope.SERVICE_READ}))

    @scenario
    async def test_two_clients_never_share_a_token(self, place: Place) -> None:
        """They could not be told apart."""
        store = await place.open()
        await add_client(store)
        with pytest.raises(AssertionError):
            await add_client(store, "other")

    @scenario
    async def test_the_service_keeps_its_name(self, place: Place) -> None:
        """Through boots and restarts."""
        store = await place.open()
        service_id = await store.boot("boot-1", 1)
        assert service_id
        assert await store.boot("boot-2", 2) == service_id
        store = await place.open()
        assert await store.boot("boot-3", 3) == service_id

    @scenario
    async def test_a_model_can_be_kept_again_and_changed(self, place: Place) -> None:
        """The same facts, new facts, another model."""
        store = await place.open()
        card = ModelCard("tiny", "0" * 64, 125_000, 4096, True, "{}", 1)
        await store.keep_model(card, "/models/tiny.gguf")
        await store.keep_model(card, "/models/tiny.gguf")
        await store.keep_model(ModelCard("tiny", "1" * 64, 1, 2, False, "{}", 2), "/elsewhere")
        await store.keep_model(ModelCard("other", "0" * 64, 125_000, 4096, True, "{}", 1), "/models/tiny.gguf")

    # Closing.

    @pytest.mark.proves("P3")
    @scenario
    async def test_everything_is_there_after_opening_again(self, place: Place) -> None:
        """A store that was closed and opened is the same store."""
        store = await place.open()
        client = await add_client(store)
        done, task = await finished(store, "done", client, purge_at=9), await running(store, "running", client)
        logs = await all_events(store, done), await all_events(store, task)
        history = await store.attempts(done.id)
        store = await place.open()
        assert (await found(store, "done"), await found(store, "running")) == (done, task)
        assert (await all_events(store, done), await all_events(store, task)) == logs
        assert await store.attempts(done.id) == history
        assert await store.principal(TOKEN, 10) == Principal(client, "owner", ALL_SCOPES)

    @scenario
    async def test_closing_finishes_what_was_handed_over(self, place: Place) -> None:
        """Nobody who was let in is turned away."""
        store = await place.open()
        client = await add_client(store)
        callers = [asyncio.create_task(store.submit(new_task(f"t{n:03}", client), QUEUE_MAX)) for n in range(100)]
        await asyncio.sleep(0)
        await store.close()
        assert await outcomes(callers) == [None] * 100
        store = await place.open()
        assert len(await store.unfinished(0, TOO_MANY)) == 100

    @scenario
    async def test_a_closed_store_says_so(self, place: Place) -> None:
        """Closing again does nothing; reading and writing are refused."""
        store = await place.open()
        client = await add_client(store)
        await asyncio.gather(store.close(), store.close())
        await store.close()
        for call in (store.submit(new_task("a", client), QUEUE_MAX), store.task("a"), store.boot("b", 1)):
            with pytest.raises(Unavailable):
                await call
