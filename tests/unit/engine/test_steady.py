"""Age by a clock that is set: what was finished minutes ago does not look years old."""

import random
from pathlib import Path

import pytest
from tests.unit.engine.stage import opened, scenario, turns
from tests.unit.engine.test_retain import wake

from perdure.domain.lifecycle import Status
from perdure.engine.steady import SteadyTime
from perdure.testing.manual_clock import ManualClock

DAY = 24 * 3600
YEARS = 56 * 365 * DAY
KEEP = 30 * DAY
MICROSECONDS = 1_000_000


def test_a_clock_that_only_runs_is_believed() -> None:
    """Also over a sleep of the machine for a week, and where it is slewed."""
    clock = ManualClock()
    steady = SteadyTime(clock, KEEP)
    for _ in range(100):
        clock.advance(DAY / 2)
        clock.step(30)
        assert steady.now() == clock.now()
        clock.sleep(7 * DAY)
        assert steady.now() == clock.now()


def test_a_leap_is_taken_off_until_everything_before_it_is_as_old_in_truth(caplog: pytest.LogCaptureFixture) -> None:
    """And told once."""
    clock = ManualClock(at=0)
    steady = SteadyTime(clock, KEEP)
    clock.advance(100)
    clock.step(YEARS)
    assert steady.now() == clock.now() - YEARS * MICROSECONDS
    clock.advance(KEEP - 1)
    assert steady.now() == clock.now() - YEARS * MICROSECONDS
    clock.advance(1)
    assert steady.now() == clock.now()
    (line,) = caplog.messages
    assert line == "the clock was set ahead by 20440.0 days; finished responses stay that much longer, for 30.0 days"


def test_a_second_leap_begins_the_time_anew() -> None:
    """What was dated between the two is young, too."""
    clock = ManualClock()
    steady = SteadyTime(clock, KEEP)
    clock.step(DAY)
    steady.now()
    clock.advance(KEEP - 1)
    clock.step(2 * DAY)
    steady.now()
    clock.advance(KEEP - 1)
    assert steady.now() == clock.now() - 3 * DAY * MICROSECONDS
    clock.advance(1)
    assert steady.now() == clock.now()


def test_a_clock_that_is_set_right_again_is_believed_at_once() -> None:
    """Years ahead by mistake, and back."""
    clock = ManualClock()
    steady = SteadyTime(clock, KEEP)
    clock.step(YEARS)
    steady.now()
    clock.advance(60)
    clock.step(-YEARS)
    assert steady.now() == clock.now()


@pytest.mark.parametrize("seed", range(20))
def test_nothing_looks_older_than_it_is(seed: int) -> None:
    """Whatever the clock does: something that was dated at any look has never been over before its time is."""
    chance = random.Random(seed)
    clock = ManualClock()
    steady = SteadyTime(clock, KEEP)
    dated: list[tuple[int, float]] = []
    for _ in range(400):
        clock.advance(chance.choice((1, 60, 3600, DAY)))
        dated.append((clock.now(), clock.elapsed()))
        clock.step(chance.choice((0, 0, 0, 0, 0, 0, DAY, 40 * DAY, YEARS, -DAY, -YEARS)))
        now = steady.now()
        assert now <= clock.now()
        over = [since for at, since in dated if at <= now - KEEP * MICROSECONDS]
        assert all(clock.elapsed() - since >= KEEP for since in over)
        dated.append((clock.now(), clock.elapsed()))


@pytest.mark.parametrize("start", [0, None])
@pytest.mark.proves("P6")
@scenario
async def test_a_clock_that_is_set_ahead_takes_no_response_away(tmp_path: Path, start: int | None) -> None:
    """A machine that wakes up in 1970 and asks for the time later, and one that is sent years ahead by mistake: what
    was finished a minute ago stays, and goes when its time is over in truth."""
    async with opened(tmp_path, retention_seconds=KEEP) as stage:
        if start is not None:
            stage.clock = ManualClock(start)
        stage.engine = stage.new_engine()
        await stage.engine.start()
        ident = await stage.submit()
        task = await stage.ended(ident)
        assert task.status is Status.COMPLETED
        stage.clock.advance(60)
        stage.clock.step(YEARS)
        for days in (0, 10, 10, 9):
            stage.clock.advance(days * DAY)
            await wake(stage)
            await turns(50)
            assert await stage.store.task(ident) is not None
        stage.clock.advance(DAY)
        await wake(stage)
        await stage.store.gone(ident)
        await stage.stop(seconds=0)
