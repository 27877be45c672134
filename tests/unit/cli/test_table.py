"""The table of tasks, and how numbers are told."""

import os
import pty
import subprocess
import sys
import termios

import pytest

from perdure.cli.output import counted, place

SHOWS = """
import sys
from perdure.cli.contact import Answer
from perdure.cli.tasks import tasks

def task(name, **fields):
    told = {"id": "task_" + name, "response_id": "resp_" + name, "status": "queued", "queue_position": None,
            "created_at": 0, "background": True, "attempt": 1, "model": "small", "error": None}
    return told | fields

class Told:
    def service(self):
        return self
    def get(self, path):
        import json
        return Answer(200, json.dumps({"data": DATA, "has_more": False}).encode())

DATA = [
    task("a" * 22, queue_position=1),
    task("b" * 22, queue_position=0, attempt=2),
    task("c" * 22, status="failed", error={"code": "server_restarted"}),
    task("d" * 22, status="completed", model=sys.argv[1]),
]
tasks(Told(), status=None, limit=20, as_json=False)
"""
ROWS = [
    ["id", "created", "status"],
    ["resp_" + "a" * 22, "1970-01-01", "00:00", "queued,", "2nd"],
    ["resp_" + "b" * 22, "1970-01-01", "00:00", "queued,", "next,", "attempt", "2"],
    ["resp_" + "c" * 22, "1970-01-01", "00:00", "failed:", "server_restarted"],
    ["resp_" + "d" * 22, "1970-01-01", "00:00", "completed"],
]


def shown(model: str, columns: int | None) -> list[str]:
    """The lines of the table, at a terminal of so many columns or at a pipe."""
    read, write = pty.openpty() if columns else os.pipe()
    if columns:
        termios.tcsetwinsize(write, (24, columns))
    subprocess.run(
        [sys.executable, "-c", SHOWS, model], stdout=write, check=True, timeout=60, env=os.environ | {"TZ": "UTC"}
    )
    os.close(write)
    with os.fdopen(read, "rb") as output:
        return output.read1(65536).decode().splitlines()


def test_what_is_the_same_in_every_row_is_left_out() -> None:
    """The model; and of the attempt and the place in the queue what is not as it mostly is."""
    lines = shown("small", None)
    assert [line.split() for line in lines] == ROWS
    assert max(map(len, lines)) <= 80


def test_a_table_is_not_wider_than_the_terminal() -> None:
    """A model's name may be of any length; a file gets all of it."""
    name = "large-" + "x" * 80
    whole = shown(name, None)
    assert [line.split()[-1] for line in whole] == ["model", "small", "small", "small", name]
    for columns in (80, 40):
        assert shown(name, columns) == [line[:columns].rstrip() for line in whole]


@pytest.mark.parametrize(
    ("before", "told"),
    [(0, "next"), (1, "2nd"), (2, "3rd"), (3, "4th"), (10, "11th"), (11, "12th"), (20, "21st"), (110, "111th")],
)
def test_places_count_from_1(before: int, told: str) -> None:
    """As people do; the service tells how many are before it."""
    assert place(before) == told


def test_one_of_them_is_no_plural() -> None:
    """And thousands are set off."""
    assert [counted(number, "token") for number in (0, 1, 2, 4096)] == [
        "0 tokens",
        "1 token",
        "2 tokens",
        "4,096 tokens",
    ]
