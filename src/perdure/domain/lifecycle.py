"""The life of a task, as one total table.

    queued -> loading -> running -> completed | incomplete | failed | cancelled

`cancelling` stands between a cancel request and `cancelled` of a task that a model is working on; a queued or
loading task is cancelled at once. A terminal state is never left: every cause leaves it as it is. A step that the
table does not hold raises `IllegalStep` and changes nothing.

The database moves a status by compare-and-set: a step names the state that it starts from.
What a restart does is not in this table, since it depends on the task's policy: see `recovery`.
"""

from enum import StrEnum


class Status(StrEnum):
    """Where a task stands. The values are the ones stored and shown by the native API."""

    QUEUED = "queued"
    LOADING = "loading"
    RUNNING = "running"
    CANCELLING = "cancelling"
    COMPLETED = "completed"
    INCOMPLETE = "incomplete"
    FAILED = "failed"
    CANCELLED = "cancelled"


class Cause(StrEnum):
    """What moves a task."""

    CLAIM = "claim"
    LOADED = "loaded"
    FINISH = "finish"
    CUT = "cut"
    ERROR = "error"
    CANCEL = "cancel"


TERMINAL = frozenset({Status.COMPLETED, Status.INCOMPLETE, Status.FAILED, Status.CANCELLED})
UNFINISHED = frozenset(Status) - TERMINAL
OWNED = frozenset({Status.LOADING, Status.RUNNING, Status.CANCELLING})
"""States in which a running process answers for the task."""

_S, _C = Status, Cause
TABLE: dict[Status, dict[Cause, Status]] = {
    _S.QUEUED: {_C.CLAIM: _S.LOADING, _C.ERROR: _S.FAILED, _C.CANCEL: _S.CANCELLED},
    _S.LOADING: {_C.LOADED: _S.RUNNING, _C.ERROR: _S.FAILED, _C.CANCEL: _S.CANCELLED},
    _S.RUNNING: {
        _C.FINISH: _S.COMPLETED,
        _C.CUT: _S.INCOMPLETE,
        _C.ERROR: _S.FAILED,
        _C.CANCEL: _S.CANCELLING,
    },
    _S.CANCELLING: {
        _C.FINISH: _S.CANCELLED,
        _C.CUT: _S.CANCELLED,
        _C.ERROR: _S.CANCELLED,
        _C.CANCEL: _S.CANCELLING,
    },
    **{end: dict.fromkeys(Cause, end) for end in TERMINAL},
}

_SHOWN = {_S.LOADING: "in_progress", _S.RUNNING: "in_progress", _S.CANCELLING: "in_progress"}


class IllegalStep(AssertionError):
    """A cause met a state that it cannot act on: a broken invariant of this program, not of its input."""


def step(status: Status, cause: Cause) -> Status:
    """The state that follows. Raises `IllegalStep` where the table has no entry."""
    try:
        return TABLE[status][cause]
    except KeyError:
        raise IllegalStep(f"{cause} cannot act on a task that is {status}") from None


def shown(status: Status) -> str:
    """The status as the Responses API names it."""
    return _SHOWN.get(status, str(status))
