"""Options of the test run, and the check that `docs/conformance.md` tells the truth about it."""

import re
from collections.abc import Generator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent
CONFORMANCE = ROOT / "docs" / "conformance.md"
ROW = re.compile(r"^\| (?P<id>[A-Z]+-?\d+) \| (?P<state>[a-z ]+) \| (?P<proof>.*) \|$")
TEST = re.compile(r"`(tests/[^`]+)`")
STATES = {"proven", "in part", "not yet", "cannot happen"}


def pytest_addoption(parser: pytest.Parser) -> None:
    """Options of this project."""
    parser.addoption(
        "--failpoints",
        type=int,
        default=0,
        help="at how many of its comings a step is killed in each scenario (0: each step once in one of them)",
    )
    parser.addoption("--stops", type=int, default=50, help="how many SIGTERMs the stop test sends")
    parser.addoption("--closes", type=int, default=100, help="how many viewers leave at the very end of their stream")
    parser.addoption(
        "--store-soak",
        type=int,
        default=1,
        metavar="TIMES",
        help="so many times the usual mixtures of calls, power cuts and kills of the store, drawn by --store-seed",
    )
    parser.addoption("--store-seed", type=int, default=0, help="what these are drawn by")
    parser.addoption(
        "--conformance",
        action="store_true",
        help="fail unless every test that docs/conformance.md names ran and passed",
    )


ORDER = ("system", "integration", "clients")
"""Tests in these folders take long: they come first, so that at the end all workers have something to do."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Bring the tests into that order; those of one file stay together."""
    items.sort(
        key=lambda item: next((n for n, name in enumerate(ORDER) if f"tests/{name}/" in item.nodeid), len(ORDER))
    )


def pytest_configure(config: pytest.Config) -> None:
    """Watch the run."""
    config.pluginmanager.register(Conformance(config), "conformance")


class Conformance:
    """Compares what ran with what the document claims."""

    def __init__(self, config: pytest.Config) -> None:
        self.enforced = bool(config.getoption("--conformance"))
        self.passed: set[str] = set()
        self.failed: set[str] = set()
        self.marked: dict[str, set[str]] = {}

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Send along what the test says that it proves; the test may run in another process than this check."""
        report = yield
        if report.when == "call":
            report.user_properties += [
                ("proves", str(each)) for mark in item.iter_markers("proves") for each in mark.args
            ]
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note what passed; of a test with several parameters, all have to."""
        name = report.nodeid.split("[", 1)[0]
        if report.failed or report.skipped:
            self.failed.add(name)
        elif report.when == "call":
            self.passed.add(name)
        for key, value in report.user_properties:
            if key == "proves":
                self.marked.setdefault(str(value), set()).add(name)

    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        """Turn a run red whose document claims more than the run has shown."""
        if not self.enforced or hasattr(session.config, "workerinput") or exitstatus != pytest.ExitCode.OK:
            return
        problems = list(self.problems(CONFORMANCE.read_text()))
        if problems:
            print("\ndocs/conformance.md is not true of this run:\n  " + "\n  ".join(problems))  # noqa: T201 -- pytest shows it
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def problems(self, document: str) -> Generator[str]:
        """Every claim that this run did not show, and every proof that the document does not name."""
        named: dict[str, set[str]] = {}
        for row in filter(None, map(ROW.match, document.splitlines())):
            tests = set(TEST.findall(row["proof"]))
            named[row["id"]] = tests
            if row["state"] not in STATES:
                yield f"{row['id']}: there is no state {row['state']!r}"
            if row["state"] == "proven" and not tests:
                yield f"{row['id']}: no test is named"
            for test in sorted(tests):
                if test not in self.passed or test in self.failed:
                    yield f"{row['id']}: {test} did not run and pass"
        for name, tests in sorted(self.marked.items()):
            for test in sorted(tests - named.get(name, set())):
                yield f"{name}: {test} says that it proves this, and the document does not name it"
