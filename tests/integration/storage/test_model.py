"""Any mixture of calls leaves the store where a dictionary of lists would be."""

import asyncio
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from perdure.domain.errors import QueueFull
from perdure.domain.events import Event
from perdure.domain.lifecycle import TERMINAL, Status
from perdure.ports.storage import Change, StaleTask, TaskRecord
from perdure.storage.sqlite.store import SqliteStore
from perdure.testing.store_steps import add_client, claim, end, found, grow, new_task, start


def requeue(task: TaskRecord) -> Change:
    """Back to the queue, as a restart may have it."""
    return Change(task.id, frozenset({task.status}), task.next_seq, Status.QUEUED, 6_000, boot=None)


NEXT = {
    Status.QUEUED: (claim, end),
    Status.LOADING: (start, requeue, end),
    Status.RUNNING: (grow, requeue, end),
}


@dataclass
class Expected:
    """What a task should be."""

    status: Status
    log: list[Event] = field(default_factory=list[Event])


class StoreMachine(RuleBasedStateMachine):
    """Calls by chance, and a model beside them."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.runner = asyncio.Runner()
        self.model: dict[str, Expected] = {}
        self.names = 0
        self._open()
        self.client = self.runner.run(add_client(self.store))

    def _open(self) -> None:
        self.store = self.runner.run(SqliteStore.open(Path(self.folder.name) / "perdure.db"))

    def _queued(self) -> int:
        return sum(each.status is Status.QUEUED for each in self.model.values())

    def _pick(self, data: st.DataObject) -> str:
        return data.draw(st.sampled_from(sorted(self.model)))

    @rule(background=st.booleans())
    def submit(self, background: bool) -> None:
        """A new task, for which there is just room in the queue."""
        self.names += 1
        new = new_task(f"t{self.names:03}", self.client, background=background)
        self.runner.run(self.store.submit(new, self._queued() + 1))
        self.model[new.ident] = Expected(Status.QUEUED, list(new.events))

    @precondition(lambda self: self.model)
    @rule(data=st.data(), stale=st.booleans())
    def step(self, data: st.DataObject, stale: bool) -> None:
        """A step that is due, or the same from a state that is past."""
        ident = self._pick(data)
        expected = self.model[ident]
        if expected.status in TERMINAL:
            return
        due = data.draw(st.sampled_from(NEXT[expected.status]))
        change = due(self.runner.run(found(self.store, ident)))
        if stale:
            with pytest.raises(StaleTask):
                self.runner.run(self.store.apply(_older(change)))
        else:
            self.runner.run(self.store.apply(change))
            expected.status = change.status
            expected.log += change.events

    @precondition(lambda self: self.model)
    @rule(data=st.data())
    def purge(self, data: st.DataObject) -> None:
        """Only what has ended goes."""
        ident = self._pick(data)
        self.runner.run(self.store.purge(self.runner.run(found(self.store, ident)).id))
        if self.model[ident].status in TERMINAL:
            del self.model[ident]

    @rule()
    def reopen(self) -> None:
        """As after a stop."""
        self.runner.run(self.store.close())
        self._open()

    @invariant()
    def the_queue_is_as_long_as_it_is(self) -> None:
        """One more than there are is one too many."""
        with pytest.raises(QueueFull):
            self.runner.run(self.store.submit(new_task("over", self.client), self._queued()))

    @invariant()
    def the_store_is_the_model(self) -> None:
        """Tasks, states and logs."""
        listed = self.runner.run(self.store.tasks(self.client, status=None, limit=1_000, after=None, ascending=True))
        assert {task.ident: task.status for task in listed} == {
            name: each.status for name, each in self.model.items()
        }
        for task in listed:
            assert self.runner.run(self.store.events(task.id, -1, 1_000)) == self.model[task.ident].log

    def teardown(self) -> None:
        """Close what is open."""
        self.runner.run(self.store.close())
        self.runner.close()
        self.folder.cleanup()


def _older(change: Change) -> Change:
    return Change(
        change.task_id,
        change.from_status,
        change.from_seq - 1,
        change.status,
        change.at,
        finished_at=change.finished_at,
    )


TestStoreMachine = pytest.mark.proves("P4", "P7")(StoreMachine.TestCase)
TestStoreMachine.settings = settings(
    max_examples=12,
    stateful_step_count=25,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)
