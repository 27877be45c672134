"""Any mixture of calls leaves the store where a few dictionaries would be.

Calls are drawn by chance, and made to the store and to the model beside it. After each one everything that can be
read of the store is read and compared. 200 mixtures of 40 calls, the same ones each time; `make soak STORE=10` makes
ten times as many others, by SEED.
"""

import asyncio
import itertools
import shutil
import tempfile
from collections.abc import Coroutine, Sequence
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,  # pyright: ignore[reportUnknownVariableType] -- hypothesis leaves its settings untyped
)
from msgspec.structs import replace
from tests.integration.storage.model import NEXT, QUEUED, Expected, Model

from perdure.domain.errors import NotFound, QueueFull
from perdure.domain.lifecycle import TERMINAL, Status
from perdure.ports.storage import Attempt, Change, NewTask, StaleTask, TaskRecord
from perdure.storage.sqlite.store import SqliteStore
from perdure.testing.store_steps import TOO_MANY, add_client, end, found, new_task

EXAMPLES, STEPS = 200, 40
CLIENTS = (1, 2, 3)
T = TypeVar("T")


class StoreMachine(RuleBasedStateMachine):
    """Calls by chance, and a model beside them."""

    loop: ClassVar[asyncio.AbstractEventLoop]
    template: ClassVar[Path]

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(dir=self.template.parent))
        self.path = self.folder / "0.db"
        shutil.copyfile(self.template, self.path)
        self.model = Model()
        self.changed: set[str] | None = set()
        self.numbers, self.times = itertools.count(1), itertools.count(10_000)
        self.store = self._do(SqliteStore.open(self.path))

    def _do(self, call: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(call)

    def _new(self, client: int, background: bool) -> NewTask:
        number = next(self.numbers)
        return new_task(f"t{number:03}", CLIENTS[client], background=background, prompt=(number, 1))

    def _kept(self, new: NewTask) -> None:
        """A submit was accepted: its row is new, and from now on the model knows what it must become."""
        task = self._do(found(self.store, new.ident))
        assert task.id > max([each.task.id for each in self.model.tasks.values()] + [*self.model.purged.values(), 0])
        assert (task.status, task.next_seq, task.client_id, task.request) == (QUEUED, 2, new.client_id, new.request)
        born = Attempt(new.created_at, 0, QUEUED, "submitted")
        self.model.tasks[new.ident] = Expected(task, list(new.events), [born], new.prompt)
        self._note(new.ident)

    def _due(self, data: st.DataObject, ident: str) -> Change:
        task = self.model.tasks[ident].task
        change = data.draw(st.sampled_from(NEXT[task.status]))(task)
        return replace(change, finished_at=next(self.times)) if change.status in TERMINAL else change

    # Calls.

    @initialize(backgrounds=st.lists(st.booleans(), min_size=2, max_size=5))
    def begin(self, backgrounds: list[bool]) -> None:
        """With some tasks, so that every mixture has something to work on."""
        for number, background in enumerate(backgrounds):
            self.submit(number % 3, background)

    @rule(client=st.integers(0, 2), background=st.booleans())
    def submit(self, client: int, background: bool) -> None:
        """A new task, for which there is just room in the queue."""
        new = self._new(client, background)
        self._do(self.store.submit(new, len(self.model.pick(QUEUED)) + 1))
        self._kept(new)

    @precondition(lambda self: self.model.pick(*NEXT))
    @rule(data=st.data())
    def step(self, data: st.DataObject) -> None:
        """A step that is due: a claim, a start, an append, a cancel, what a restart makes."""
        ident = data.draw(st.sampled_from(self.model.pick(*NEXT)))
        self._make(ident, self._due(data, ident))

    @precondition(lambda self: self.model.pick(*NEXT))
    @rule(data=st.data(), client=st.integers(0, 2))
    def at_once(self, data: st.DataObject, client: int) -> None:
        """What several callers do in one commit: each gets his own answer, and who comes too late keeps nothing."""
        idents = data.draw(st.lists(st.sampled_from(self.model.pick(*NEXT)), min_size=1, max_size=4))
        changes = [(ident, self._due(data, ident)) for ident in idents]
        new = self._new(client, True)

        async def all_at_once() -> list[object]:
            calls = [self.store.apply(change) for _, change in changes]
            return await asyncio.gather(*calls, self.store.submit(new, TOO_MANY), return_exceptions=True)

        *answers, accepted = self._do(all_at_once())
        assert accepted is None
        self._kept(new)
        for (ident, change), answer in zip(changes, answers, strict=True):
            expected = self.model.tasks[ident]
            fits = expected.task.status in change.from_status and expected.task.next_seq == change.from_seq
            assert answer is None if fits else type(answer) is StaleTask
            if fits:
                self._note(ident, change)

    @precondition(lambda self: self.model.tasks)
    @rule(data=st.data())
    def stale_step(self, data: st.DataObject) -> None:
        """A step from where the task stood before, or after its end."""
        task = self.model.tasks[data.draw(st.sampled_from(list(self.model.tasks)))].task
        earlier = task if task.status in TERMINAL else replace(task, next_seq=task.next_seq - 1)
        with pytest.raises(StaleTask):
            self._do(self.store.apply(end(earlier)))

    @precondition(lambda self: self.model.pick(*NEXT))
    @rule(data=st.data(), ending=st.sampled_from(sorted(TERMINAL)), own_time=st.booleans())
    def finish(self, data: st.DataObject, ending: Status, own_time: bool) -> None:
        """All four ends, some with a time of their own at which they go."""
        ident = data.draw(st.sampled_from(self.model.pick(*NEXT)))
        at = next(self.times)
        change = replace(end(self.model.tasks[ident].task, ending, at=at), note="ended")
        if ending is Status.FAILED:
            change = replace(change, error='{"code":"x"}')
        self._make(ident, replace(change, purge_at=at + 5) if own_time else change)

    @precondition(lambda self: self.model.pick(*NEXT))
    @rule(data=st.data())
    def hide(self, data: st.DataObject) -> None:
        """As a delete does with what is unfinished."""
        ident = data.draw(st.sampled_from(self.model.pick(*NEXT)))
        task, at = self.model.tasks[ident].task, next(self.times)
        told: dict[str, Any] = {"hidden": True, "purge_at": at, "note": "deleted"}
        self._make(ident, Change(task.id, frozenset({task.status}), task.next_seq, task.status, at, **told))

    @precondition(lambda self: self.model.tasks)
    @rule(data=st.data(), more=st.integers(0, 2))
    def purge(self, data: st.DataObject, more: int) -> None:
        """As a delete does: of those that it is asked for, what has ended goes, and no name stays behind."""
        known = st.sampled_from([each.task.id for each in self.model.tasks.values()])
        self._purge([*data.draw(st.lists(known, min_size=1, max_size=3)), *range(TOO_MANY, TOO_MANY + more)], None)

    @precondition(lambda self: self.model.standing(False))
    @rule(age=st.integers(0, 10), limit=st.integers(1, 4), keep=st.integers(1, 20), data=st.data())
    def retain(self, age: int, limit: int, keep: int, data: st.DataObject) -> None:
        """The oldest that have stood long enough go and leave their names; something unfinished asked for stays."""
        now = next(self.times)
        due = sorted(self.model.standing(False), key=lambda task: task.finished_at or 0)
        due = [_listed(task) for task in due if (task.finished_at or 0) <= now - age]
        assert self._do(self.store.outlived(now - age, limit)) == due[:limit]
        unfinished = [self.model.tasks[ident].task.id for ident in self.model.pick(*NEXT)]
        also = [data.draw(st.sampled_from(unfinished))] if unfinished else []
        self._purge([*(task.id for task in due[:limit]), *also], now + keep)

    @precondition(lambda self: self.model.standing(True))
    @rule(limit=st.integers(1, 4))
    def sweep(self, limit: int) -> None:
        """Those whose own time has come go, the earliest first, and leave nothing."""
        now = next(self.times)
        own = sorted(task.purge_at or 0 for task in self.model.standing(True))
        assert self._do(self.store.next_purge_at()) == (own[0] if own else None)
        due = self._do(self.store.purgeable(now, limit))
        assert [task.purge_at for task in due] == [at for at in own if at <= now][:limit]
        assert all(task == _listed(self.model.tasks[task.ident].task) for task in due)
        self._purge([task.id for task in due], None)

    @precondition(lambda self: self.model.names)
    @rule(limit=st.integers(1, 3))
    def forget(self, limit: int) -> None:
        """Of the names whose time is over, so many."""
        now = next(self.times)
        due = {ident for ident, (_, until) in self.model.names.items() if until <= now}
        forgotten = self._do(self.store.forget(now, limit))
        gone = {ident for ident in self.model.names if self._do(self.store.expired(ident)) is None}
        assert gone <= due
        assert len(gone) == forgotten == min(limit, len(due))
        for ident in gone:
            del self.model.names[ident]

    @precondition(lambda self: self.model.tasks)
    @rule(data=st.data(), limit=st.integers(1, 3), ascending=st.booleans(), any_state=st.booleans())
    def page(self, data: st.DataObject, limit: int, ascending: bool, any_state: bool) -> None:
        """A page that begins after some task; nobody's page begins after another client's."""
        after = self.model.tasks[data.draw(st.sampled_from(list(self.model.tasks)))].task
        status = None if any_state else data.draw(st.sampled_from(sorted({*NEXT, *TERMINAL})))
        asked: dict[str, Any] = {"status": status, "limit": limit, "after": after.ident, "ascending": ascending}
        for client in CLIENTS:
            if client != after.client_id:
                with pytest.raises(NotFound):
                    self._do(self.store.tasks(client, **asked))
        rest = [task for task in self._visible(after.client_id) if status in (None, task.status)]
        rest = (
            [task for task in rest if task.id > after.id]
            if ascending
            else [task for task in reversed(rest) if task.id < after.id]
        )
        assert self._do(self.store.tasks(after.client_id, **asked)) == rest[:limit]

    @rule(kill=st.booleans())
    def restart(self, kill: bool) -> None:
        """As after a stop; or as after a kill: the next process has the file and its log as they are."""
        if kill:
            before, self.path = self.path, self.folder / f"{next(self.numbers)}.db"
            for end_of_name in ("", "-wal"):
                shutil.copyfile(f"{before}{end_of_name}", f"{self.path}{end_of_name}")
        self._do(self.store.close())
        self.store = self._do(SqliteStore.open(self.path))
        self.changed = {*self.model.tasks, *self.model.purged}

    # What must be so after each.

    @invariant()
    def the_store_is_the_model(self) -> None:
        """In everything that can be asked of it."""
        self._do(self._compare())

    async def _compare(self) -> None:
        for client in CLIENTS:
            listed = await self.store.tasks(client, status=None, limit=TOO_MANY, after=None, ascending=True)
            assert listed == self._visible(client)
        unfinished = [self.model.tasks[ident].task for ident in self.model.pick(*NEXT)]
        assert await self.store.unfinished(0, TOO_MANY) == unfinished
        for each in self.model.tasks.values():
            assert (await self.store.events(each.task.id, -1, TOO_MANY)).events == tuple(each.log)
        for ident in self.model.purged:
            assert await self.store.expired(ident) == self.model.names.get(ident, (None,))[0]
        if self.changed is not None:
            await self._compare_queue()
            for ident in self.changed:
                await self._compare_rest(ident)
            self.changed = None

    async def _compare_queue(self) -> None:
        """One more than there are is one too many; each knows its place."""
        waiting = self.model.queue()
        with pytest.raises(QueueFull):
            await self.store.submit(new_task("over", CLIENTS[0]), len(waiting))
        assert [await self.store.queue_position(task.id) for task in waiting] == list(range(len(waiting)))
        assert await self.store.next_runnable("nobody", (), ["tiny"]) == (waiting[0] if waiting else None)

    async def _compare_rest(self, ident: str) -> None:
        """What else can be asked of a task, after a step of its own or a restart."""
        if ident in self.model.purged:
            assert await self.store.task(ident) is None
            assert (await self.store.events(self.model.purged[ident], -1, 1)).events == ()
            return
        expected, task = self.model.tasks[ident], self.model.tasks[ident].task
        assert await self.store.task(ident) == task
        assert await self.store.ended(ident) == (task.status in TERMINAL)
        assert await self.store.expired(ident) is None
        assert await self.store.attempts(task.id) == expected.history
        assert await self.store.prompt(task.id) == expected.prompt
        assert await self.store.snapshot(task.id) == [each.snapshot for each in expected.log if each.snapshot][-1]

    def teardown(self) -> None:
        """Close what is open."""
        self._do(self.store.close())
        shutil.rmtree(self.folder)

    # How.

    def _make(self, ident: str, change: Change) -> None:
        self._do(self.store.apply(change))
        self._note(ident, change)

    def _note(self, ident: str, *changes: Change) -> None:
        self.changed = (self.changed or set()) | {ident}
        for change in changes:
            self.model.make(ident, change)

    def _purge(self, task_ids: Sequence[int], remembered_until: int | None) -> None:
        self._do(self.store.purge(task_ids, remembered_until))
        self.model.purge(task_ids, remembered_until)
        self.changed = (self.changed or set()) | {
            ident for ident, each in self.model.purged.items() if each in task_ids
        }

    def _visible(self, client: int) -> list[TaskRecord]:
        tasks = [each.task for each in self.model.tasks.values()]
        return [_listed(task) for task in tasks if task.client_id == client and not task.hidden]


def _listed(task: TaskRecord) -> TaskRecord:
    """As it stands in a list."""
    return replace(task, request=b"")


@pytest.mark.proves("P4", "P6", "P7")
def test_the_store_is_what_the_model_is(tmp_path: Path, pytestconfig: pytest.Config) -> None:
    """After every one of the calls."""
    length = int(pytestconfig.getoption("--store-soak") or 1)
    with asyncio.Runner() as runner:
        StoreMachine.loop, StoreMachine.template = runner.get_loop(), tmp_path / "template.db"
        runner.run(_make_template(StoreMachine.template))
        run_state_machine_as_test(
            StoreMachine,
            settings=settings(
                max_examples=EXAMPLES * length,
                stateful_step_count=STEPS,
                deadline=None,
                database=None,
                derandomize=length == 1,
                suppress_health_check=[HealthCheck.too_slow],
            ),
        )


async def _make_template(path: Path) -> None:
    """A new database; each mixture of calls begins with a copy, which costs less than to make one."""
    store = await SqliteStore.open(path)
    for name, client in zip("abc", CLIENTS, strict=True):
        assert await add_client(store, name, name.encode() * 32) == client
    await store.close()
