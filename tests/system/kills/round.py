"""One round: texts under way, kills one after the other, and at the end every text against the undisturbed one."""

import json
import random
import select
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import psutil

from tests.system.kills import rows
from tests.system.kills.compare import Different, difference, differences
from tests.system.kills.plan import RECOVERY, Aim, Moment, Plan, Victim
from tests.system.kills.reader import Reader
from tests.system.kills.rows import Row, Rows
from tests.system.kills.undisturbed import Expected, Undisturbed
from tests.system.server import START_SECONDS, Server, until

SETTINGS: dict[str, Any] = {
    "crashes_max": 1000,  # kills come faster than progress here; the bound has tests of its own
    "window_tokens": 2048,
}
ENGINE = "engine_child"
STARTING = ("start", "scan", "settled")
BOTH_CHILDREN = 0.25  # how often the process that counts dies with the one that draws
READERS = 3  # at once; every text is read whole at the end
LATER_SECONDS = 0.03  # how long after its sign a moment may be: longer than a commit


@dataclass(frozen=True)
class Kill:
    """What a kill was meant to be, and what it was as the store shows it.

    `hit` is the phase of the text that was aimed at, or how far the start had come: `start` before the first write,
    `scan` while what was left is being settled, `settled` before the service listens. `streams` has phase, tokens
    done and tokens left of each text that had not ended.
    """

    aim: Aim
    struck: tuple[str, ...]
    hit: str
    settled: tuple[int, int] | None
    streams: tuple[tuple[str, int, int], ...]
    texts: int
    prompt_tokens: int

    @property
    def victim(self) -> Victim:
        """Who really died."""
        if "service" not in self.struck:
            return Victim.CHILD
        return Victim.BOTH if ENGINE in self.struck else Victim.SERVICE


def kill_round(server: Server, plan: Plan, undisturbed: Undisturbed, rng: random.Random) -> list[Kill]:
    """Carry out a plan with a service that does not run yet. Raises `Different`."""
    kills: list[Kill] = []
    Round(server, plan, undisturbed, rng, kills).run()
    return kills


def pause(seconds: float) -> None:
    """Let a random time go by: not to wait for anything, but so that the kill may fall anywhere."""
    select.select((), (), (), seconds)


class Round:
    """The state of a round. `kills` gets each kill as soon as it has been made."""

    def __init__(
        self, server: Server, plan: Plan, undisturbed: Undisturbed, rng: random.Random, kills: list[Kill]
    ) -> None:
        self.server = server
        self.plan = plan
        self.rng = rng
        self.expected = undisturbed.texts(plan.requests)
        self.readers: dict[str, Reader] = {}
        self.wanted: dict[str, Expected] = {}
        self.kills = kills
        self._left: Rows | None = None
        self._start_seconds = 0.0
        self._reach: dict[Moment, Callable[[], str | None]] = {
            Moment.QUEUED: self._queued,
            Moment.LOADING: self._loading,
            Moment.PROMPT: self._prompt,
            Moment.TEXT: self._text,
            Moment.START: self._at_start,
            Moment.SCAN: self._at_scan,
            Moment.LISTENING: self._just_listening,
        }

    def run(self) -> None:
        """Kill as planned, then compare."""
        self._open()
        for aim in self.plan.aims:
            if aim.moment not in RECOVERY and self.server.process is None:
                self._start()
            target = self._reach[aim.moment]()
            if target is None:
                break  # all texts have ended
            self.kills.append(self._strike(aim, target))
        assert self.kills, "the texts had ended before the first kill"
        self._compare()

    def _open(self) -> None:
        opening = self.plan.aims[0].moment
        self.server.settings |= SETTINGS | {"slots": 1 if opening is Moment.QUEUED else self.plan.streams}
        self._start()
        self.server.settings["slots"] = self.plan.streams
        if opening not in (Moment.QUEUED, Moment.LOADING, Moment.PROMPT):
            self._create()

    def _start(self) -> None:
        self._spawn()
        self._listen()

    def _spawn(self) -> None:
        self._spawned = time.monotonic()
        self.server.spawn()

    def _listen(self) -> None:
        self.server.listening()
        self._start_seconds = time.monotonic() - self._spawned

    # The moments: each brings the round to a random point of its moment and names the text that is aimed at.

    def _create(self) -> None:
        for request, expected in zip(self.plan.requests, self.expected, strict=True):
            found = self.server.create(**request)["id"]
            self.readers[found], self.wanted[found] = Reader(found), expected

    @property
    def _victim(self) -> Victim:
        """Who is to die next."""
        return self.plan.aims[len(self.kills)].victim

    def _last(self) -> str:
        return list(self.wanted)[-1]

    def _queued(self) -> str:
        self._create()
        pause(self.rng.uniform(0, LATER_SECONDS))
        return self._last()

    def _loading(self) -> str:
        until(lambda: self._model()["loaded"] or None, "the model to be loaded")
        old = self.server.engine_child()
        old.kill()
        with suppress(psutil.NoSuchProcess):
            old.wait(10)
        self._create()
        last = self._last()
        until(lambda: self.server.task(last)["status"] != "queued" or None, "the last text to be claimed")
        if self._victim is not Victim.SERVICE:
            self.server.engine_child()  # there has to be one to be killed
        pause(self.rng.uniform(0, 0.1 * self._start_seconds))
        return last

    def _prompt(self) -> str:
        before = self._prompt_tokens()
        self._create()
        wanted = self.rng.uniform(0, 0.9) * sum(each.response["usage"]["input_tokens"] for each in self.expected)
        until(lambda: self._prompt_tokens() - before >= wanted or None, "the prompts to be read", 120)
        return self._last()

    def _prompt_tokens(self) -> int:
        model = self._model()
        return model["tokens_read"] + model["tokens_reused"]

    def _text(self) -> str | None:
        now = rows.of_the_living(self.server.data, self.readers).tasks
        unfinished = [each for each, row in now.items() if not row.ended]
        if not unfinished:
            return None
        target, *others = self.rng.sample(unfinished, min(READERS, len(unfinished)))
        for each in (target, *others):
            self.readers[each].attach(self.server)
        self.readers[target].reaches(self._characters(target, now[target].kept))
        pause(self.rng.uniform(0, LATER_SECONDS / 5))
        return target

    def _characters(self, target: str, kept: int) -> int:
        """How much of the text shall be seen: a random part of what is left, the smaller the more kills follow."""
        expected = self.wanted[target]
        following = sum(aim.moment is Moment.TEXT for aim in self.plan.aims[len(self.kills) :])
        part = min(0.9, self.rng.random() * 2 / (following + 1))
        done = kept / len(expected.tokens)
        return max(1, int((done + part * (1 - done)) * len(expected.text)))

    def _at_start(self) -> str:
        self._spawn()
        if self._victim is Victim.CHILD:
            self.server.engine_child()
            pause(self.rng.uniform(0, 0.2 * self._start_seconds))
        else:
            pause(self.rng.uniform(0, 0.9 * self._start_seconds))
        return self._any_left()

    def _at_scan(self) -> str:
        """Just after the start has written for the first time: that it serves, and then what it settles."""
        log = self.server.data / rows.LOG
        before = _state(log)
        self._spawn()
        while _state(log) == before:  # finer than `until`: all is settled within some milliseconds
            pause(0.0005)
            assert time.monotonic() < self._spawned + START_SECONDS, self.server.errors.read_text()
        pause(self.rng.uniform(0, LATER_SECONDS / 2))
        return self._any_left()

    def _just_listening(self) -> str:
        self._start()
        target = self._any_left()
        self.readers[target].attach(self.server)
        pause(self.rng.uniform(0, 0.4))
        return target

    def _any_left(self) -> str:
        assert self._left is not None
        unfinished = [each for each, row in self._left.tasks.items() if not row.ended]
        return self.rng.choice(unfinished or list(self.wanted))

    # The kill, and what it was.

    def _strike(self, aim: Aim, target: str) -> Kill:
        if aim.victim is Victim.CHILD:
            return self._strike_child(aim, target)
        struck, pid = self._end_of_service(aim.victim)
        for reader in self.readers.values():
            reader.detach()
        before, now = self._left, self._look(rows.of_the_dead)
        self._left = now
        if aim.moment in RECOVERY and not self._listened(pid):
            assert before is not None
            settled = _settled(before, now)
            return self._kill(aim, struck, _start_reached(before, now, settled), now.tasks.values(), settled)
        return self._kill(aim, struck, now.tasks[target].phase, now.tasks.values())

    def _end_of_service(self, victim: Victim) -> tuple[list[str], int]:
        """Kill the service, and for `both` its children in the same instant, in a random order."""
        assert self.server.process is not None
        pid = self.server.process.pid
        doomed = {"service": psutil.Process(pid)}
        if victim is Victim.BOTH:
            doomed |= self.server.named_children()
        struck = self.rng.sample(list(doomed), len(doomed))
        for name in struck:
            with suppress(psutil.NoSuchProcess):
                doomed[name].kill()
        self.server.kill()
        return struck, pid

    def _strike_child(self, aim: Aim, target: str) -> Kill:
        """Kill the process that draws, sometimes together with the one that counts, and see the service go on."""
        engine = self.server.engine_child()
        if aim.moment in (Moment.START, Moment.SCAN):
            if not self._listened(engine.ppid()):
                return self._strike_starting_child(aim, engine)
            self._listen()
        starts = self._model()["starts"]
        before = self._look(rows.of_the_living)
        struck = self._end_of_children(engine)
        until(lambda: self._replaced(starts), "another engine")
        now = self._look(rows.of_the_living)
        found = {each: _as_it_was(row, now.tasks[each]) for each, row in before.tasks.items()}
        return self._kill(aim, struck, found[target].phase, found.values())

    def _strike_starting_child(self, aim: Aim, engine: psutil.Process) -> Kill:
        struck = self._end_of_children(engine)
        assert self._left is not None
        found = self._kill(aim, struck, "start", self._left.tasks.values())
        self._listen()
        return found

    def _end_of_children(self, engine: psutil.Process) -> list[str]:
        doomed = {ENGINE: engine} | (self.server.named_children() if self.rng.random() < BOTH_CHILDREN else {})
        for child in doomed.values():
            with suppress(psutil.NoSuchProcess):
                child.kill()
        return list(doomed)

    def _replaced(self, starts: int) -> bool | None:
        model = self._model()
        return (model["starts"] > starts and model["loaded"]) or None

    def _listened(self, pid: int) -> bool:
        """Whether the process has come so far that it listens; it writes this down just before it says so."""
        facts = self.server.data / "server.json"
        return facts.exists() and json.loads(facts.read_text())["pid"] == pid

    def _kill(
        self, aim: Aim, struck: list[str], hit: str, found: Iterable[Row], settled: tuple[int, int] | None = None
    ) -> Kill:
        streams = tuple(
            (hit if hit in STARTING else row.phase, row.kept, len(expected.tokens) - row.kept)
            for row, expected in zip(found, self.wanted.values(), strict=True)
            if not row.ended
        )
        longest = max(expected.response["usage"]["input_tokens"] for expected in self.expected)
        return Kill(aim, tuple(struck), hit, settled, streams, len(self.wanted), longest)

    # The comparison.

    def _look(self, read: Callable[[Path, Collection[str]], Rows]) -> Rows:
        """The rows, of which every one has to be the beginning of the undisturbed text and to hold all that a reader
        has seen so far."""
        seen = {each: len(reader.seen) for each, reader in self.readers.items()}
        found = read(self.server.data, self.wanted)
        wrong: list[str] = []
        for each, row in found.tasks.items():
            wanted = self.wanted[each].tokens[: row.kept]
            wrong += [f"{each} at a kill: {line}" for line in difference("tokens", wanted, row.tokens)]
            if seen[each] > row.next_seq:
                wrong.append(f"{each} at a kill: {seen[each]} frames were seen and {row.next_seq} kept")
        if wrong:
            raise Different(wrong)
        return found

    def _compare(self) -> None:
        if self.server.process is None:
            self._start()
        found: list[str] = []
        for each, reader in self.readers.items():
            frames = self.server.frames(each)
            reader.detach()
            response = self.server.get(f"/v1/responses/{each}")
            tokens = rows.of_the_living(self.server.data, [each]).tasks[each].tokens
            lines = differences(self.wanted[each], response, frames, tokens, reader.seen)
            found += [f"{each}: {line}" for line in lines]
        if found:
            raise Different(found)

    def _model(self) -> Mapping[str, Any]:
        return self.server.get("/v1/service")["models"][0]


def _state(path: Path) -> tuple[int, int] | None:
    """What changes when a file is written."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return found.st_mtime_ns, found.st_size


def _settled(before: Rows, now: Rows) -> tuple[int, int]:
    """How many of the texts that the last process left at work have been settled by this start, and of how many."""
    at_work = [each for each, row in before.tasks.items() if row.status in ("loading", "running")]
    done = [row for each, row in now.tasks.items() if each in at_work and _is_settled(row, now.boot)]
    return (len(done) if now.boot != before.boot else 0), len(at_work)


def _is_settled(row: Row, boot: str) -> bool:
    return row.boot == boot or row.status == "queued" or row.ended


def _start_reached(before: Rows, now: Rows, settled: tuple[int, int]) -> str:
    if now.boot == before.boot:
        return "start"
    return "settled" if settled[0] == settled[1] else "scan"


def _as_it_was(before: Row, after: Row) -> Row:
    """A text when the process that drew it was killed: what came of it afterwards says how far it had come."""
    if after.crashes > before.crashes:
        return replace(before, status="running", kept=after.mark, taken_up=True)
    return after if after.ended and before.status == "running" else before
