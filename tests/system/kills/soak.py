"""The kills at length: `make soak KILLS=300` makes that many in all, over as many runs as it takes.

Every verified kill is a line of the tally (build/soak/kills.jsonl), so a run that was interrupted is gone on with.
The plan of a round is drawn from the number of its first kill. A round after which something is not as it should be
stays in the tally as failed, with its data folder, and every later run says so and ends with 1. To make one round
alone, without the tally: `make soak ROUND=17` (and SEED, if there was one). To begin anew, remove the folder.
"""

import argparse
import random
import shutil
import signal
import sys
import time
import traceback
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from perdure.testing.tiny_gguf import write_tiny_model
from tests.system.kills.compare import Different
from tests.system.kills.plan import Model, Plan, draw_plan
from tests.system.kills.round import SETTINGS, Kill, Round
from tests.system.kills.tally import Line, Tally, lines_of, table
from tests.system.kills.undisturbed import Undisturbed
from tests.system.server import Server

FAILED_ROUNDS_MAX = 5  # of one run: what fails so often is not found better by going on
KILLS_MAX = 8


def tell(line: str) -> None:
    """To whoever watches."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


class Soak:
    """Makes rounds in `folder`."""

    def __init__(self, folder: Path, seed: int) -> None:
        self._folder = folder
        self._seed = seed
        tiny = folder / "tiny.gguf"
        if not tiny.exists():
            write_tiny_model(tiny)
        self._files: dict[Model, Path | None] = {"tiny": tiny, "real": None}
        self._undisturbed: dict[Model, Undisturbed] = {}

    def make(self, first: int, kills: int = KILLS_MAX) -> list[Line]:
        """One round, beginning with the kill number `first`: its lines."""
        rng = random.Random(f"{self._seed}/{first}")
        plan = draw_plan(rng, KILLS_MAX)
        plan = Plan(plan.model, plan.streams, plan.sampling, plan.requests, plan.aims[:kills])
        data = self._fresh(f"round-{first}")
        began, found = time.monotonic(), list[Kill]()
        failure = self._carry_out(plan, data, rng, found)
        if failure is None:
            shutil.rmtree(data.parent)
        outcome = "as undisturbed" if failure is None else f"FAILED: {failure['what']}"
        tell(
            f"kill {first} and on: {plan.model}, {plan.streams} at once, {plan.sampling}: "
            f"{', '.join(f'{kill.victim}/{kill.hit}' for kill in found)}; {time.monotonic() - began:.0f} s; {outcome}"
        )
        return lines_of(first, plan, found, failure)

    def _carry_out(self, plan: Plan, data: Path, rng: random.Random, found: list[Kill]) -> Line | None:
        """The kills go to `found` one by one; what went wrong is returned."""
        with Server(data, self._files[plan.model]) as server:
            try:
                round_ = Round(server, plan, self._measure(plan.model), rng, found)
                round_.run()
            except Exception as error:  # noqa: BLE001 -- whatever it is, it is kept and the next round is made
                how = error.differences if isinstance(error, Different) else traceback.format_exc().splitlines()
                what = f"{type(error).__name__}: {error}".splitlines()[0]
                return {"what": what, "how": how, "data": str(data), "seed": self._seed}
        return None

    def _fresh(self, name: str) -> Path:
        folder = self._folder / name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        return folder / "data"

    def _measure(self, model: Model) -> Undisturbed:
        """The service that is never killed; its texts are made anew in each run, as the program may have changed."""
        if model not in self._undisturbed:
            server = Server(self._fresh(f"undisturbed-{model}"), self._files[model], **SETTINGS, slots=8)
            self._undisturbed[model] = Undisturbed(server)
        return self._undisturbed[model]

    def close(self) -> None:
        """End the services that were never killed."""
        for each in self._undisturbed.values():
            each.close()


@contextmanager
def soaking(folder: Path, seed: int) -> Generator[Soak]:
    """A soak that is closed."""
    folder.mkdir(parents=True, exist_ok=True)
    soak = Soak(folder, seed)
    try:
        yield soak
    finally:
        soak.close()


def go_on(path: Path, kills: int, seed: int) -> int:
    """Make kills until the tally holds so many; the exit code."""
    with Tally(path) as tally, soaking(path.parent / (path.stem + "-data"), seed) as soak:
        tell(f"{tally.verified} of {kills} kills are in {path}")
        failed_rounds = 0
        while tally.verified < kills and failed_rounds < FAILED_ROUNDS_MAX:
            lines = soak.make(tally.next_kill, kills - tally.verified)
            tally.add(lines)
            failed_rounds += not lines[0]["ok"]
        return report(tally.lines)


def report(lines: list[Line]) -> int:
    """Print the table and what failed; the exit code."""
    tell("\n" + table(lines) + "\n")
    failed = {line["round"]: line["failure"] for line in lines if not line["ok"]}
    for first, failure in failed.items():
        again = f"make soak ROUND={first} SEED={failure['seed']}"
        tell(f"round {first} FAILED: {failure['what']}\n  data: {failure['data']}\n  again: {again}")
    return 1 if failed else 0


def _leave(_number: int, _frame: object) -> None:
    """As Ctrl-C does: no service is left behind."""
    sys.exit(143)


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=50, help="how many verified kills the tally shall hold")
    parser.add_argument("--tally", type=Path, default=Path("build/soak/kills.jsonl"))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--round", type=int, help="make the round that begins with this kill, without the tally")
    parser.add_argument("--table", action="store_true", help="only print what the tally holds")
    asked = parser.parse_args()
    signal.signal(signal.SIGTERM, _leave)
    if asked.table:
        with Tally(asked.tally) as tally:
            return report(tally.lines)
    if asked.round is not None:
        with soaking(asked.tally.parent / "one", asked.seed) as soak:
            return report(soak.make(asked.round))
    return go_on(asked.tally, asked.kills, asked.seed)


if __name__ == "__main__":
    sys.exit(main())
