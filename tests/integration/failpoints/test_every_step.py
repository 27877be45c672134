"""The process is killed at every step of submit, claim, record, finish, cancel, remove, retain, recover and of the
store's upkeep, and nothing is lost, nothing is there twice, and no state is without its event.

A step is a line of the program, executed for the n-th time; see `perdure.testing.failpoints`. Each step costs a life
of a child process (`zygote`) and a start of the service on what it left (`aftermath`).
"""

import ast
import asyncio
import json
import os
import random
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any, Self

import pytest

from perdure.storage.sqlite import connection
from perdure.testing.failpoints import LEAVES, SOURCE
from tests.integration.failpoints.aftermath import problems
from tests.integration.failpoints.scenarios import LEFT, SCENARIOS
from tests.integration.failpoints.zygote import STEPS, TROUBLE, without_waiting
from tests.unit.engine.stage import BriskLoop, opened
from tests.unit.engine.test_recover import leave

ROOT = Path(__file__).parents[3]
NOW = "now"
VERBS = [
    f"engine/{verb}.py" for verb in ("submit", "record", "run", "cancel", "recover", "remove", "retain", "dispatch")
]
Step = tuple[str, int]


class Zygote:
    """The parent of the processes that are killed."""

    def __init__(self) -> None:
        command = [sys.executable, "-m", "tests.integration.failpoints.zygote"]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT)

    def play(self, scenario: str, folder: Path, step: Step | None = None) -> bool:
        """Play to the end or to a step; whether it came to the step, and was killed there."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        place, nth = step or (None, 1)
        self._process.stdin.write(json.dumps([scenario, str(folder), place, nth]) + "\n")
        self._process.stdin.flush()
        status = int(self._process.stdout.readline())
        killed = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
        assert killed or status == 0, (step, status, *(each.read_text() for each in folder.glob(TROUBLE)))
        return killed

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        with self._process:
            assert self._process.stdin is not None
            self._process.stdin.close()


class Stages:
    """For each scenario the folder before it, and the steps that a whole play makes."""

    def __init__(self, zygote: Zygote, folder: Path) -> None:
        self._zygote = zygote
        self._folder = folder
        self.hits: dict[str, Counter[str]] = {}
        for name in SCENARIOS:
            (folder / name).mkdir()
            with asyncio.Runner(loop_factory=BriskLoop) as runner:
                runner.run(_before(folder / name, name))
            assert not zygote.play(name, self.copy(name))
            self.hits[name] = Counter(json.loads((folder / NOW / STEPS).read_text()))
            shutil.rmtree(folder / NOW)

    def copy(self, name: str) -> Path:
        """The folder for the next life."""
        return shutil.copytree(self._folder / name, self._folder / NOW)

    def found_after(self, name: str, step: Step) -> tuple[bool, list[str]]:
        """Whether the process was killed at the step, and what is then not as it must be. A play that comes to the
        place less often than another one did is killed when it comes there first."""
        folder = self.copy(name)
        killed = self._zygote.play(name, folder, step)
        found = problems(folder, SCENARIOS[name], len(LEFT) if name == "recovers" else 0)
        shutil.rmtree(folder)
        place, nth = step
        return (killed, found) if killed or found or nth == 1 else self.found_after(name, (place, 1))

    def steps(self, name: str, often: int) -> list[Step]:
        """Where to kill: each place of the scenario at so many of its comings. With 0: each place once, in one of the
        scenarios, and each of the recovery once more, at its last coming."""
        places = self.hits[name]
        if often:
            return [(place, nth) for place, count in places.items() for nth in _spread(count, often)]
        found: list[Step] = []
        for place, count in places.items():
            chance = random.Random(place)
            if name == chance.choice([each for each in sorted(SCENARIOS) if self.hits[each][place]]):
                found.append((place, chance.randint(1, count)))
            if place.startswith("engine/recover.py"):
                found.append((place, count))
        return found


def _spread(count: int, most: int) -> list[int]:
    """At most so many numbers of 1 to `count`, the first and the last among them."""
    most = min(most, count)
    return [1] if most == 1 else [1 + place * (count - 1) // (most - 1) for place in range(most)]


async def _before(folder: Path, scenario: str) -> None:
    async with opened(folder) as stage:
        for left in LEFT if scenario == "recovers" else ():
            deleted: dict[str, Any] = {"hidden": True, "purge_at": stage.clock.now()} if left.deleted else {}
            await leave(stage, left.state, left.policy, prompt=left.prompt, note="left", **deleted)


@pytest.fixture(scope="module")
def stages(tmp_path_factory: pytest.TempPathFactory) -> Generator[Stages]:
    """One zygote for all scenarios."""
    with pytest.MonkeyPatch.context() as patch, Zygote() as zygote:
        patch.setattr(connection, "WRITER", without_waiting(connection.WRITER))
        yield Stages(zygote, tmp_path_factory.mktemp("stages"))


@pytest.mark.proves("P3", "P4", "P5", "P8", "C-25")
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_killed_at_every_step_nothing_is_lost_and_nothing_doubled(
    stages: Stages, scenario: str, pytestconfig: pytest.Config
) -> None:
    """What callers were told holds, each state has its event, and the next process brings all to their right ends."""
    steps = stages.steps(scenario, int(pytestconfig.getoption("--failpoints") or 0))
    outcomes = {step: stages.found_after(scenario, step) for step in steps}
    assert {step: found for step, (_, found) in outcomes.items() if found} == {}
    killed = sum(killed for killed, _ in outcomes.values())
    assert killed >= 0.9 * len(outcomes)


def test_no_step_is_left_out(stages: Stages) -> None:
    """The scenarios come to every function of the verbs, and each place that they come to is tried."""
    places = {place for hits in stages.hits.values() for place in hits}
    assert set(_functions()) - places == set()
    assert {place for name in SCENARIOS for place, _ in stages.steps(name, 0)} == places


def _functions() -> Iterator[str]:
    """Where each function of the verbs is left."""
    for module in VERBS:
        for node in ast.walk(ast.parse((SOURCE / module).read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                first = min([node.lineno, *(each.lineno for each in node.decorator_list)])
                yield f"{module}:{first}{LEAVES}"
