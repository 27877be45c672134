# ruff: noqa: S101 -- assert is what a test is made of
"""In which order tasks are found."""

import msgspec
import pytest

from perdure.domain.errors import NotFound
from perdure.domain.lifecycle import Status
from perdure.ports.storage import Change
from perdure.testing.contract.suite import Place, Suite, idents, scenario
from perdure.testing.store_steps import (
    BOOT,
    MODEL,
    QUEUE_MAX,
    add_client,
    claim,
    end,
    finished,
    found,
    moved,
    new_task,
    running,
    submitted,
)


class Queues(Suite):
    """In which order tasks are found."""

    # The queue.

    @scenario
    async def test_a_slot_takes_its_own_tasks_first_then_the_queue(self, place: Place) -> None:
        """Own and not live, the oldest first; then foreground before background, each in the order of submit."""
        store = await place.open()
        client = await add_client(store)
        own = [await running(store, f"own{n}", client) for n in range(2)]
        loading = await moved(store, await submitted(store, "loading", client), claim)
        for name in ("back1", "fore1", "back2", "fore2"):
            await submitted(store, name, client, background=name.startswith("back"))
        live = [loading.id]
        order: list[str] = []
        while (task := await store.next_runnable(BOOT, live, [MODEL])) is not None:
            order.append(task.ident)
            live.append(task.id)
            if task.status is Status.QUEUED:
                await store.apply(claim(task))
        assert order == [own[0].ident, own[1].ident, "fore1", "fore2", "back1", "back2"]

    @scenario
    async def test_a_slot_leaves_the_tasks_of_another_process(self, place: Place) -> None:
        """Only what this boot answers for; a cancelling task is among it."""
        store = await place.open()
        client = await add_client(store)
        task = await running(store, "a", client)
        assert await store.next_runnable("boot-2", [], [MODEL]) is None
        await store.apply(Change(task.id, frozenset({Status.RUNNING}), task.next_seq, Status.CANCELLING, 1))
        mine = await store.next_runnable(BOOT, [], [MODEL])
        assert mine is not None
        assert mine == await found(store, "a")

    @scenario
    async def test_queued_tasks_of_other_models_wait(self, place: Place) -> None:
        """A start that serves another model neither takes them nor lets them block what stands behind them."""
        store = await place.open()
        client = await add_client(store)
        waiting = await submitted(store, "a", client)
        assert await store.next_runnable(BOOT, [], ["other"]) is None
        assert await store.next_runnable(BOOT, [], ["other", MODEL]) == waiting

    @scenario
    async def test_the_queue_position_counts_those_before(self, place: Place) -> None:
        """In the order in which slots take them; None once a task is not queued."""
        store = await place.open()
        client = await add_client(store)
        tasks = {
            name: await submitted(store, name, client, background=name[0] == "b") for name in ("b1", "f1", "b2", "f2")
        }
        positions = {name: await store.queue_position(task.id) for name, task in tasks.items()}
        assert positions == {"f1": 0, "f2": 1, "b1": 2, "b2": 3}
        await store.apply(claim(tasks["f1"]))
        assert await store.queue_position(tasks["f1"].id) is None
        assert await store.queue_position(tasks["b2"].id) == 2

    @pytest.mark.parametrize("turn", [0, 1, 2, 3])
    @scenario
    async def test_clients_take_turns(self, place: Place, turn: int) -> None:
        """In the order of their ids, beginning after the one whose task was claimed last, foreground and background
        each; a client's own tasks in the order of submit. Each place tells how many come before."""
        store = await place.open()
        clients = [await add_client(store, name, name.encode() * 32) for name in "abc"]
        for name in ("b0", "f0") if turn else ():  # whose turn was the last of each kind
            await store.apply(claim(await submitted(store, name, clients[turn - 1], background=name == "b0")))
        waiting = [("b1", 0), ("b2", 0), ("b3", 0), ("b4", 0), ("f1", 2), ("f2", 2), ("b5", 1), ("f3", 0), ("b6", 1)]
        for name, number in waiting:
            await submitted(store, name, clients[number], background=name[0] == "b")
        rounds = {
            0: ["f3", "f1", "f2", "b1", "b5", "b2", "b6", "b3", "b4"],
            1: ["f1", "f3", "f2", "b5", "b1", "b6", "b2", "b3", "b4"],
            2: ["f1", "f3", "f2", "b1", "b5", "b2", "b6", "b3", "b4"],
            3: ["f3", "f1", "f2", "b1", "b5", "b2", "b6", "b3", "b4"],
        }
        places = {name: await store.queue_position((await found(store, name)).id) for name, _ in waiting}
        assert sorted(places, key=lambda name: places[name] or 0) == rounds[turn]
        assert sorted(place or 0 for place in places.values()) == list(range(9))
        order = list[str]()
        while (task := await store.next_runnable("boot-2", [], [MODEL])) is not None:
            assert await store.queue_position(task.id) == 0
            order.append(task.ident)
            await store.apply(claim(task))
        assert order == rounds[turn]

    @scenario
    async def test_a_turn_outlives_a_restart_and_is_not_a_failure_at_the_claim(self, place: Place) -> None:
        """Only who goes on to the model had his turn; another process begins where the last one was."""
        store = await place.open()
        first, second = await add_client(store), await add_client(store, "other", b"\x02" * 32)
        for n in range(2):
            await submitted(store, f"a{n}", first)
            await submitted(store, f"b{n}", second)
        await store.apply(claim(await found(store, "a0")))
        await store.apply(end(await found(store, "b0"), Status.FAILED))
        store = await place.open()
        task = await store.next_runnable("boot-2", [], [MODEL])
        assert task is not None
        assert task.ident == "b1"

    @scenario
    async def test_who_passes_over_a_client_comes_back_to_it(self, place: Place) -> None:
        """A client whose tasks wait for another model loses no turn of those that can run."""
        store = await place.open()
        first, second = await add_client(store), await add_client(store, "other", b"\x02" * 32)
        await store.submit(msgspec.structs.replace(new_task("elsewhere", first), model="other"), QUEUE_MAX)
        await submitted(store, "mine", second)
        behind = await submitted(store, "behind", first)
        task = await store.next_runnable(BOOT, [], [MODEL])
        assert task == behind
        assert await store.next_runnable(BOOT, [behind.id], [MODEL]) == await found(store, "mine")
        assert await store.next_runnable(BOOT, [behind.id], [MODEL, "other"]) == await found(store, "elsewhere")

    @pytest.mark.proves("P8")
    @scenario
    async def test_the_scan_meets_every_unfinished_task_once(self, place: Place) -> None:
        """In pages by id, each of the four states, none that has ended."""
        store = await place.open()
        client = await add_client(store)
        queued = await submitted(store, "queued", client)
        await finished(store, "done", client)
        loading = await moved(store, await submitted(store, "loading", client), claim)
        task = await running(store, "running", client)
        other = await running(store, "cancelling", client)
        await store.apply(Change(other.id, frozenset({Status.RUNNING}), other.next_seq, Status.CANCELLING, 1))
        first = await store.unfinished(0, 3)
        second = await store.unfinished(first[-1].id, 3)
        assert [*first, *second] == [queued, loading, task, await found(store, "cancelling")]
        assert first[0].request == b'{"model":"tiny"}'

    # Lists.

    @scenario
    async def test_a_list_is_the_clients_own_and_visible(self, place: Place) -> None:
        """Newest first or oldest first; hidden tasks and those of others are left out, and so is the request."""
        store = await place.open()
        client, other = await add_client(store), await add_client(store, "other", b"\x02" * 32)
        for n in range(3):
            await submitted(store, f"t{n}", client)
            await submitted(store, f"other{n}", other)
        await store.apply(end(await found(store, "t1"), hidden=True))
        newest = await store.tasks(client, status=None, limit=10, after=None, ascending=False)
        oldest = await store.tasks(client, status=None, limit=10, after=None, ascending=True)
        assert (idents(newest), idents(oldest)) == (["t2", "t0"], ["t0", "t2"])
        assert {task.request for task in newest} == {b""}

    @pytest.mark.parametrize("ascending", [False, True])
    @pytest.mark.parametrize("status", [None, Status.FAILED, Status.QUEUED])
    @scenario
    async def test_pages_show_each_task_once(self, place: Place, ascending: bool, status: Status | None) -> None:
        """Whatever the order and the filter; a task hidden between two pages does not lose the place."""
        store = await place.open()
        client = await add_client(store)
        for n in range(12):
            task = await submitted(store, f"t{n:02}", client)
            if n % 2:
                await store.apply(end(task, Status.FAILED))
        expected = [f"t{n:02}" for n in range(12) if status is None or (status is Status.FAILED) == bool(n % 2)]
        seen: list[str] = []
        after = None
        while page := await store.tasks(client, status=status, limit=4, after=after, ascending=ascending):
            seen += idents(page)
            after = page[-1].ident
            if page[-1].finished_at is not None:
                last = await found(store, after)
                hide = Change(last.id, frozenset({last.status}), last.next_seq, last.status, 1, hidden=True)
                await store.apply(hide)
        assert seen == (expected if ascending else expected[::-1])

    @pytest.mark.parametrize("ascending", [False, True])
    @scenario
    async def test_stored_responses_are_the_clients_own_that_stay(self, place: Place, ascending: bool) -> None:
        """In pages, finished or not; those that are not to be stored are left out, and so are hidden ones."""
        store = await place.open()
        client, other = await add_client(store), await add_client(store, "other", b"\x02" * 32)
        for n in range(9):
            task = msgspec.structs.replace(new_task(f"t{n}", client), stored=n % 3 != 1)
            await store.submit(task, QUEUE_MAX)
            await submitted(store, f"other{n}", other)
        await store.apply(end(await found(store, "t2"), hidden=True))
        await store.apply(end(await found(store, "t5")))
        seen, after = list[str](), None
        while page := await store.responses(client, limit=2, after=after, ascending=ascending):
            seen += idents(page)
            after = page[-1].ident
            assert {task.request for task in page} == {b""}
        expected = ["t0", "t3", "t5", "t6", "t8"]
        assert seen == (expected if ascending else expected[::-1])
        for after in ("nobody", "other0"):
            with pytest.raises(NotFound) as caught:
                await store.responses(client, limit=2, after=after, ascending=ascending)
            assert caught.value.param == "after"

    @scenario
    async def test_a_page_after_an_unknown_task_is_not_found(self, place: Place) -> None:
        """Another client's task is as unknown as none."""
        store = await place.open()
        client, other = await add_client(store), await add_client(store, "other", b"\x02" * 32)
        await submitted(store, "theirs", other)
        for after in ("nobody", "theirs"):
            with pytest.raises(NotFound) as caught:
                await store.tasks(client, status=None, limit=10, after=after, ascending=False)
            assert caught.value.param == "after"
