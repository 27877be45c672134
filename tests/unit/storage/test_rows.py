"""Rows of tasks and of their journal, below the store."""

import apsw
import pytest
from msgspec import UNSET
from msgspec.structs import replace

from perdure.domain.events import TEXT_DELTA, Event, plain
from perdure.domain.lifecycle import Status
from perdure.domain.principal import ALL_SCOPES
from perdure.ports.storage import Change
from perdure.storage.sqlite import events, service, tasks
from perdure.storage.sqlite.query import rows, value
from perdure.testing.store_steps import QUEUE_MAX, TOKEN, new_task

ROW_SQL = "SELECT length(data), length(tokens) FROM task_events WHERE task_id = 1 AND seq = ?"


@pytest.fixture
def journal(database: apsw.Connection) -> apsw.Connection:
    """A task with two events, number 1, whose next numbers are given out already."""
    service.keep_client(database, "owner", TOKEN, "prefix", ALL_SCOPES, 1)
    tasks.submit(database, new_task("a", 1), QUEUE_MAX)
    rows(database, "UPDATE tasks SET next_seq = 10")
    return database


def test_a_row_stays_small_whatever_the_event(journal: apsw.Connection) -> None:
    """Small JSON stands in the journal itself, large JSON and every snapshot apart."""
    small, large = plain(2, (1, 2), TEXT_DELTA, delta="x"), plain(3, (), TEXT_DELTA, delta="x" * 900)
    events.append(journal, 1, 2, [small, large])
    assert rows(journal, ROW_SQL, (0,)) == [(None, None)]
    assert rows(journal, ROW_SQL, (2,)) == [(len(small.data), 8)]
    assert rows(journal, ROW_SQL, (3,)) == [(None, None)]
    assert value(journal, "SELECT count(*) FROM event_bodies") == 3
    assert events.page(journal, 1, 1, 10).events == (small, large)


@pytest.mark.parametrize(("status", "at", "told"), [("failed", UNSET, "needs"), ("cancelling", 9, "has no")])
def test_an_end_and_its_time_belong_together(journal: apsw.Connection, status: str, at: int, told: str) -> None:
    """As above: the program's own check speaks first, and says what is wrong."""
    with pytest.raises(AssertionError, match=f"a step to {status} {told} finished_at"):
        tasks.apply(journal, Change(1, frozenset({Status.QUEUED}), 10, Status(status), 1, finished_at=at))


@pytest.mark.parametrize("numbers", [(3,), (1,), (2, 4), (2, 2)])
def test_events_are_numbered_on_without_a_gap(journal: apsw.Connection, numbers: tuple[int, ...]) -> None:
    """Anything else is a fault of the program, found before the database has to."""
    with pytest.raises(AssertionError, match="stands where"):
        events.append(journal, 1, 2, [Event(number, TEXT_DELTA, b"{}") for number in numbers])


@pytest.mark.parametrize("flag", ["background", "stored", "exact"])
def test_each_fact_of_a_new_task_has_its_column(journal: apsw.Connection, flag: str) -> None:
    """They are handed over by position: facts of one kind could change places unnoticed."""
    flags = {each: each == flag for each in ("background", "stored", "exact")}
    new = replace(new_task("b", 1, prompt=(5,) * 7), **flags)
    tasks.submit(journal, new, QUEUE_MAX)
    kept = tasks.by_ident(journal, "b")
    assert kept is not None
    assert {each: getattr(kept, each) for each in flags} == flags
    assert (kept.ident, kept.client_id, kept.kind, kept.model) == ("b", 1, "response", new.model)
    assert (kept.status, kept.on_restart) == (Status.QUEUED, new.on_restart)
    assert (kept.next_seq, kept.prompt_tokens, kept.tokens_max, kept.created_at) == (2, 7, 100, 1_000)
    assert (kept.request, tasks.prompt(journal, kept.id)) == (new.request, new.prompt)
    assert value(journal, "SELECT received FROM responses WHERE id = ?", (kept.id,)) == new.received.decode()
