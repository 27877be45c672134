"""Recover: at start-up, before anybody can ask, each task that the last process left is settled by its own policy."""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TypeVar

import msgspec

from perdure.domain.errors import ModelUnavailable, StorageDamaged, StorageFailed, StorageFull
from perdure.domain.lifecycle import UNFINISHED, Cause, Status, step
from perdure.domain.limits import RECOVERY_PAGE_TASKS, STORAGE_RETRY_SECONDS
from perdure.domain.recovery import Action, OnRestart, Verdict, decide
from perdure.domain.response import ResponseError
from perdure.engine.record import UNCLAIMED, Recorder
from perdure.engine.run import Fingerprint, Report, fits, got_further
from perdure.ports.runtime import Runtime
from perdure.ports.storage import Store, TaskRecord

T = TypeVar("T")

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

    async def __call__(self, at: int) -> int:
        """Note that this process serves, `at` microseconds since 1970, and settle every unfinished task; returns how
        many there were. A store that refuses is asked again, but not one that is damaged: raises `StorageDamaged`."""
        await self._stubbornly("the start", partial(self._store.boot, self._boot, at))
        count, last = 0, 0
        while page := await self._stubbornly("the scan", partial(self._store.unfinished, last, RECOVERY_PAGE_TASKS)):
            for record in page:
                await self._settle_one(record)
            count, last = count + len(page), page[-1].id
        return count

    async def _settle_one(self, record: TaskRecord) -> None:
        what = f"recovery of {record.ident}"
        try:
            await self._stubbornly(what, partial(self._settle_as_it_is, record.ident))
        except StorageDamaged:
            raise
        except Exception as error:  # noqa: BLE001 -- one row that cannot be understood must not keep all others waiting
            self._report(what, error)

    async def _stubbornly(self, what: str, step: Callable[[], Awaitable[T]]) -> T:
        while True:
            try:
                return await step()
            except StorageDamaged:  # it will not be whole the next time
                raise
            except (StorageFull, StorageFailed) as error:
                self._report(what, error)
                await asyncio.sleep(STORAGE_RETRY_SECONDS)

    async def _settle_as_it_is(self, ident: str) -> None:
        """Settle a task unless that has been done: a write that was refused may have been kept after all."""
        record = await self._store.task(ident)
        if record is None or record.status not in UNFINISHED or record.boot == self._boot:
            return
        if not record.hidden:
            await self._settle(record)
            return
        # Deleted, and the process was gone before it could be cancelled: nobody would ever read it.
        journal = await self._recorder.journal(record)
        if record.status is Status.RUNNING:
            record = await self._recorder.move(record, step(record.status, Cause.CANCEL), note="cancel requested")
        await self._recorder.close_cancelled(record, journal)

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
                    claimed_at=UNCLAIMED,
                    crashes=_crashes(record),
                    tokens_mark=_furthest(record),
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
                    tokens_mark=_furthest(record),
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
        same = then.runtime == card.fingerprint and fits(record, card)
        return None, record.exact and card.exact and same


def _crashes(record: TaskRecord) -> int:
    """Crashes without progress. A task that nobody worked on was not what the process died of: it was left in order,
    or still waited for a slot."""
    if record.boot is None or record.claimed_at == UNCLAIMED:
        return record.crashes
    return 0 if got_further(record) else record.crashes + 1


def _furthest(record: TaskRecord) -> int:
    """How many tokens the task has ever come to. A text that starts anew has to get further than this to have made
    progress: otherwise one that crashes each time at the same place would be started for ever."""
    return max(record.tokens_mark, record.tokens_kept)


def _restarted(record: TaskRecord, verdict: Verdict) -> ResponseError:
    if verdict.detail is None:
        return ResponseError(REASON, f"{MESSAGE} (on_restart: {record.on_restart}).")
    return ResponseError(REASON, f"{MESSAGE} and cannot be resumed: {verdict.detail}.", verdict.detail)
