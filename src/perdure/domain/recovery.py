"""What a restart does with a task that the last process left unfinished: the table R1 to R4 as one pure function."""

from dataclasses import dataclass
from enum import StrEnum

from perdure.domain.lifecycle import Status


class OnRestart(StrEnum):
    """The policy that a request names for its own task."""

    FAIL = "fail"
    RETRY = "retry"
    RESUME = "resume"


class Action(StrEnum):
    """What recovery does with one task."""

    FAIL = "fail"
    QUEUE = "queue"
    CONTINUE = "continue"
    CANCEL = "cancel"


@dataclass(frozen=True)
class Verdict:
    """The action, and for a failure the detail that tells why the policy could not be kept."""

    action: Action
    detail: str | None = None


_CANCEL, _FAIL, _QUEUE = Verdict(Action.CANCEL), Verdict(Action.FAIL), Verdict(Action.QUEUE)


def decide(status: Status, policy: OnRestart, *, shown: bool = False, snapshot_fault: str | None = None) -> Verdict:
    """The verdict of R1 to R4.

    `shown` says whether the task has committed output; `snapshot_fault` says why its token ids cannot be continued
    (`None`: they can). Only a running task with `resume` looks at either.
    """
    if status not in (Status.QUEUED, Status.LOADING, Status.RUNNING, Status.CANCELLING):
        raise AssertionError(f"a task that is {status} is not left over")
    if status is Status.CANCELLING:
        return _CANCEL
    if policy is OnRestart.FAIL:
        return _FAIL
    if policy is OnRestart.RETRY or status is not Status.RUNNING:
        return _QUEUE
    if snapshot_fault is None:
        return Verdict(Action.CONTINUE)
    if not shown:
        return _QUEUE
    return Verdict(Action.FAIL, f"snapshot_unusable: {snapshot_fault}")
