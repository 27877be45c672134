"""What a response may be seen to do: a model for the linearizability checker, and clients who note what they see."""

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable
from enum import StrEnum

import msgspec
from tests.unit.engine.stage import Stage

from perdure.domain.errors import NotFound
from perdure.domain.recovery import OnRestart
from perdure.testing.linearizability import History, Model, linearized

ABSENT, DELETED = "absent", "deleted"
NOT_FOUND, DONE = "not found", "done"
ENDS = frozenset({"completed", "incomplete", "failed", "cancelled"})
STEPS: dict[str, tuple[str, ...]] = {
    "queued": ("loading",),
    "loading": ("running", "failed"),
    "running": ("completed", "incomplete", "failed"),
    "cancelling": ("cancelled",),
}
"""What a response does by itself. Not what the code says: what its callers were promised."""
CANCELS = {"queued": "cancelled", "loading": "cancelled", "running": "cancelling", "cancelling": "cancelling"}
RESTARTS = {
    OnRestart.FAIL: {"queued": "failed", "loading": "failed", "running": "failed", "cancelling": "cancelled"},
    OnRestart.RETRY: {"queued": "queued", "loading": "queued", "running": "queued", "cancelling": "cancelled"},
    OnRestart.RESUME: {"queued": "queued", "loading": "queued", "running": "running", "cancelling": "cancelled"},
}


class Call(StrEnum):
    """What is done to a response.

    `TASK` reads the true state, `RESPONSE` the one that the Responses API shows. `CANCEL` is answered when it is
    done; `CANCEL_AND_SHOW` is the call over HTTP, whose answer is the response as it then is, for histories without
    `TASK` (a task may be seen in `cancelling` before that answer).
    """

    CREATE = "create"
    CANCEL = "cancel"
    CANCEL_AND_SHOW = "cancel and show"
    DELETE = "delete"
    TASK = "task"
    RESPONSE = "response"
    RESTART = "restart"


def shown(state: str) -> str:
    """A state as the Responses API names it."""
    return state if state == "queued" or state in ENDS else "in_progress"


def response(policy: OnRestart) -> Model[str, Call]:
    """One response that is settled by `policy` at a restart."""

    def answers(state: str, call: Call) -> Iterable[tuple[str, str]]:
        if call is Call.CREATE:
            return [(DONE, "queued")] if state == ABSENT else []
        if call is Call.RESTART:
            return [(DONE, RESTARTS[policy].get(state, state))]
        if state in (ABSENT, DELETED):
            # Of two who delete at the same time each may be told that it is gone.
            both = [(DONE, state)] if call is Call.DELETE and state == DELETED else []
            return [(NOT_FOUND, state), *both]
        if call in (Call.TASK, Call.RESPONSE):
            return [(state if call is Call.TASK else shown(state), state)]
        if call is Call.DELETE:
            return [(DONE, DELETED)]
        after = CANCELS.get(state, state)
        if call is Call.CANCEL:
            return [(DONE, after)]
        waited = STEPS.get(after, ()) if after == "cancelling" else ()
        return [(shown(each), each) for each in (after, *waited)]

    return Model(ABSENT, answers, lambda state: STEPS.get(state, ()))


PAGE_TASKS = 200


class Clients:
    """Asks a stage, and notes what was asked and told. `finals` are finished responses as they were seen."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.history = History[Call]()
        self.policies: dict[str, OnRestart] = {}
        self.finals: defaultdict[str, set[bytes]] = defaultdict(set)

    async def create(self, prompt: str, policy: OnRestart = OnRestart.RESUME) -> str:
        """Have a response accepted."""
        noted = self.history.begin(Call.CREATE)
        ident = await self.stage.submit(prompt, on_restart=policy)
        self.policies[ident] = policy
        self.history.file(noted, ident)
        self.history.end(noted, DONE)
        return ident

    async def cancel(self, ident: str) -> str:
        """Ask for the end; how the response then stands."""
        if await self._note(Call.CANCEL, ident, lambda: self._done(self.stage.cancel(ident))) == NOT_FOUND:
            return NOT_FOUND
        return await self.response(ident)

    async def delete(self, ident: str) -> str:
        """Have it removed."""
        return await self._note(Call.DELETE, ident, lambda: self._done(self.stage.delete(ident)))

    async def response(self, ident: str) -> str:
        """How the response stands."""
        return await self._note(Call.RESPONSE, ident, lambda: self._status(ident))

    async def task(self, ident: str) -> str:
        """How the task stands."""

        async def status() -> str:
            return (await self.stage.engine.task(self.stage.principal, ident)).status

        return await self._note(Call.TASK, ident, status)

    async def tasks(self) -> None:
        """How all tasks stand: a page of them is one look at each."""
        known = list(self.policies)
        noted = [self.history.begin(Call.TASK, ident) for ident in known]
        page = await self.stage.engine.tasks(
            self.stage.principal, status=None, limit=PAGE_TASKS, after=None, ascending=False
        )
        found = {task.id.removeprefix("task_"): task.status for task in page.data}
        for ident, each in zip(known, noted, strict=True):
            self.history.end(each, found.get(ident, NOT_FOUND))

    async def restart(self) -> None:
        """Lose everything that is in memory, and start again."""
        noted = self.history.begin(Call.RESTART, *self.policies)
        await self.stage.restart()
        self.history.end(noted, DONE)

    def check(self) -> None:
        """All that was told can be explained, response by response, and a finished one was the same to everybody."""
        for ident, history in self.history.by_key.items():
            linearized(history, response(self.policies[str(ident)]))
        assert {ident: bodies for ident, bodies in self.finals.items() if len(bodies) > 1} == {}

    async def _note(self, call: Call, ident: str, work: Callable[[], Awaitable[str]]) -> str:
        noted = self.history.begin(call, ident)
        try:
            answer = await work()
        except NotFound:
            answer = NOT_FOUND
        except asyncio.CancelledError:
            self.history.end(noted)
            raise
        self.history.end(noted, answer)
        return answer

    async def _done(self, work: Awaitable[None]) -> str:
        await work
        return DONE

    async def _status(self, ident: str) -> str:
        body = await self.stage.engine.response(self.stage.principal, ident)
        status = str(msgspec.json.decode(body)["status"])
        if status in ENDS:
            self.finals[ident].add(body)
        return status
