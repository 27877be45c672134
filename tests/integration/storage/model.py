"""What a store must keep, in a few dictionaries: for the test that compares it with the real one."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from msgspec import UNSET
from msgspec.structs import replace
from tests.integration.storage.workload import ask_for_end

from perdure.domain.events import Event
from perdure.domain.lifecycle import TERMINAL, Status
from perdure.ports.storage import Attempt, Change, TaskRecord
from perdure.testing.store_steps import claim, end, grow, start

QUEUED, LOADING, RUNNING, CANCELLING = Status.QUEUED, Status.LOADING, Status.RUNNING, Status.CANCELLING
CARRIED = tuple(set(Change.__struct_fields__) & set(TaskRecord.__struct_fields__) - {"status"})


def requeue(task: TaskRecord) -> Change:
    """Back to the queue, as a restart may have it."""
    told: dict[str, Any] = {"boot": None, "tokens_kept": 0, "fingerprint": None, "note": "queued again"}
    return Change(task.id, frozenset({task.status}), task.next_seq, QUEUED, 6_000, **told)


def resume(task: TaskRecord) -> Change:
    """The next process answers for it."""
    told: dict[str, Any] = {"boot": f"{task.boot}+", "claimed_at": 0, "crashes": task.crashes + 1, "note": "goes on"}
    return Change(task.id, frozenset({RUNNING}), task.next_seq, RUNNING, 6_000, **told)


def cancel(task: TaskRecord) -> Change:
    """The end that was asked for."""
    return end(task, Status.CANCELLED)


NEXT: dict[Status, tuple[Callable[[TaskRecord], Change], ...]] = {
    QUEUED: (claim, cancel),
    LOADING: (start, requeue, cancel),
    RUNNING: (grow, grow, requeue, resume, ask_for_end),
    CANCELLING: (cancel,),
}


@dataclass
class Expected:
    """What must be kept of a task."""

    task: TaskRecord
    log: list[Event]
    history: list[Attempt]
    prompt: tuple[int, ...]

    def make(self, change: Change) -> None:
        """A step was made."""
        given = {name: value for name in CARRIED if (value := getattr(change, name)) is not UNSET}
        seq = self.task.next_seq + len(change.events)
        self.task = replace(self.task, status=change.status, next_seq=seq, **given)
        self.log += change.events
        if change.note is not UNSET:
            self.history.append(Attempt(change.at, self.task.attempt, change.status, change.note))


@dataclass
class Model:
    """Everything that must be kept. `names` are those that a purge has left behind: client and time. `turns` are the
    clients whose tasks were claimed last, background or not."""

    tasks: dict[str, Expected] = field(default_factory=dict[str, Expected])
    names: dict[str, tuple[int, int]] = field(default_factory=dict[str, tuple[int, int]])
    purged: dict[str, int] = field(default_factory=dict[str, int])
    turns: dict[bool, int] = field(default_factory=lambda: {False: 0, True: 0})

    def make(self, ident: str, change: Change) -> None:
        """A step was made."""
        before = self.tasks[ident].task
        if (before.status, change.status) == (QUEUED, LOADING):
            self.turns[before.background] = before.client_id
        self.tasks[ident].make(change)

    def queue(self) -> list[TaskRecord]:
        """Who waits, in the order of the claims: foreground first, and each client in turn, after the last one."""
        order, turns = list[TaskRecord](), dict(self.turns)
        waiting = sorted((self.tasks[ident].task for ident in self.pick(QUEUED)), key=lambda task: task.id)
        while waiting:
            background = all(task.background for task in waiting)
            able = [task for task in waiting if task.background == background]
            clients = sorted({task.client_id for task in able})
            turns[background] = next((each for each in clients if each > turns[background]), clients[0])
            order.append(next(task for task in able if task.client_id == turns[background]))
            waiting.remove(order[-1])
        return order

    def standing(self, own_time: bool) -> list[TaskRecord]:
        """Finished tasks, with a time at which they go, or left to their age."""
        ended = [each.task for each in self.tasks.values() if each.task.status in TERMINAL]
        return [task for task in ended if (task.purge_at is not None) == own_time]

    def pick(self, *statuses: Status) -> list[str]:
        """Who stands in one of these states."""
        return [ident for ident, each in self.tasks.items() if each.task.status in statuses]

    def purge(self, task_ids: Iterable[int], remembered_until: int | None) -> None:
        """Of these, what has ended goes."""
        for task in [task for task in self.standing(True) + self.standing(False) if task.id in task_ids]:
            del self.tasks[task.ident]
            self.purged[task.ident] = task.id
            if remembered_until is not None:
                self.names[task.ident] = task.client_id, remembered_until
