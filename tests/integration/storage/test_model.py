"""Any mixture of calls leaves the store where a dictionary of lists would be."""

import asyncio
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from perdure.domain.events import Event
from perdure.domain.lifecycle import TERMINAL, Status
from perdure.ports.storage import Change, StaleTask
from perdure.storage.sqlite.store import SqliteStore
from perdure.testing.store_steps import QUEUE_MAX, add_client, claim, end, found, grow, new_task, start

NEXT = {Status.QUEUED: (claim, end), Status.LOADING: (start, end), Status.RUNNING: (grow, end)}


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

    def _pick(self, data: st.DataObject) -> str:
        return data.draw(st.sampled_from(sorted(self.model)))

    @rule(background=st.booleans())
    def submit(self, background: bool) -> None:
        """A new task."""
        self.names += 1
        new = new_task(f"t{self.names:03}", self.client, background=background)
        self.runner.run(self.store.submit(new, QUEUE_MAX))
        self.model[new.ident] = Expected(Status.QUEUED, list(new.events))

    @precondition(lambda self: self.model)
    @rule(data=st.data(), other=st.booleans(), stale=st.booleans())
    def step(self, data: st.DataObject, other: bool, stale: bool) -> None:
        """A step that is due, or the same from a state that is past."""
        ident = self._pick(data)
        expected = self.model[ident]
        if expected.status in TERMINAL:
            return
        change = NEXT[expected.status][other](self.runner.run(found(self.store, ident)))
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
