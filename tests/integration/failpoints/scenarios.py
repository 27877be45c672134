"""What is going on when the process is killed: small plays, each with the ends that its responses may come to.

A play writes down what its callers were told, each line before anything else happens.
"""

import asyncio
import json
import os
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perdure.domain.lifecycle import TERMINAL, Status
from perdure.domain.limits import TOMBSTONE_KEEP_SECONDS
from perdure.domain.parts import CallArguments, CallBegin, CallEnd, Part, Reasoning, Text
from perdure.domain.recovery import OnRestart
from perdure.ports.runtime import JobFailed, RuntimeCrashed
from perdure.testing.scripted_runtime import MODEL, Script
from tests.unit.engine.stage import Stage, turns

TOLD = "told"
RETENTION_SECONDS = 3_600
Play = Callable[[Stage, "Told"], Awaitable[None]]


class Told:
    """What callers were told, in a file that a kill does not take with it."""

    def __init__(self, folder: Path) -> None:
        self._file = os.open(folder / TOLD, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def __call__(self, what: str, *facts: Any) -> None:
        """Somebody was told so."""
        os.write(self._file, json.dumps([what, *facts]).encode() + b"\n")


Item = tuple[str, str, str]
"""An output item: its type, the function's name if it is a call, and its text or arguments."""


@dataclass(frozen=True)
class Scenario:
    """A play, and by the prompt the ends that a response may come to if nobody was told of one before the kill.

    Where an answer is more than a text, `items` are what it adds up to.
    """

    play: Play
    ends: dict[str, set[Status]]
    items: tuple[Item, ...] = ()

    def prepare(self, stage: Stage) -> None:
        """Have the runtime of a life answer so."""
        if self.items:
            for prompt in self.ends:
                stage.runtime.play(prompt, answer({}))


async def create(stage: Stage, told: Told, prompt: str, **fields: Any) -> str:
    """Have a response accepted."""
    told("asked", prompt)
    ident = await stage.submit(prompt, **fields)
    told("created", ident, prompt)
    return ident


async def follow(stage: Stage, told: Told, ident: str) -> None:
    """Read to the end, and look at what it has come to."""
    async with stage.engine.follow(stage.principal, ident, -1) as events:
        async for event in events:
            if event is not None:
                told("event", ident, event.seq, event.type, event.data.decode())
    await look(stage, told, ident)


async def look(stage: Stage, told: Told, ident: str) -> None:
    """Read the response object."""
    status = (await stage.response(ident))["status"]
    if status in TERMINAL:
        told("ended", ident, status)


async def cancel(stage: Stage, told: Told, ident: str) -> None:
    """Ask for the end, wait for it, and look at it."""
    await stage.cancel(ident)
    told("cancelled", ident)
    await look(stage, told, ident)


async def delete(stage: Stage, told: Told, ident: str) -> None:
    """Have it removed."""
    told("removes", ident)
    await stage.delete(ident)
    told("removed", ident)


async def life(stage: Stage, told: Told) -> None:
    """Texts under each policy from the submit to their end, one cut at its limit, each with a reader."""
    await stage.engine.start()
    idents = [await create(stage, told, "resumes", on_restart=OnRestart.RESUME)]
    readers = [asyncio.create_task(follow(stage, told, idents[0]))]
    await stage.engine.workload()
    for prompt, fields in (
        ("retries", {"on_restart": OnRestart.RETRY}),
        ("fails", {"on_restart": OnRestart.FAIL}),
        ("is cut", {"max_output_tokens": 3}),
    ):
        readers.append(asyncio.create_task(follow(stage, told, await create(stage, told, prompt, **fields))))
    await asyncio.gather(*readers)


async def faults(stage: Stage, told: Told) -> None:
    """A text that the model gives up, one whose model is lost and replaced, one that loses it again and again, one
    that waits for it."""
    stage.runtime.play("gives up", Script(troubles=[(2, JobFailed("no more"))]))
    stage.runtime.play("crashes", Script(troubles=[(2, RuntimeCrashed("gone"))]))
    stage.runtime.play("crashes on", Script(troubles=[(0, RuntimeCrashed("gone"))] * 3))
    await stage.engine.start()
    for prompt in ("gives up", "crashes", "crashes on"):
        await follow(stage, told, await create(stage, told, prompt))
    stage.runtime.load_gate = asyncio.Event()
    waits = await create(stage, told, "waits")
    await stage.store.reaches(waits, Status.LOADING)
    stage.runtime.unavailable[MODEL] = "The file has changed."
    stage.runtime.load_gate.set()
    await stage.store.reaches(waits, Status.QUEUED)
    stage.runtime.unavailable.clear()
    await follow(stage, told, waits)


async def cancels(stage: Stage, told: Told) -> None:
    """A queued, a running and a loading response are cancelled, the running one with a reader."""
    stage.runtime.play("runs", Script(gates={3: asyncio.Event()}))
    await stage.engine.start()
    runs = await create(stage, told, "runs")
    reader = asyncio.create_task(follow(stage, told, runs))
    await stage.store.until(runs, lambda task: task.tokens_kept == 3)
    await cancel(stage, told, await create(stage, told, "is queued"))
    stage.runtime.load_gate = asyncio.Event()
    loads = await create(stage, told, "loads")
    await cancel(stage, told, runs)
    await reader
    await stage.store.reaches(loads, Status.LOADING)
    await cancel(stage, told, loads)


async def removes(stage: Stage, told: Told) -> None:
    """A finished, a running and a queued response are deleted, and their rows go."""
    stage.runtime.play("runs", Script(gates={3: asyncio.Event()}))
    await stage.engine.start()
    finished = await create(stage, told, "is finished")
    await follow(stage, told, finished)
    await delete(stage, told, finished)
    runs = await create(stage, told, "runs")
    await stage.store.until(runs, lambda task: task.tokens_kept == 3)
    queued = await create(stage, told, "is queued")
    for ident in (queued, runs):
        await delete(stage, told, ident)
    await stage.ended(runs)
    stage.clock.advance(5)
    for ident in (queued, runs):
        await stage.store.gone(ident)


async def retains(stage: Stage, told: Told) -> None:
    """Old responses go by the page and leave their names while another is still written; in the end the names go."""
    runs = stage.runtime.play("runs", Script(gates={3: asyncio.Event()}))
    await stage.engine.start()
    old = [await create(stage, told, "is old") for _ in range(2)]
    deleted = await create(stage, told, "is deleted")
    await asyncio.gather(*(follow(stage, told, ident) for ident in (*old, deleted)))
    running = await create(stage, told, "runs")
    await stage.store.until(running, lambda task: task.tokens_kept == 3)
    for ident in old:
        told("outlives", ident)
    stage.clock.advance(RETENTION_SECONDS)
    await delete(stage, told, deleted)
    for ident in old:
        await stage.store.gone(ident)
    told("forgets")
    stage.clock.advance(TOMBSTONE_KEEP_SECONDS)
    runs.gates[3].set()
    await follow(stage, told, running)
    while [ident for ident in old if await stage.store.expired(ident) is not None]:
        await turns(1)


async def leaves(stage: Stage, told: Told) -> None:
    """A foreground response loses its caller in mid-text, and ends for it."""
    stage.runtime.play("is left", Script(gates={3: asyncio.Event()}))
    await stage.engine.start()
    left = await create(stage, told, "is left", background=False, on_restart=OnRestart.FAIL)
    async with stage.engine.follow(stage.principal, left, -1):
        await stage.store.until(left, lambda task: task.tokens_kept == 3)
    await stage.ended(left)
    await look(stage, told, left)


async def gives_way(stage: Stage, told: Told) -> None:
    """A background text gives way to a foreground response, and goes on after it."""
    gates = stage.runtime.play("gives way", Script(gates={3: asyncio.Event()})).gates
    await stage.engine.start()
    text = await create(stage, told, "gives way")
    reader = asyncio.create_task(follow(stage, told, text))
    await stage.store.until(text, lambda task: task.tokens_kept == 3)
    await follow(stage, told, await create(stage, told, "asks", background=False, on_restart=OnRestart.FAIL))
    gates[3].set()
    await reader


async def stops(stage: Stage, told: Told) -> None:
    """The service is stopped with a running and a queued response."""
    stage.runtime.play("runs", Script(gates={3: asyncio.Event()}))
    await stage.engine.start()
    runs = await create(stage, told, "runs")
    await create(stage, told, "is queued")
    await stage.store.until(runs, lambda task: task.tokens_kept == 3)
    await stage.stop(seconds=1)


async def calls(stage: Stage, told: Told) -> None:
    """Answers of reasoning, text and two calls, kept bit by bit, each with a reader; one goes on after a kill, one
    begins anew."""
    await stage.engine.start()
    for prompt, policy in (("calls", OnRestart.RESUME), ("calls anew", OnRestart.RETRY)):
        script = stage.runtime.play(prompt, answer({tokens: asyncio.Event() for tokens in PAUSES}))
        ident = await create(stage, told, prompt, on_restart=policy)
        reader = asyncio.create_task(follow(stage, told, ident))
        for tokens, gate in script.gates.items():
            await stage.store.until(ident, lambda task, tokens=tokens: task.tokens_kept == tokens)
            gate.set()
        await reader


def answer(gates: dict[int, asyncio.Event]) -> Script:
    """The script of such an answer."""
    return Script(length=len(SHOWS) + 1, shows=SHOWS, silent=SILENT, gates=gates)


SHOWS: dict[int, tuple[Part, ...]] = {
    0: (Reasoning("Where is "),),
    1: (Reasoning("that?"), Text("I look")),
    2: (Text(" it up."),),
    3: (),
    4: (CallBegin("get_weather"), CallArguments('{"city":')),
    5: (CallArguments('"Lima"}'), CallEnd(), CallBegin("now")),
    6: (CallArguments("{}"),),
    7: (CallEnd(),),
}
SILENT = frozenset({3})
PAUSES = (1, 2, 5, 7)
"""So many tokens are kept, and no more, for a moment: in reasoning, in a text, in a call, and in the last one."""
ITEMS: tuple[Item, ...] = (
    ("reasoning", "", "Where is that?"),
    ("message", "", "I look it up."),
    ("function_call", "get_weather", '{"city":"Lima"}'),
    ("function_call", "now", "{}"),
)


async def recovers(stage: Stage, told: Told) -> None:
    """A start on what a process left, a response in each state under each policy, deleted ones too; then all go on to
    their ends."""
    left = await stage.store.unfinished(0, len(LEFT))
    for task in left:
        if task.hidden:
            told("removed", task.ident)
    await stage.engine.start()
    told("settled")
    for task in left:
        await stage.ended(task.ident)
        if not task.hidden:
            await look(stage, told, task.ident)


COMPLETED, INCOMPLETE, FAILED, CANCELLED = Status.COMPLETED, Status.INCOMPLETE, Status.FAILED, Status.CANCELLED


@dataclass(frozen=True)
class Left:
    """A response that the last process left, whose prompt tells how."""

    state: Status
    policy: OnRestart
    deleted: bool = False

    @property
    def prompt(self) -> str:
        """What it is known by."""
        return f"{self.state} {self.policy}{' deleted' * self.deleted}"

    @property
    def end(self) -> Status:
        """What a restart makes of it in the end."""
        if self.deleted or self.state is Status.CANCELLING:
            return CANCELLED
        return FAILED if self.policy is OnRestart.FAIL else COMPLETED


STATES = (Status.QUEUED, Status.LOADING, Status.RUNNING, Status.CANCELLING)
LEFT = [
    *(Left(state, policy) for state in STATES for policy in OnRestart),
    *(Left(state, OnRestart.RESUME, deleted=True) for state in STATES),
]
"""All that there is before `recovers`."""


SCENARIOS = {
    "life": Scenario(
        life, {"resumes": {COMPLETED}, "retries": {COMPLETED}, "fails": {COMPLETED, FAILED}, "is cut": {INCOMPLETE}}
    ),
    "faults": Scenario(
        faults,
        {
            "gives up": {COMPLETED, FAILED},
            "crashes": {COMPLETED},
            "crashes on": {COMPLETED, FAILED},
            "waits": {COMPLETED},
        },
    ),
    "cancels": Scenario(cancels, {each: {COMPLETED, CANCELLED} for each in ("runs", "is queued", "loads")}),
    "removes": Scenario(removes, {each: {COMPLETED, CANCELLED} for each in ("is finished", "runs", "is queued")}),
    "retains": Scenario(retains, {each: {COMPLETED} for each in ("is old", "is deleted", "runs")}),
    "gives way": Scenario(gives_way, {"gives way": {COMPLETED}, "asks": {COMPLETED, FAILED}}),
    "leaves": Scenario(leaves, {"is left": {CANCELLED, FAILED}}),
    "stops": Scenario(stops, {each: {COMPLETED} for each in ("runs", "is queued")}),
    "calls": Scenario(calls, {each: {COMPLETED} for each in ("calls", "calls anew")}, ITEMS),
    "recovers": Scenario(recovers, {left.prompt: {left.end} for left in LEFT}),
}
