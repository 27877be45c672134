"""Keeps the proofs in docs/conformance.md in step with the tests' `proves` markers.

    python tools/conformance.py           rewrites the proof cells and prints what changed
    python tools/conformance.py --check   changes nothing; ends with 1 when something would change

State and words of a row are written by people and stay. The markers are read as pytest collects them. An id
without a row gets one, `in part`, in the last table, until somebody has judged it. conftest.py holds the document
against what really passed.
"""

import argparse
import contextlib
import io
import os
import re
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
DOCUMENT = ROOT / "docs" / "conformance.md"
ROW = re.compile(r"^\| (?P<id>[A-Z]+-?\d+) \| (?P<state>[a-z ]+) \| (?P<proof>.*) \|$")
TEST = re.compile(r"`tests/[^`]+`")

Proofs = Mapping[str, Iterable[str]]


def proof(tests: Iterable[str], old: str) -> str:
    """A proof cell: the tests, then the words of the old cell."""
    named = ", ".join(f"`{test}`" for test in sorted(tests))
    words = TEST.sub("", old).strip(" ,;")
    return "; ".join(filter(None, (named, words)))


def row(ident: str, state: str, cell: str) -> str:
    """A row of the document."""
    return f"| {ident} | {state} | {cell} |"


def rewritten(document: str, proofs: Proofs) -> str:
    """The document with its proofs renewed, and a row for each id that had none."""
    lines = document.splitlines()
    known: set[str] = set()
    last = 0
    for number, line in enumerate(lines):
        if found := ROW.match(line):
            ident, state, old = found.groups()
            known.add(ident)
            lines[number], last = row(ident, state, proof(proofs.get(ident, ()), old)), number
    fresh = [row(ident, "in part", proof(proofs[ident], "")) for ident in proofs.keys() - known]
    first = last
    while first and ROW.match(lines[first - 1]):
        first -= 1
    if fresh:
        lines[first : last + 1] = sorted([*lines[first : last + 1], *fresh])
    return "\n".join(lines) + "\n"


class Markers:
    """Takes the markers of what was collected; tests are named without their parameters."""

    def __init__(self) -> None:
        self.proofs: dict[str, set[str]] = {}

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Everything has been collected."""
        for item in session.items:
            for ident in (ident for mark in item.iter_markers("proves") for ident in mark.args):
                self.proofs.setdefault(str(ident), set()).add(item.nodeid.split("[", 1)[0])


def collected() -> Proofs:
    """Which tests say that they prove what. Ends the program where tests cannot be collected."""
    os.chdir(ROOT)
    markers, told = Markers(), io.StringIO()
    with contextlib.redirect_stdout(told):
        code = pytest.main(["--collect-only", "-q", "-o", "pythonpath=."], [markers])
    if code != pytest.ExitCode.OK:
        sys.exit(f"{told.getvalue()}\nThe tests cannot be collected.")
    return markers.proofs


def main() -> int:
    """Renew the document, or check it."""
    parser = argparse.ArgumentParser(description="Keep docs/conformance.md in step with the tests.")
    parser.add_argument("--check", action="store_true", help="change nothing; fail when it is not current")
    check = parser.parse_args().check
    old = DOCUMENT.read_text()
    new = rewritten(old, collected())
    before = set(old.splitlines())
    for line in new.splitlines():
        if line not in before:
            print(line)
    if not check:
        DOCUMENT.write_text(new)
    return int(check and new != old)


if __name__ == "__main__":
    sys.exit(main())
