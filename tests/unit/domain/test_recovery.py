"""What a restart does with what was left."""

import pytest

from perdure.domain.lifecycle import TERMINAL, Status
from perdure.domain.recovery import Action, OnRestart, Verdict, decide

Q, L, R, C = Status.QUEUED, Status.LOADING, Status.RUNNING, Status.CANCELLING


@pytest.mark.parametrize(
    ("status", "fail", "retry", "resume"),
    [
        (Q, Action.FAIL, Action.QUEUE, Action.QUEUE),
        (L, Action.FAIL, Action.QUEUE, Action.QUEUE),
        (R, Action.FAIL, Action.QUEUE, Action.CONTINUE),
        (C, Action.CANCEL, Action.CANCEL, Action.CANCEL),
    ],
)
def test_the_table(status: Status, fail: Action, retry: Action, resume: Action) -> None:
    """R1 to R4, cell by cell."""
    found = [decide(status, policy, shown=True).action for policy in OnRestart]
    assert found == [fail, retry, resume]


def test_an_unusable_snapshot_fails_what_was_shown() -> None:
    """What a reader has seen is not silently replaced."""
    verdict = decide(R, OnRestart.RESUME, shown=True, snapshot_fault="the file has changed")
    assert verdict == Verdict(Action.FAIL, "snapshot_unusable: the file has changed")


def test_an_unusable_snapshot_queues_what_was_not_shown() -> None:
    """Where nobody has seen anything, starting anew breaks no promise."""
    assert decide(R, OnRestart.RESUME, shown=False, snapshot_fault="gone").action is Action.QUEUE


@pytest.mark.parametrize("status", sorted(TERMINAL))
def test_a_finished_task_is_not_left_over(status: Status) -> None:
    """Recovery of a finished task would be a fault of the scan."""
    with pytest.raises(AssertionError):
        decide(status, OnRestart.RETRY)
