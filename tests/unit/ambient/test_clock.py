"""The clock of the machine."""

import sys
import time

import pytest

from perdure.ambient.clock import SystemClock


def test_the_clocks_run_on() -> None:
    """None goes back, and the one for deadlines is no time of day."""
    clock = SystemClock()
    for read in (clock.monotonic, clock.elapsed):
        assert 0 < read() <= read()


@pytest.mark.skipif(sys.platform != "linux", reason="the name of the clock is Linux's")
def test_a_sleep_of_the_machine_counts() -> None:
    """As the kernel counts it; a machine that has never slept shows no difference, so the clock itself is named."""
    before = time.clock_gettime(time.CLOCK_BOOTTIME)
    assert before <= SystemClock().elapsed() <= time.clock_gettime(time.CLOCK_BOOTTIME)
