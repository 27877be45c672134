"""Breaks the program on purpose, one named fault at a time, and demands that a named test notices.

    python tools/mutants.py             every fault of tools/mutants.toml
    python tools/mutants.py NAME ...    some of them
    python tools/mutants.py --page      writes the table of docs/explanation/sabotage.md anew

Each fault is made in a copy of its own; the tree stays as it is. First the copies are shown to be what runs, in the
command `perdure` too, and every named test has to pass on a copy without a fault. Then each test has to fail on its
fault: by an assertion or an error of the program, not by code that cannot be imported, not by a time that ran out.
Ends with 1 when a fault was not noticed.
"""

import argparse
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib.util import cache_from_source
from itertools import repeat
from pathlib import Path

import msgspec

ROOT = Path(__file__).resolve().parent.parent
FAULTS = ROOT / "tools" / "mutants.toml"
PAGE = ROOT / "docs" / "explanation" / "sabotage.md"
COMMAND = Path(sys.executable).parent / "perdure"
COPIED = ("src", "tests", "conftest.py", "pyproject.toml")
AT_ONCE = 2
BOUND_SECONDS = 180.0  # of one run of pytest
PROBE = '__version__ = "9.9.9"\n'
TOLD = re.compile(r"^(FAILED|ERROR|SKIPPED) (?P<what>.*)$", re.MULTILINE)
NOT_A_CHECK = re.compile(
    r"\b(?:SyntaxError|IndentationError|ImportError|ModuleNotFoundError|NameError|TimeoutError|TimeoutExpired)\b"
)
ROW = re.compile(r"^\| `.*\|\n", re.MULTILINE)


class Mutant(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A fault: `old` stands once in `file` and becomes `new`. `breaks` says what is then wrong, `promise` which
    requirements it breaks, `test` which test has to fail, run with `options`."""

    name: str
    breaks: str
    promise: tuple[str, ...]
    file: str
    old: str
    new: str
    test: str
    options: tuple[str, ...] = ()

    def mutated(self, text: str) -> str:
        """The file with the fault. Raises `ValueError` where the place is not there, or not the only one."""
        if text.count(self.old) != 1:
            raise ValueError(f"{self.name}: its text stands {text.count(self.old)} times in {self.file}")
        return text.replace(self.old, self.new)

    @property
    def row(self) -> str:
        """Its line in the page."""
        where = f"`{self.test.split('::')[0]}`<br>`{self.test.split('::', 1)[1]}`"
        return f"| `{self.name}` | {self.breaks} | {', '.join(self.promise)} | {where} |\n"


@dataclass(frozen=True)
class Run:
    """What came of running tests. `code` is None when the time ran out; `told` are the lines of the summary."""

    code: int | None
    told: tuple[tuple[str, str], ...]
    output: str
    seconds: float


def load() -> list[Mutant]:
    """Every fault."""
    return msgspec.convert(tomllib.loads(FAULTS.read_text())["mutant"], list[Mutant])


def page(text: str, mutants: Iterable[Mutant]) -> str:
    """The page with its table written anew."""
    rows = "".join(mutant.row for mutant in mutants)
    first = ROW.search(text)
    if first is None:
        raise ValueError(f"{PAGE.name} has no table")
    return text[: first.start()] + rows + ROW.sub("", text[first.start() :])


# Copies.


def copied(source: Path, folder: Path) -> Path:
    """A copy of what a test needs, with the times of the files, so that compiled modules stay good."""
    folder.mkdir()
    for name in COPIED:
        if (source / name).is_dir():
            shutil.copytree(source / name, folder / name)
        else:
            shutil.copy2(source / name, folder / name)
    return folder


def change(file: Path, text: str) -> None:
    """Put a text into a file of a copy, and make sure that it is read."""
    file.write_text(text)
    if file.suffix == ".py":
        compile(text, str(file), "exec")
        Path(cache_from_source(str(file))).unlink(missing_ok=True)


def environment(copy: Path) -> Mapping[str, str]:
    """Where the copy stands before the installed package, in every process that a test starts."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "PYTHON", "COV_"))}
    return kept | {"PYTHONPATH": str(copy / "src"), "COLUMNS": "250"}


def probe(base: Path, folder: Path) -> None:
    """Show that a copy is what runs: as a module, as a child is started, and as the command. Raises `SystemExit`."""
    copy = copied(base, folder)
    change(copy / "src" / "perdure" / "__init__.py", PROBE)
    asking = "import perdure; print(perdure.__version__)"
    for command in ([COMMAND, "version"], [sys.executable, "-c", asking], [sys.executable, "-P", "-c", asking]):
        asked = subprocess.run(
            command, cwd=copy, env=environment(copy), capture_output=True, text=True, check=False, timeout=60
        )
        if "9.9.9" not in asked.stdout:
            sys.exit(f"{command[0]} does not run the copy: {asked.stdout}{asked.stderr}")
    shutil.rmtree(copy)


# Runs.


def pytest(copy: Path, tests: Sequence[str], options: Sequence[str] = ()) -> Run:
    """Run tests in a copy. Whatever they have started ends with them."""
    command = [sys.executable, "-m", "pytest", "-q", "--no-header", "--tb=short", "--show-capture=no"]
    command += ["-p", "no:cacheprovider", f"--basetemp={copy / 'tmp'}", *options, *tests]
    begin = time.monotonic()
    process = subprocess.Popen(
        command,
        cwd=copy,
        env=environment(copy),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        output, _ = process.communicate(timeout=BOUND_SECONDS)
        code = process.returncode
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        output, _ = process.communicate()
        code = None
    told = tuple((found[1], found["what"]) for found in TOLD.finditer(output))
    return Run(code, told, output, time.monotonic() - begin)


def judged(run: Run) -> tuple[bool, str]:
    """Whether a fault was noticed, and how it showed."""
    failures = [what for kind, what in run.told if kind == "FAILED"]
    if run.code is None:
        return False, f"no end within {BOUND_SECONDS:.0f} s"
    if run.code == 0:
        return False, "the test passed"
    if run.code != 1 or not failures or any(kind == "ERROR" for kind, _ in run.told):
        return False, f"the test did not run to a failure (exit code {run.code})"
    how = failures[0].partition(" - ")[2] or "failed"
    return not NOT_A_CHECK.search(how), how


def tried(mutant: Mutant, base: Path, folder: Path) -> tuple[bool, str, Run]:
    """Make a fault in a copy, and run its test there."""
    copy = copied(base, folder)
    file = copy / mutant.file
    change(file, mutant.mutated(file.read_text()))
    run = pytest(copy, [mutant.test], mutant.options)
    shutil.rmtree(copy, ignore_errors=True)
    return *judged(run), run


def prepare(mutants: Sequence[Mutant], folder: Path) -> Path:
    """The copy without a fault, on which every test passes. Raises `SystemExit`."""
    for mutant in mutants:
        mutant.mutated((ROOT / mutant.file).read_text())
    base = copied(ROOT, folder / "base")
    probe(base, folder / "probe")
    by_options: dict[tuple[str, ...], list[str]] = {}
    for mutant in mutants:
        by_options.setdefault(mutant.options, []).append(mutant.test)
    for options, tests in by_options.items():
        run = pytest(base, sorted(set(tests)), options)
        if run.code != 0 or any(kind == "SKIPPED" for kind, _ in run.told):
            sys.exit(f"{run.output}\nWithout a fault every test has to pass.")
        print(f"without a fault {len(set(tests))} tests pass ({run.seconds:.0f} s)", flush=True)
        shutil.rmtree(base / "tmp", ignore_errors=True)
    return base


def survivors(mutants: Sequence[Mutant], folder: Path) -> int:
    """How many faults were not noticed; prints what became of each."""
    base = prepare(mutants, folder)
    width = max(len(mutant.name) for mutant in mutants)
    lost = 0
    with ThreadPoolExecutor(AT_ONCE) as pool:
        runs = pool.map(tried, mutants, repeat(base), [folder / mutant.name for mutant in mutants])
        for mutant, (noticed, how, run) in zip(mutants, runs, strict=True):
            print(f"{'noticed ' if noticed else 'SURVIVED'}  {mutant.name:{width}}  {run.seconds:5.1f} s  {how}")
            print(f"{'':{width + 21}}by {mutant.test}", flush=True)
            if not noticed:
                lost += 1
                print(run.output)
    print(f"{len(mutants)} faults, {len(mutants) - lost} noticed")
    return lost


def main() -> int:
    """Try faults, or write the page."""
    parser = argparse.ArgumentParser(description="Break the program on purpose: each fault must turn its test red.")
    parser.add_argument("names", nargs="*", metavar="NAME", help="only these faults")
    parser.add_argument("--page", action="store_true", help=f"write the table of {PAGE.name} anew, and try nothing")
    given = parser.parse_args()
    mutants = load()
    if given.page:
        PAGE.write_text(page(PAGE.read_text(), mutants))
        return 0
    if unknown := set(given.names) - {mutant.name for mutant in mutants}:
        parser.error(f"no such fault: {', '.join(sorted(unknown))}")
    chosen = [mutant for mutant in mutants if not given.names or mutant.name in given.names]
    with tempfile.TemporaryDirectory(prefix="mutants-", ignore_cleanup_errors=True) as folder:
        return int(survivors(chosen, Path(folder)) > 0)


if __name__ == "__main__":
    sys.exit(main())
