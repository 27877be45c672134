"""The power goes while callers are served over HTTP: whatever one of them was told is still true afterwards.

The real command serves a tiny model from a disk whose cache is lost with the process (see `power_cut_server`). Each
round starts it on what the last cut has left, holds the promises of the last round against what it says now, lets
callers loose on it, and kills it.
"""

import json
import random
import shutil
import sys
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from perdure.testing.volatile_disk import Tally
from tests.soundness import idents, unsound
from tests.system.promises import Crowd, Promise
from tests.system.server import Server

POINTS = 100
PARTS = 4
ROUNDS = POINTS // PARTS
ROUNDS_WEAKER = 10
SIGNS_MAX = 60
START_OPERATIONS_MAX = 120
LOG_PAGES = (60, 1_000)
"""The short log is moved into the file all the time, so that cuts fall into that. The long one is the product's."""
LAUNCHER = Path(__file__).with_name("power_cut_server.py")


@dataclass
class Outcome:
    """What came of a number of cuts.

    `dropping` cuts found something that the disk had not got, `starting` ones fell into a start. `creates` were sent,
    callers were `told` so many things, and `broken` is what was not as promised, by round.
    """

    cuts: int = 0
    dropping: int = 0
    starting: int = 0
    creates: int = 0
    told: Counter[str] = field(default_factory=Counter[str])
    broken: dict[int, list[str]] = field(default_factory=dict[int, list[str]])
    unsound: list[str] = field(default_factory=list[str])


class Rounds:
    """Cuts of one folder. Every fifth falls at some operation of the disk soon after the start, the others after some
    number of signs of life to the callers."""

    def __init__(self, folder: Path, model: Path, seed: int, synchronous: str | None = None) -> None:
        self.outcome = Outcome()
        self._folder = folder
        self._server = Server(folder / "data", model)
        self._chance = random.Random(seed)
        self._synchronous = synchronous
        self._tally = folder / "tally"
        self._open: dict[str, Promise] = {}
        self._kept: dict[str, Promise] = {}

    def make(self, count: int) -> Outcome:
        """So many cuts, then a look at everything that was ever promised."""
        with self._server:
            for number in range(count):
                self._round(number)
            self._start(None, LOG_PAGES[1])
            self._check(count, self._kept | self._open)
            assert self._server.terminate() == 0
        self._look_into(self._server.data)
        return self.outcome

    def _round(self, number: int) -> None:
        early = number % 5 == 4
        cut_at = self._chance.randrange(1, START_OPERATIONS_MAX) if early else None
        listening = self._start(cut_at, LOG_PAGES[number % 2])
        if listening and not early:
            self._check(number, self._open)
            self._kept |= self._open
            self._open = {}
        if listening:
            self._serve(number)
        elif self._server.process is not None:
            self._server.kill()
            self.outcome.starting += 1
        self.outcome.cuts += 1
        self.outcome.dropping += Tally.read(self._tally)[1] > 0
        self._look_into(self._copy(number))

    def _start(self, cut_at: int | None, log_pages: int) -> bool:
        plan = {
            "tally": str(self._tally),
            "seed": self._chance.randrange(2**32),
            "cut_at": cut_at,
            "log_pages": log_pages,
            "synchronous": self._synchronous,
        }
        self._server.spawn(sys.executable, "-P", str(LAUNCHER), json.dumps(plan))
        line = self._server.first_line()
        if line:
            self._server.url = line.split()[3]
        else:
            assert cut_at is not None, self._server.errors.read_text()
        return bool(line)

    def _serve(self, number: int) -> None:
        crowd = Crowd(self._server, f"{self._chance.random()}", self._chance.randrange(1, SIGNS_MAX))
        crowd.start()
        assert crowd.enough.wait(60)
        self._server.kill()
        crowd.join()
        self._open |= crowd.promises
        self.outcome.creates += crowd.creates
        self.outcome.told += crowd.told

    def _check(self, number: int, promises: dict[str, Promise]) -> None:
        broken = [f"{ident} {what}" for ident, each in promises.items() for what in each.broken(self._server, ident)]
        if broken:
            self.outcome.broken[number] = broken

    def _copy(self, number: int) -> Path:
        """What the cut has left, without the wal-index, which is memory."""
        found = self._folder / f"cut{number}"
        found.mkdir()
        for name in ("perdure.db", "perdure.db-wal", "perdure.db-journal"):
            if (self._server.data / name).exists():
                shutil.copy(self._server.data / name, found)
        return found

    def _look_into(self, folder: Path) -> None:
        """Nothing in the file is torn, no state is without its event, and nothing is there that nobody sent."""
        path = folder / "perdure.db"
        if path.exists():
            self.outcome.unsound += unsound(path)
            assert len(idents(path)) <= self.outcome.creates


@pytest.mark.proves("P3", "P4", "P5", "C-25", "C-04")
@pytest.mark.parametrize("part", range(PARTS))
def test_what_was_answered_is_there_after_a_power_cut(tmp_path: Path, tiny_model: Path, part: int) -> None:
    """A hundred cuts in four runs: creates, events, cancels, deletes and ends that somebody was told of, all hold."""
    outcome = Rounds(tmp_path, tiny_model, part).make(ROUNDS)
    assert outcome.broken == {}
    assert outcome.unsound == []
    assert outcome.cuts == ROUNDS
    assert outcome.dropping >= ROUNDS // 3
    assert outcome.starting > 0
    assert outcome.told.keys() == {"create", "look", "event", "cancel", "delete"}
    assert outcome.told["create"] >= 2 * ROUNDS


def test_this_test_would_notice(tmp_path: Path, tiny_model: Path) -> None:
    """With the weaker setting that others use, the same cuts do lose what was answered."""
    assert Rounds(tmp_path, tiny_model, 99, "normal").make(ROUNDS_WEAKER).broken != {}
