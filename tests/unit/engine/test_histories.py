"""The model of a response: it explains what may be seen, and nothing else."""

import math

import pytest
from tests.unit.engine.histories import DONE, NOT_FOUND, Call, response

from perdure.domain.recovery import OnRestart
from perdure.testing.linearizability import UNKNOWN, NotLinearizable, Operation, linearized

Told = tuple[Call, object]

RESUME, RETRY, FAIL = OnRestart.RESUME, OnRestart.RETRY, OnRestart.FAIL
CREATE, CANCEL, DELETE, RESTART = ((call, DONE) for call in (Call.CREATE, Call.CANCEL, Call.DELETE, Call.RESTART))
CUT_OFF, GONE = (Call.CANCEL, UNKNOWN), (Call.TASK, NOT_FOUND)


def task(status: str) -> Told:
    """A look at the task."""
    return Call.TASK, status


def seen(status: str) -> Told:
    """A look at the response."""
    return Call.RESPONSE, status


def cancelled_and(status: str) -> Told:
    """A cancel over HTTP, and its answer."""
    return Call.CANCEL_AND_SHOW, status


def explains(policy: OnRestart, *told: Told) -> bool:
    """Whether the model explains calls that were made one after the other. One that was never answered may have been
    made at any time after it was asked for."""
    history = [
        Operation(call, 2 * number, math.inf if answer is UNKNOWN else 2 * number + 1, answer)
        for number, (call, answer) in enumerate(told)
    ]
    try:
        linearized(history, response(policy))
    except NotLinearizable:
        return False
    return True


@pytest.mark.parametrize(
    "told",
    [
        [CREATE, task("queued"), task("loading"), task("running"), seen("in_progress"), task("completed")],
        [CREATE, seen("completed"), CANCEL, seen("completed"), DELETE, GONE, GONE],
        [CREATE, CANCEL, seen("cancelled"), CANCEL, task("cancelled")],
        [CREATE, task("running"), CANCEL, task("cancelling"), seen("in_progress"), CANCEL, seen("cancelled")],
        [CREATE, seen("queued"), cancelled_and("cancelled"), seen("cancelled")],
        [CREATE, task("running"), cancelled_and("in_progress"), seen("cancelled")],
        [CREATE, task("running"), cancelled_and("failed"), seen("failed")],
        [CREATE, task("running"), DELETE, (Call.CANCEL, NOT_FOUND), (Call.DELETE, NOT_FOUND), GONE],
        [GONE, CREATE, task("running"), task("failed")],
        [CREATE, DELETE, DELETE, (Call.DELETE, NOT_FOUND)],
        [CREATE, task("running"), CUT_OFF, task("running"), RESTART, task("running"), task("completed")],
        [CREATE, task("running"), CUT_OFF, RESTART, task("cancelled")],
    ],
)
def test_what_may_be_seen(told: list[Told]) -> None:
    """Lives of a response that goes on after a restart."""
    assert explains(RESUME, *told)


@pytest.mark.parametrize(
    "told",
    [
        [CREATE, CANCEL, seen("cancelled"), task("completed")],
        [CREATE, task("running"), CANCEL, task("cancelling"), task("completed")],
        [CREATE, task("running"), CANCEL, task("running")],
        [CREATE, task("completed"), CANCEL, task("cancelled")],
        [CREATE, task("cancelled")],
        [CREATE, task("running"), task("queued")],
        [CREATE, task("running"), task("loading")],
        [CREATE, seen("in_progress"), seen("queued")],
        [CREATE, seen("completed"), seen("in_progress")],
        [CREATE, seen("completed"), seen("failed")],
        [CREATE, DELETE, task("cancelled")],
        [CREATE, task("completed"), DELETE, GONE, task("completed")],
        [DELETE, CREATE],
        [CREATE, DELETE, CANCEL],
        [CREATE, GONE],
        [CREATE, CREATE],
        [task("queued"), CREATE],
        [CREATE, task("running"), cancelled_and("in_progress"), seen("completed")],
        [CREATE, task("running"), cancelled_and("cancelled"), seen("in_progress")],
        [CREATE, task("queued"), cancelled_and("queued")],
        [CREATE, task("running"), RESTART, task("queued")],
        [CREATE, task("running"), CANCEL, RESTART, task("cancelling")],
        [CREATE, task("running"), CANCEL, RESTART, task("running")],
        [CREATE, task("completed"), RESTART, task("running")],
        [CREATE, DELETE, RESTART, task("cancelled")],
    ],
)
def test_what_must_not_be_seen(told: list[Told]) -> None:
    """Two ends, a way back, an end that nobody asked for, a return after the delete."""
    assert not explains(RESUME, *told)


@pytest.mark.parametrize(
    ("policy", "before", "after"),
    [
        (FAIL, "queued", {"failed", "completed"}),
        (FAIL, "running", {"failed", "completed"}),
        (RETRY, "loading", {"queued", "loading", "running", "failed", "completed"}),
        (RETRY, "running", {"queued", "loading", "running", "failed", "completed"}),
        (RESUME, "running", {"running", "failed", "completed"}),
        (FAIL, "cancelling", {"cancelled"}),
    ],
)
def test_a_restart_settles_by_the_policy(policy: OnRestart, before: str, after: set[str]) -> None:
    """Or finds that the response had ended before."""
    asked = [task("running"), CANCEL] if before == "cancelling" else []
    states = ("queued", "loading", "running", "cancelling", "cancelled", "failed", "completed")
    told = [CREATE, *asked, task(before), RESTART]
    assert {state for state in states if explains(policy, *told, task(state))} == after
