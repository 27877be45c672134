"""The commands of the how-to pages: understood, and the one that nobody watches runs as it is written."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from perdure.cli.app import build_parser
from tests.docs.repository import ROOT
from tests.system.care import make_database

PAGE = ROOT / "docs" / "how-to" / "back-up-and-restore.md"
LINES = [
    line
    for block in re.findall(r"^```\w*\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    for line in block.splitlines()
]
KEPT = 10


def test_every_command_is_understood() -> None:
    """With its options; a variable may stand before it."""
    found = [re.sub(r"^PERDURE_\w+=\w+ ", "", line) for line in LINES]
    commands = [shlex.split(line)[1:] for line in found if line.startswith("perdure ")]
    assert {words[0] for words in commands} == {"backup", "restore", "serve", "doctor"}
    for words in commands:
        build_parser(words).parse_args(words)


@pytest.mark.skipif(sys.platform != "linux", reason="the tools of cron's line are those of GNU")
def test_the_line_for_cron_runs_as_it_is_written(tmp_path: Path) -> None:
    """With what cron gives: a home, a short search path, and no more. The newest stay."""
    (line,) = (each for each in LINES if "* * *" in each)
    assert "%H\\%M\\%S" in line  # a second run on the same day has a name of its own
    assert "%" not in line.replace("\\%", "")  # for cron it is the end of the command
    command = line.split(maxsplit=5)[5].replace("\\%", "%")
    (tmp_path / "perdure").symlink_to(ROOT)
    data = tmp_path / ".local" / "share" / "perdure"
    data.parent.mkdir(parents=True)
    make_database(data)
    backups = tmp_path / "backups"

    def run() -> subprocess.CompletedProcess[bytes]:
        env = {"HOME": str(tmp_path), "PATH": "/usr/bin:/bin"}
        return subprocess.run(["/bin/sh", "-c", command], env=env, capture_output=True, timeout=60, check=False)

    ran = run()
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, b"", b"")
    (first,) = backups.iterdir()
    assert re.fullmatch(r"perdure-\d{4}-\d\d-\d\d-\d{6}\.db", first.name)
    first.unlink()  # so that the second run may be in the same second
    old = [backups / f"perdure-2025-12-{day:02}-031500.db" for day in range(1, KEPT + 3)]
    for each in [*old, backups / "mine.db"]:
        each.touch()
    assert run().returncode == 0
    left = sorted(each.name for each in backups.iterdir() if each.name != "mine.db")
    assert left[:-1] == [each.name for each in old[3:]]
    assert (backups / "mine.db").exists()
    (data / "perdure.db").unlink()
    assert run().returncode == 1
    assert len(list(backups.iterdir())) == KEPT + 1
