"""What must be true after a kill, whatever the process was doing: of the rows as they lie there, and of what the next
process makes of them."""

import asyncio
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from perdure.domain import events as ev
from perdure.domain.errors import NotFound
from perdure.domain.events import Event
from perdure.domain.lifecycle import Status
from perdure.ports.storage import TaskRecord
from tests.integration.failpoints.scenarios import RETENTION_SECONDS, TOLD, Item, Scenario
from tests.soundness import idents, unsound
from tests.unit.engine.stage import BriskLoop, Stage, asked, opened, undisturbed

WHOLE, CUT = 5, 3
"""Tokens of an undisturbed text, and of one that is cut at its limit."""
BOOTS_BEFORE = 10
END_MAX_SECONDS = 200  # of the loop's time: 10 of the wall's


@dataclass
class Promises:
    """What callers were told before the kill, by the name of the response."""

    asked: int = 0
    created: dict[str, str] = field(default_factory=dict[str, str])
    events: dict[str, dict[int, tuple[str, str]]] = field(default_factory=dict[str, dict[int, tuple[str, str]]])
    ended: dict[str, str] = field(default_factory=dict[str, str])
    cancelled: set[str] = field(default_factory=set[str])
    removes: set[str] = field(default_factory=set[str])
    removed: set[str] = field(default_factory=set[str])
    outlives: set[str] = field(default_factory=set[str])
    forgets: bool = False
    settled: bool = False

    @classmethod
    def read(cls, folder: Path) -> "Promises":
        """What stands in the file."""
        found = cls()
        path = folder / TOLD
        for line in path.read_text().splitlines() if path.exists() else ():
            what, *facts = json.loads(line)
            found._add(what, facts)
        return found

    def _add(self, what: str, facts: list[Any]) -> None:
        match what:
            case "asked":
                self.asked += 1
            case "created":
                self.created[facts[0]] = facts[1]
            case "event":
                ident, seq, kind, data = facts
                self.events.setdefault(ident, {})[seq] = kind, data
            case "ended":
                self.ended[facts[0]] = facts[1]
            case "cancelled" | "removes" | "removed" | "outlives":
                getattr(self, what).add(facts[0])
            case "forgets":
                self.forgets = True
            case _:
                self.settled = True


def problems(folder: Path, scenario: Scenario, left: int) -> list[str]:
    """Everything that is not as it must be; `left` responses were there before the play."""
    path, promises = folder / "perdure.db", Promises.read(folder)
    found = unsound(path)
    if len(idents(path)) > promises.asked + left:
        found.append(f"there are the responses {idents(path)}, and {promises.asked + left} were asked for")
    try:
        with asyncio.Runner(loop_factory=BriskLoop) as runner:
            found += runner.run(_next_life(folder, scenario, promises))
    except TimeoutError:
        found.append("the next process does not come to the end of all work")
    return found + unsound(path)


async def _next_life(folder: Path, scenario: Scenario, promises: Promises) -> list[str]:
    """Let the next process come up and end all work."""
    left = idents(folder / "perdure.db")
    known = promises.removes.union(promises.outlives, left)
    found = [f"{ident} was accepted and is lost" for ident in promises.created if ident not in known]
    async with (
        asyncio.timeout(END_MAX_SECONDS),
        opened(folder, retention_seconds=RETENTION_SECONDS) as stage,
    ):
        stage.boots = BOOTS_BEFORE
        scenario.prepare(stage)
        stage.engine = stage.new_engine()
        await stage.engine.start()
        for ident in left:
            task = await stage.ended(ident)
            found += [f"{ident} {what}" for what in await _one(stage, task, scenario, promises)]
        for ident in promises.outlives:
            named = await stage.store.expired(ident) is not None
            if (named and ident in left) or (not named and ident not in left and not promises.forgets):
                found.append(f"{ident} has {'left its name and is there' if named else 'gone and left no name'}")
        stage.clock.advance(10)
        for ident in promises.removed:
            found += [f"{ident} {what}" for what in await _removed(stage, ident)]
        await stage.stop()
        found += [f"{what}: {error!r}" for what, error in stage.reports]
    return found


async def _one(stage: Stage, task: TaskRecord, scenario: Scenario, promises: Promises) -> list[str]:
    """A response that has come to its end."""
    prompt = asked(await stage.store.received(task.id))
    log = await stage.log(task.ident)
    found = [
        f"has not the event {seq} that a reader has seen"
        for seq, seen in promises.events.get(task.ident, {}).items()
        if (log[seq].type, log[seq].data.decode()) != seen
    ]
    told = promises.ended.get(task.ident, "cancelled" if task.ident in promises.cancelled else None)
    if told is not None and told != task.status:
        found.append(f"was {told} to a caller and is {task.status}")
    if task.status not in scenario.ends[prompt]:
        found.append(f"({prompt}) became {task.status}: {task.error}")
    items = _items(log[-1])
    if not _right(items, task.status, scenario, prompt):
        found.append(f"({task.status}) has other items than an undisturbed run: {items}")
    retries = [event for event in log if event.type == ev.RETRIED]
    if len(retries) > 1 + promises.settled:
        found.append(f"was begun anew {len(retries)} times")
    return found


def _items(end: Event) -> list[Item]:
    """What the response of the last event holds."""
    assert end.snapshot is not None
    output: list[dict[str, Any]] = json.loads(end.snapshot)["output"]
    return [(item["type"], item.get("name", ""), item.get("arguments") or _text(item)) for item in output]


def _text(item: dict[str, Any]) -> str:
    return "".join(part["text"] for part in item.get("content", ()))


def _right(items: list[Item], status: Status, scenario: Scenario, prompt: str) -> bool:
    """Whether these are the items of an undisturbed run, as far as they go."""
    whole = list(scenario.items) or [("message", "", undisturbed(prompt, WHOLE))]
    if status is Status.COMPLETED:
        return items == whole
    if status is Status.INCOMPLETE:
        return items == [("message", "", undisturbed(prompt, CUT))]
    if not items:
        return True
    (kind, name, text), before = items[-1], len(items) - 1
    return items[:-1] == whole[:before] and whole[before][:2] == (kind, name) and whole[before][2].startswith(text)


async def _removed(stage: Stage, ident: str) -> list[str]:
    """A response whose removal was answered."""
    await stage.store.gone(ident)
    try:
        await stage.response(ident)
    except NotFound:
        return []
    return ["can be read after its delete was answered"]
