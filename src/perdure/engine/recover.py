"""Recover: at start-up, before anybody can ask, each task that the last process left is settled by its own policy."""

import asyncio

import msgspec

from perdure.domain.errors import ModelUnavailable, StorageFailed, StorageFull
from perdure.domain.lifecycle import Status
from perdure.domain.limits import RECOVERY_PAGE_TASKS, STORAGE_RETRY_SECONDS
from perdure.domain.recovery import Action, OnRestart, Verdict, decide
from perdure.domain.response import ResponseError
from perdure.engine.record import Recorder
from perdure.engine.run import Fingerprint, Report
from perdure.ports.runtime import Runtime
from perdure.ports.storage import Store, TaskRecord

REASON = "server_restarted"
MESSAGE = "The service was restarted while this response was unfinished"


class Recover:
    """Settles what was left over. `boot` is the process that answers for what goes on."""

    def __init__(self, store: Store, runtime: Runtime, recorder: Recorder, report: Report, *, boot: str) -> None:
        self._store = store
        self._runtime = runtime
        self._recorder = recorder
        self._report = report
        self._boot = boot

    async def __call__(self) -> int:
        """Settle every unfinished task; returns how many there were. A store that refuses is asked again."""
        count, last = 0, 0
        while page := await self._store.unfinished(last, RECOVERY_PAGE_TASKS):
            for record in page:
                await self._settle_stubbornly(record)
            count, last = count + len(page), page[-1].id
        return count

    async def _settle_stubbornly(self, record: TaskRecord) -> None:
        while True:
            try:
                return await self._settle(record)
            except (StorageFull, StorageFailed) as error:
                self._report(f"recovery of {record.ident}", error)
                await asyncio.sleep(STORAGE_RETRY_SECONDS)

    async def _settle(self, record: TaskRecord) -> None:
        journal = await self._recorder.journal(record)
        fault, exact = await self._snapshot(record)
        verdict = decide(record.status, record.on_restart, shown=journal.announced, snapshot_fault=fault)
        match verdict.action:
            case Action.CANCEL:
                await self._recorder.close_cancelled(record, journal)
            case Action.FAIL:
                await self._recorder.fail(record, journal, _restarted(record, verdict))
            case Action.CONTINUE:
                note = f"server restarted; going on after {record.tokens_kept} tokens"
                await self._recorder.move(
                    record,
                    Status.RUNNING,
                    boot=self._boot,
                    crashes=_crashes(record),
                    tokens_mark=record.tokens_kept,
                    exact=exact,
                    note=note,
                )
            case Action.QUEUE if record.status is not Status.QUEUED:
                events = journal.retry(REASON) if record.status is Status.RUNNING else []
                await self._recorder.move(
                    record,
                    Status.QUEUED,
                    events,
                    boot=None,
                    attempt=journal.attempt,
                    crashes=_crashes(record),
                    tokens_kept=0,
                    tokens_mark=0,
                    fingerprint=None,
                    note="server restarted; queued again",
                )
            case _:
                pass  # queued it was, and queued it stays

    async def _snapshot(self, record: TaskRecord) -> tuple[str | None, bool]:
        """Why the kept tokens cannot be continued (None: they can), and whether the text will be as undisturbed."""
        if record.status is not Status.RUNNING or record.on_restart is not OnRestart.RESUME:
            return None, record.exact
        try:
            card = await self._runtime.card(record.model)
        except ModelUnavailable as error:
            return error.message, False
        if card is None:
            return f"the model {record.model} is not here any more", False
        then = msgspec.json.decode(record.fingerprint or "null", type=Fingerprint | None)
        if then is None or then.model_digest != card.digest:
            return f"the file of the model {record.model} has changed", False
        return None, record.exact and card.exact and then.runtime == card.fingerprint


def _crashes(record: TaskRecord) -> int:
    """Crashes without progress. A task that nobody answered for was left in order, not by a crash."""
    if record.boot is None:
        return record.crashes
    return 0 if record.tokens_kept > record.tokens_mark else record.crashes + 1


def _restarted(record: TaskRecord, verdict: Verdict) -> ResponseError:
    if verdict.detail is None:
        return ResponseError(REASON, f"{MESSAGE} (on_restart: {record.on_restart}).")
    return ResponseError(REASON, f"{MESSAGE} and cannot be resumed: {verdict.detail}.", verdict.detail)
