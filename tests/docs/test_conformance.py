"""docs/conformance.md: every requirement has a row, and the tool that renews it changes proofs only."""

import ast
import re
from collections import Counter

import pytest

from tests.docs.repository import ROOT, tool

REQUIREMENTS = {"P": 8, "R": 7, "I": 14, "V": 8, "S": 6, "W": 11, "D": 6}
FIELD_CASE = re.compile(r"[A-I]-\d\d")
STATES = {"proven", "in part", "not yet", "cannot happen"}
TEST = re.compile(r"`(tests/[^`]+?)::([^`]+)`")


TOOL = tool("conformance")
DOCUMENT: str = TOOL.DOCUMENT.read_text()
ROWS = [found.groups() for found in map(TOOL.ROW.match, DOCUMENT.splitlines()) if found]


def test_every_requirement_has_one_row() -> None:
    """And nothing else has, but cases from the field."""
    wanted = {f"{letter}{number}" for letter, most in REQUIREMENTS.items() for number in range(1, most + 1)}
    counted = Counter(ident for ident, _, _ in ROWS)
    assert {ident for ident in counted if not FIELD_CASE.fullmatch(ident)} == wanted
    assert set(counted.values()) == {1}


def test_every_line_of_a_table_is_a_row() -> None:
    """One that is not in form would be overlooked."""
    lines = [line for line in DOCUMENT.splitlines() if line.startswith("|")]
    assert len([line for line in lines if not line.startswith(("| id |", "|---"))]) == len(ROWS)


@pytest.mark.parametrize(("ident", "state", "proof"), ROWS, ids=[ident for ident, _, _ in ROWS])
def test_a_row_has_a_state_and_what_belongs_to_it(ident: str, state: str, proof: str) -> None:
    """A test where it is proven, otherwise words or a test."""
    assert state in STATES
    assert TEST.search(proof) if state == "proven" else proof.strip()


def test_every_test_that_is_named_is_there() -> None:
    """In that file; a method may be inherited."""
    gone: list[str] = []
    for file, test in TEST.findall(DOCUMENT):
        path = ROOT / file
        names = (
            {getattr(node, "name", "") for node in ast.walk(ast.parse(path.read_text()))} if path.exists() else set()
        )
        if path.exists() and "::" not in test and test not in names:
            gone.append(f"{file}::{test}")
        if not path.exists():
            gone.append(file)
    assert gone == []


def test_renewing_changes_proofs_and_keeps_state_and_words() -> None:
    """Tests that are gone go, new ones come, and the words stay."""
    old = "text\n\n| P1 | in part | `tests/a.py::old`, `tests/a.py::kept`; some words |\n| P2 | proven |  |\n"
    new = TOOL.rewritten(old, {"P1": {"tests/b.py::new", "tests/a.py::kept"}, "P2": {"tests/c.py::c"}})
    assert new == (
        "text\n\n| P1 | in part | `tests/a.py::kept`, `tests/b.py::new`; some words |\n"
        "| P2 | proven | `tests/c.py::c` |\n"
    )


def test_renewing_twice_changes_nothing() -> None:
    """The document is a fixed point."""
    proofs = {"C-10": {"tests/a.py::a"}, "A-01": {"tests/b.py::b"}}
    once = TOOL.rewritten("| B-01 | not yet | words |\n", proofs)
    assert TOOL.rewritten(once, proofs) == once


def test_an_id_without_a_row_gets_one_that_waits_for_a_judgement() -> None:
    """In the last table, in its order."""
    new = TOOL.rewritten("| P1 | proven | x |\n\n| A-02 | proven | x |\n\nend\n", {"A-01": {"tests/a.py::a"}})
    assert new == "| P1 | proven | x |\n\n| A-01 | in part | `tests/a.py::a` |\n| A-02 | proven | x |\n\nend\n"
