"""Run: work on one claimed task until it has ended.

The row says what is to be done; each pass reads it, makes one step, and reads it again. So a cancel, a crash of the
model's process or a write that turned out to have been kept after all need no case of their own: the next pass sees
what is true.
"""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from typing import Any

import msgspec

from perdure.domain.errors import InvalidRequest, ModelUnavailable, StorageFailed, StorageFull
from perdure.domain.journal import Journal
from perdure.domain.lifecycle import OWNED, Cause, Status, step
from perdure.domain.limits import DISPATCH_POLL_SECONDS, STORAGE_RETRY_SECONDS
from perdure.domain.model import ModelCard
from perdure.domain.parts import Part, Reasoning
from perdure.domain.response import ResponseError
from perdure.engine.quarantine import Quarantine
from perdure.engine.record import UNCLAIMED, Recorder
from perdure.engine.wakeups import unless, wait_for
from perdure.ports.runtime import End, Job, JobFailed, Piece, Runtime, RuntimeCrashed
from perdure.ports.storage import StaleTask, Store, TaskRecord

Report = Callable[[str, BaseException], None]
"""Where faults are told: what was being done, and what came of it."""


class Run:
    """A task under way in this process. It does not give way before more than `tokens_due` tokens are kept."""

    def __init__(self, task_id: int, ident: str, tokens_due: int = -1) -> None:
        self.task_id = task_id
        self.ident = ident
        self.tokens_due = tokens_due
        self.giving_way = False
        self.gave_way_at: int | None = None
        """How many tokens were kept when it gave way; None while it has not."""
        self.hint = asyncio.Event()
        self.leaving = asyncio.Event()
        self.fault: str | None = None
        """What the last crash in this process was, for the `detail` of an end."""

    def poke(self) -> None:
        """The row has changed."""
        self.hint.set()

    def give_way(self) -> None:
        """Somebody waits for an answer, and every slot is taken."""
        self.giving_way = True
        self.hint.set()

    def leave(self) -> None:
        """The service ends; the task stays to its restart policy."""
        self.leaving.set()
        self.hint.set()


class Fingerprint(msgspec.Struct, frozen=True):
    """What a text was drawn with. The same again draws the same text."""

    model_digest: str
    runtime: str


def _gathered(pieces: Sequence[Piece]) -> Iterator[tuple[list[Part], list[int]]]:
    """Parts and tokens that are written as one. The journal keeps the tokens with the first of the parts, so pieces
    that begin with reasoning and others stay apart: or the count of reasoning tokens would depend on how many pieces
    came while the last write was under way."""
    for _, group in groupby(pieces, lambda piece: isinstance(piece.parts[0], Reasoning) if piece.parts else None):
        alike = list(group)
        yield [part for piece in alike for part in piece.parts], [token for piece in alike for token in piece.tokens]


def fits(record: TaskRecord, card: ModelCard) -> bool:
    """Whether the window still has the room that was promised at submit. If not, the text is cut before its time."""
    return record.prompt_tokens + record.tokens_max <= card.context_length


def got_further(record: TaskRecord) -> bool:
    """Whether tokens were kept since the last start, beyond what any start began with."""
    return record.tokens_kept > record.tokens_mark


def may_give_way(run: Run, record: TaskRecord) -> bool:
    """Whether a text can be put off for somebody who waits: it is drawn again as if nothing had been, nobody waits
    for it, and it has got further since it was put off the last time."""
    drawn = record.status is Status.RUNNING and not is_suspect(record)
    return drawn and record.background and record.exact and record.tokens_kept > run.tokens_due


def is_suspect(record: TaskRecord) -> bool:
    """Whether the last process may have died of this text."""
    return record.crashes > 0 and not got_further(record)


def exhausted(crashes: int, detail: str | None = None) -> ResponseError:
    """The end of a task that brings its process down again and again."""
    message = f"The work was started {crashes} times and crashed each time without getting further."
    return ResponseError("attempts_exhausted", message, detail)


class Runner:
    """Works on runs. `boot` names the process; only rows that it answers for are touched."""

    def __init__(
        self, store: Store, runtime: Runtime, recorder: Recorder, report: Report, *, boot: str, crashes_max: int
    ) -> None:
        self._store = store
        self._runtime = runtime
        self._recorder = recorder
        self._report = report
        self._boot = boot
        self._crashes_max = crashes_max
        self._quarantines: defaultdict[str, Quarantine] = defaultdict(Quarantine)

    async def __call__(self, run: Run) -> None:
        """Work until the task has ended, or the run was asked to leave. Its model stays loaded meanwhile."""
        try:
            await self._work(run)
        finally:
            for quarantine in self._quarantines.values():
                quarantine.leave(run.hint)
            self._runtime.release(run.ident)

    async def _work(self, run: Run) -> None:
        while not run.leaving.is_set():
            run.hint.clear()  # before the row is read, or a change in between would go unnoticed
            try:
                record = await self._mine(run.ident)
                if record is None:
                    return
                if run.gave_way_at is not None and record.status is Status.RUNNING:
                    if run.hint.is_set():
                        continue  # a cancel may have counted on this run
                    return
                if not await self._gives_way(run, record):
                    await self._pass(run, record)
            except ModelUnavailable as error:
                self._report(f"run {run.ident}", error)
                await self._wait_for_model(run.ident, error)
                return
            except StaleTask:
                continue  # the row has moved on: read it again
            except (StorageFull, StorageFailed) as error:
                self._report(f"run {run.ident}", error)
                await wait_for(run.leaving, STORAGE_RETRY_SECONDS)
        await self._release(run.ident)

    async def _mine(self, ident: str) -> TaskRecord | None:
        """The task, while it is unfinished and this process answers for it."""
        record = await self._store.task(ident)
        return record if record and record.status in OWNED and record.boot == self._boot else None

    async def _pass(self, run: Run, record: TaskRecord) -> None:
        if record.status is Status.CANCELLING:
            await self._recorder.close_cancelled(record, await self._recorder.journal(record))
            return
        if record.crashes >= self._crashes_max:
            error = exhausted(record.crashes, run.fault)
            await self._recorder.fail(record, await self._recorder.journal(record), error)
            return
        try:
            await unless(run.hint, self._runtime.load(record.model, record.ident))
            if not run.hint.is_set():
                await (self._begin(record) if record.status is Status.LOADING else self._draw_in_turn(run, record))
        except InvalidRequest as error:
            await self._fail(record, ResponseError(error.error_code, error.message))
        except JobFailed as error:
            await self._fail(record, ResponseError("generation_failed", str(error)))
        except RuntimeCrashed:
            run.fault = "runtime_crashed"
            await self._crashed(record.ident, "the model's process ended")
        except (StaleTask, StorageFull, StorageFailed, ModelUnavailable):
            raise
        except Exception as error:  # noqa: BLE001 -- a fault of ours is bounded like one of the model's process
            self._report(f"run {run.ident}", error)
            run.fault = "internal_error"
            await self._crashed(record.ident, f"internal error: {type(error).__name__}")

    async def _begin(self, record: TaskRecord) -> None:
        card = await self._runtime.card(record.model)
        if card is None:
            raise ModelUnavailable(f"The model {record.model} is not here any more.")
        await self._recorder.move(
            record,
            step(record.status, Cause.LOADED),
            tokens_mark=max(record.tokens_mark, record.tokens_kept),
            fingerprint=msgspec.json.encode(Fingerprint(card.digest, card.fingerprint)).decode(),
            exact=card.exact and fits(record, card),
            note="started",
        )

    async def _draw_in_turn(self, run: Run, record: TaskRecord) -> None:
        """Draw, or wait while this text and those under way may not be in one batch."""
        quarantine = self._quarantines[record.model]
        if not quarantine.enter(run.hint, suspect=is_suspect(record), exact=record.exact):
            await wait_for(run.hint, DISPATCH_POLL_SECONDS)
            return
        try:
            await self._draw(run, record, quarantine)
        finally:
            quarantine.leave(run.hint)

    async def _draw(self, run: Run, record: TaskRecord, quarantine: Quarantine) -> None:
        """Draw from where the log ends, until the text ends or something else is to be done."""
        journal = await self._recorder.journal(record)
        generation = await self._runtime.generate(await self._job(record, journal))
        try:
            # A model that draws faster than a write would else have pieces at each look, and nobody be heard.
            while not run.hint.is_set() and (pieces := await unless(run.hint, generation.take())):
                record = await self._keep(run, record, journal, pieces)
                if pieces[-1].end:
                    return
                if got_further(record):
                    quarantine.clear(run.hint)
        finally:
            await generation.stop()

    async def _job(self, record: TaskRecord, journal: Journal) -> Job:
        card = await self._runtime.card(record.model)
        if card is None:
            raise ModelUnavailable(f"The model {record.model} is not here any more.")
        room = card.context_length - record.prompt_tokens
        if room <= len(journal.tokens):  # it was accepted by a service that was started with more
            raise InvalidRequest(
                f"The window is {card.context_length} tokens now, and this text needs more than "
                f"{record.prompt_tokens + len(journal.tokens)}; start the service with a larger window_tokens.",
                code="context_length_exceeded",
            )
        return Job(
            ident=record.ident,
            model=record.model,
            prompt=await self._store.prompt(record.id),
            done=tuple(journal.tokens),
            sampling=journal.request.sampling,
            tokens_max=min(room, record.tokens_max),
            shape=journal.request.shape,
        )

    async def _keep(self, run: Run, record: TaskRecord, journal: Journal, pieces: Sequence[Piece]) -> TaskRecord:
        """All that was drawn while the last write was under way, in one transaction, with the end if it came."""
        events = [event for parts, tokens in _gathered(pieces) for event in journal.write(parts, tokens)]
        status, more = record.status, dict[str, Any](tokens_kept=len(journal.tokens))
        end = pieces[-1].end
        if end is End.STOP:
            status, more["note"] = step(status, Cause.FINISH), "completed"
            events += journal.finish(self._recorder.seconds())
        elif end is End.LENGTH:
            status, more["note"] = step(status, Cause.CUT), "cut at the limit of tokens"
            events += journal.cut()
        if not events:
            return record
        return await self._recorder.move_when_possible(record, status, events, run.leaving, **more)

    async def _fail(self, stale: TaskRecord, error: ResponseError) -> None:
        """Fail the task from where it stands now: what was drawn before the fault has moved it on."""
        record = await self._store.task(stale.ident)
        if record is not None and record.status in (Status.LOADING, Status.RUNNING):
            await self._recorder.fail(record, await self._recorder.journal(record), error)

    async def _wait_for_model(self, ident: str, error: ModelUnavailable) -> None:
        """Nothing is lost because a model cannot be used for the moment: background work waits for a start at which
        it can. Somebody waits for foreground work, and is told."""
        record = await self._mine(ident)
        if record is None:
            return
        if not record.background:
            await self._fail(record, ResponseError(error.error_code, error.message))
        elif record.status is Status.LOADING:
            note = "the model cannot be used; waiting for it"
            await self._recorder.move(record, Status.QUEUED, boot=None, note=note)

    async def _crashed(self, ident: str, why: str) -> None:
        """Note a crash under the task; the next pass goes on by the kept tokens, as often as the bound allows."""
        record = await self._store.task(ident)
        if record is not None and record.status in OWNED:
            progress = got_further(record)
            await self._recorder.move(
                record,
                record.status,
                crashes=0 if progress else record.crashes + 1,
                tokens_mark=max(record.tokens_mark, record.tokens_kept),
                note=why,
            )

    async def _gives_way(self, run: Run, record: TaskRecord) -> bool:
        """Whether the task goes back, to go on later. As after a restart, work on it begins when it is taken up."""
        run.giving_way = run.giving_way and may_give_way(run, record)
        if run.giving_way:
            note = f"gave way to a foreground response after {record.tokens_kept} tokens"
            crashes = 0 if got_further(record) else record.crashes
            mark = max(record.tokens_mark, record.tokens_kept)
            await self._recorder.move(
                record, record.status, claimed_at=UNCLAIMED, crashes=crashes, tokens_mark=mark, note=note
            )
            run.gave_way_at = record.tokens_kept
        return run.giving_way

    async def _release(self, ident: str) -> None:
        """Nobody answers for the task any more, and nothing crashed."""
        while record := await self._mine(ident):
            try:
                await self._recorder.move(record, record.status, boot=None, note="left at the stop of the service")
            except StaleTask:
                continue  # a cancel came in between
            return
