"""The life of a task."""

import pytest

from perdure.domain.lifecycle import TABLE, TERMINAL, UNFINISHED, Cause, IllegalStep, Status, shown, step

WALK = {
    Status.QUEUED: {Cause.CLAIM: Status.LOADING, Cause.ERROR: Status.FAILED, Cause.CANCEL: Status.CANCELLED},
    Status.LOADING: {Cause.LOADED: Status.RUNNING, Cause.ERROR: Status.FAILED, Cause.CANCEL: Status.CANCELLED},
    Status.RUNNING: {
        Cause.FINISH: Status.COMPLETED,
        Cause.CUT: Status.INCOMPLETE,
        Cause.ERROR: Status.FAILED,
        Cause.CANCEL: Status.CANCELLING,
    },
    Status.CANCELLING: {
        Cause.FINISH: Status.CANCELLED,
        Cause.CUT: Status.CANCELLED,
        Cause.ERROR: Status.CANCELLED,
        Cause.CANCEL: Status.CANCELLING,
    },
}


@pytest.mark.parametrize("status", sorted(UNFINISHED))
@pytest.mark.parametrize("cause", sorted(Cause))
def test_each_step_leads_where_the_contract_says(status: Status, cause: Cause) -> None:
    """Every pair of an unfinished state and a cause has its one outcome; the rest raises."""
    expected = WALK[status].get(cause)
    if expected is None:
        with pytest.raises(IllegalStep):
            step(status, cause)
    else:
        assert step(status, cause) is expected


@pytest.mark.parametrize("status", sorted(TERMINAL))
@pytest.mark.parametrize("cause", sorted(Cause))
def test_no_cause_moves_a_finished_task(status: Status, cause: Cause) -> None:
    """A terminal state is never left."""
    assert step(status, cause) is status


def test_the_table_knows_every_state() -> None:
    """A new state cannot be forgotten in the table."""
    assert set(TABLE) == set(Status)


def test_states_of_work_are_shown_as_in_progress() -> None:
    """The Responses API has one word for loading, running and cancelling."""
    assert {shown(status) for status in (Status.LOADING, Status.RUNNING, Status.CANCELLING)} == {"in_progress"}
    assert all(shown(status) == status for status in {Status.QUEUED, *TERMINAL})
