"""tools/mutants.toml: each fault finds its place, its test is there, the page lists it. `make mutants` tries them."""

import re
import subprocess
import sys
from typing import Any

import pytest

from tests.docs.repository import ROOT, tool

ID = re.compile(r"[A-Z]\d+|[A-I]-\d\d")


TOOL = tool("mutants")
MUTANTS = TOOL.load()
CONFORMANCE = (ROOT / "docs" / "conformance.md").read_text()


def test_there_are_enough_and_each_has_its_name() -> None:
    """Names that can be typed."""
    names = [mutant.name for mutant in MUTANTS]
    assert len(names) >= 15
    assert len(set(names)) == len(names)
    assert [name for name in names if not re.fullmatch(r"[a-z-]+", name)] == []


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_fault_finds_its_place_and_breaks_a_promise(mutant: Any) -> None:
    """Its text stands exactly once in its file, the broken file can still be read, and the promise has a row."""
    text = (ROOT / mutant.file).read_text()
    broken = mutant.mutated(text)
    assert broken != text
    if mutant.file.endswith(".py"):
        compile(broken, mutant.file, "exec")
    assert mutant.promise
    for promise in mutant.promise:
        assert ID.fullmatch(promise)
        assert f"\n| {promise} | " in CONFORMANCE


def test_a_text_that_is_not_there_or_not_the_only_one_is_refused() -> None:
    """So that a fault is never made in the wrong place, or in none."""
    for text in ("", MUTANTS[0].old * 2):
        with pytest.raises(ValueError, match="times"):
            MUTANTS[0].mutated(text)


def test_the_tests_that_must_notice_are_there() -> None:
    """As pytest names them."""
    named = sorted({mutant.test for mutant in MUTANTS})
    asked = subprocess.run(
        [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", *named],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert asked.returncode == 0, asked.stdout


def test_the_page_lists_every_fault() -> None:
    """Its table is written from the list."""
    page = TOOL.PAGE.read_text()
    assert TOOL.page(page, MUTANTS) == page, "run: .venv/bin/python tools/mutants.py --page"


@pytest.mark.parametrize(
    ("code", "told", "noticed"),
    [
        (1, [("FAILED", "tests/a.py::a - AssertionError: assert 1 == 2")], True),
        (1, [("FAILED", "tests/a.py::a - NameError: name 'x' is not defined")], False),
        (1, [("FAILED", "tests/a.py::a - TimeoutError")], False),
        (1, [("ERROR", "tests/a.py::a - RuntimeError")], False),
        (1, [], False),
        (2, [("ERROR", "tests/a.py")], False),
        (4, [], False),
        (0, [], False),
        (None, [("FAILED", "tests/a.py::a - AssertionError")], False),
    ],
)
def test_only_a_test_that_failed_has_noticed(code: int | None, told: list[tuple[str, str]], noticed: bool) -> None:
    """Not one that passed, could not be set up or collected, ran into broken code, or did not end."""
    assert TOOL.judged(TOOL.Run(code, tuple(told), "", 0.0))[0] is noticed
