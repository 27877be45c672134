"""What the standard log of the floors below becomes on standard error."""

import json
import subprocess
import sys

import pytest

from perdure.ambient import log

SCRIPT = """
import logging, sys
from perdure.ambient import log
log.configure(sys.argv[1])
logging.getLogger("perdure.storage.sqlite.upkeep").info("the log was moved")
logging.getLogger("perdure.storage.sqlite.upkeep").warning("the log is long")
logging.getLogger("library").info("chatter")
logging.getLogger("library").warning("trouble")
"""


def told(level: str) -> list[tuple[str, str]]:
    """The lines of a process at this level."""
    done = subprocess.run([sys.executable, "-c", SCRIPT, level], capture_output=True, text=True, check=True)
    lines = [json.loads(line) for line in done.stderr.splitlines()]
    return [(line["level"], line["event"]) for line in lines]


def test_what_floors_say_is_told_at_its_level_and_of_libraries_only_what_matters() -> None:
    """A recovery is information, and reaches the owner all the same, unless he asked for less."""
    trouble = [("warning", "the log is long"), ("warning", "trouble")]
    assert told("info") == [("info", "the log was moved"), *trouble]
    assert told("warning") == trouble
    assert told("error") == []


def test_what_is_held_is_told_in_order_when_it_may_be(capsys: pytest.CaptureFixture[str]) -> None:
    """Or never, where nobody releases it."""
    held = log.Held()
    for number in range(2):
        held.event(f"early {number}")
    assert capsys.readouterr().err == ""
    held.release()
    held.event("late")
    lines = [json.loads(line)["event"] for line in capsys.readouterr().err.splitlines()]
    assert lines == ["early 0", "early 1", "late"]
