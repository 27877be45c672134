"""/openapi.json holds for requests that are made up from it."""

import re
import subprocess
import sys
from pathlib import Path

from .test_openapi import operations

CASES = Path(__file__).with_name("openapi_cases.py")
SECONDS = 300.0


def test_the_document_holds_for_what_is_made_up_from_it() -> None:
    """For each operation; in a process of its own, for the reason that it gives."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(CASES)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    passed = re.search(r"^(\d+) passed", ran.stdout, re.MULTILINE)
    assert passed is not None, ran.stdout
    assert int(passed[1]) == len(operations())
