"""The tally of the long run: nothing verified is lost by an interruption, and nothing that failed is forgotten."""

import random
from pathlib import Path
from typing import Any

import pytest

from tests.system.kills.plan import Aim, Moment, Plan, Sampling, Victim, draw_plan
from tests.system.kills.round import Kill
from tests.system.kills.soak import report, soaking
from tests.system.kills.tally import Tally, lines_of, table

PLAN = Plan("tiny", 4, Sampling.MIXED, (), (Aim(Victim.BOTH, Moment.TEXT),))
FAILURE = {"what": "Different: text", "how": ["text"], "data": "a folder", "seed": 0}


def kill(*streams: tuple[str, int, int], hit: str = "text", struck: tuple[str, ...] = ("service",)) -> Kill:
    """A kill."""
    return Kill(PLAN.aims[0], struck, hit, None, streams, texts=4, prompt_tokens=30)


def test_a_run_goes_on_where_the_last_one_was_interrupted(tmp_path: Path) -> None:
    """The kills of all runs are counted together, and numbered on."""
    path = tmp_path / "kills.jsonl"
    with Tally(path) as tally:
        tally.add(lines_of(tally.next_kill, PLAN, [kill(("text", 3, 4)), kill(("text", 5, 2))], None))
    with Tally(path) as tally:
        assert (tally.verified, tally.next_kill) == (2, 3)
        tally.add(lines_of(tally.next_kill, PLAN, [kill(("text", 3, 4))], None))
    with Tally(path) as tally:
        assert [line["kill"] for line in tally.lines] == [1, 2, 3]
        assert [line["round"] for line in tally.lines] == [1, 1, 3]


def test_a_line_torn_by_an_interruption_is_taken_off(tmp_path: Path) -> None:
    """Its kill is made again; the lines before and after it are whole."""
    path = tmp_path / "kills.jsonl"
    with Tally(path) as tally:
        tally.add(lines_of(1, PLAN, [kill(("text", 3, 4))], None))
    with path.open("ab") as file:
        file.write(b'{"kill": 2, "ok": tr')
    with Tally(path) as tally:
        assert tally.next_kill == 2
        tally.add(lines_of(2, PLAN, [kill(("text", 3, 4))], None))
    with Tally(path) as tally:
        assert [line["kill"] for line in tally.lines] == [1, 2]


def test_two_runs_cannot_write_one_tally(tmp_path: Path) -> None:
    """They would give out the same numbers."""
    with Tally(tmp_path / "kills.jsonl"), pytest.raises(SystemExit, match="another run"):
        Tally(tmp_path / "kills.jsonl")


def test_what_failed_is_told_by_every_later_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It is not counted, keeps its number, and makes the exit code 1, however many good kills follow."""
    path = tmp_path / "kills.jsonl"
    with Tally(path) as tally:
        tally.add(lines_of(1, PLAN, [], FAILURE))
    with Tally(path) as tally:
        assert (tally.verified, tally.next_kill) == (0, 2)
        tally.add(lines_of(2, PLAN, [kill(("text", 3, 4))] * 4, None))
        assert tally.verified == 4
        assert report(tally.lines) == 1
        assert report([line for line in tally.lines if line["ok"]]) == 0
    assert "round 1 FAILED: Different: text" in capsys.readouterr().out


def test_a_kill_that_came_too_late_is_told_and_not_counted(tmp_path: Path) -> None:
    """When every text had ended there was nothing to disturb."""
    with Tally(tmp_path / "kills.jsonl") as tally:
        tally.add(lines_of(1, PLAN, [kill(hit="ended"), kill(("text", 3, 4))], None))
        assert tally.verified == 1
        assert "Not counted: 1 kills" in table(tally.lines)


def test_the_table_shows_what_was_hit() -> None:
    """By victim as it really died, and each text by what was done and left."""
    engine = ("engine_child",)
    kills = [
        kill(("text", 0, 15), ("prompt", 256, 64), struck=("service", *engine)),
        kill(("again", 16, 16), hit="again", struck=engine),
        kill(("start", 16, 16), hit="start"),
    ]
    shown = table(lines_of(1, PLAN, kills, None)).splitlines()
    assert "| text | 0 | 0 | 1 | 1 |" in shown
    assert "| again | 0 | 1 | 0 | 1 |" in shown
    assert "| start | 1 | 0 | 0 | 1 |" in shown
    assert "| texts: tokens done | left 1 to 15 | left 16 to 63 | left 64 to 255 | all |" in shown
    assert "| 16 to 63 | 0 | 2 | 0 | 2 |" in shown
    assert shown[-1].startswith("3 kills, 4 texts, 4 times a text was under way at a kill; 0 kills after which")


def test_plans_are_drawn_from_the_number_of_the_kill() -> None:
    """The same number gives the same plan, and in the long run everybody is killed at every moment."""
    plans = [draw_plan(random.Random(f"0/{n}"), 8) for n in range(300)]
    assert plans == [draw_plan(random.Random(f"0/{n}"), 8) for n in range(300)]
    assert {aim for plan in plans for aim in plan.aims} == {Aim(victim, at) for victim in Victim for at in Moment}
    assert {(plan.model, plan.streams, plan.sampling) for plan in plans} == {
        (model, streams, sampling) for model in ("tiny", "real") for streams in (1, 4, 8) for sampling in Sampling
    }


@pytest.mark.parametrize(
    "aims", [[(Victim.CHILD, Moment.TEXT), (Victim.BOTH, Moment.SCAN)], [(Victim.BOTH, Moment.START)]]
)
def test_a_start_is_killed_only_where_there_is_one(aims: list[Any]) -> None:
    """After the death of the process that draws, the service is still there."""
    with pytest.raises(AssertionError, match="needs a service that was killed"):
        Plan("tiny", 1, Sampling.GREEDY, (), tuple(Aim(*each) for each in aims))


def test_a_round_that_fails_keeps_its_evidence(tmp_path: Path) -> None:
    """Here the service refuses to start at all: its model is broken. The failure is a line, the folder stays."""
    (tmp_path / "tiny.gguf").write_text("no model")
    first = next(n for n in range(1, 100) if draw_plan(random.Random(f"0/{n}"), 8).model == "tiny")
    with soaking(tmp_path, seed=0) as soak:
        (line,) = soak.make(first)
    assert (line["kill"], line["ok"], line["failure"]["seed"]) == (first, False, 0)
    assert "AssertionError" in line["failure"]["what"]
    assert Path(line["failure"]["data"]).parent.is_dir()
