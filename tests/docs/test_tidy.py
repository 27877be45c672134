"""The repository keeps itself tidy."""

import ast
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

from tests.docs.repository import ROOT, modules, tracked

FUNCTION_MAX_LINES = 40
FILE_MAX_LINES = 400

LEFT_FOR_LATER = re.compile(r"\b(?:TO" + r"DO|FIX" + r"ME|X" + r"XX)\b")
# Each in two parts, so that this file is no hit.
REGISTRIES = re.compile(
    r"https?://[\w.-]*(?:py" + r"pi\.org|python" + r"hosted\.org|npm" + r"js\.org|crates" + r"\.io|"
    r"golang" + r"\.org|anaconda" + r"\.org|art" + r"ifactory|ne" + r"xus)",
    re.IGNORECASE,
)
SILENCED = re.compile(r"#\s*(?:noqa|type:\s*ignore|pyright:\s*ignore|pragma:\s*no cover)")
WITH_REASON = re.compile(r"#\s*(?:noqa: [A-Z0-9, ]+|(?:pyright|type): ignore\[[\w, -]+\])\s*(?:--?|#)\s+\w.{5,}")

TEXTS = [path for path in tracked() if path.suffix not in (".png", ".ico", ".gguf", ".woff2", ".gz")]
PYTHON = [path for path in TEXTS if path.suffix == ".py"]


def name(path: Path) -> str:
    """A path as people say it."""
    return path.relative_to(ROOT).as_posix()


def comments(path: Path) -> Iterator[tuple[int, str]]:
    """The comments of a module, with their lines."""
    with path.open("rb") as file:
        for token in tokenize.tokenize(file.readline):
            if token.type == tokenize.COMMENT:
                yield token.start[0], token.string


def found(pattern: re.Pattern[str], paths: list[Path]) -> list[str]:
    """Where something stands."""
    return [
        f"{name(path)}:{number}: {line.strip()}"
        for path in paths
        for number, line in enumerate(path.read_text("utf-8").splitlines(), 1)
        if pattern.search(line)
    ]


def test_functions_are_short() -> None:
    """What does not fit on a screen is two functions."""
    long: list[str] = []
    for path, module in modules():
        for node in ast.walk(module):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                lines = (node.end_lineno or node.lineno) - node.lineno + 1
                if lines > FUNCTION_MAX_LINES:
                    long.append(f"{name(path)}: {node.name} has {lines} lines")
    assert long == []


def test_files_are_short() -> None:
    """What is longer than this is about two things."""
    lengths = {name(path): len(path.read_text().splitlines()) for path, _ in modules()}
    assert {path: lines for path, lines in lengths.items() if lines > FILE_MAX_LINES} == {}


def test_nothing_is_left_for_later() -> None:
    """What is not done is not promised in a comment."""
    assert found(LEFT_FOR_LATER, TEXTS) == []


def test_no_file_names_a_registry() -> None:
    """Where packages come from is the business of whoever installs them."""
    assert found(REGISTRIES, TEXTS) == []


def test_a_silenced_check_has_its_reason() -> None:
    """On the same line, for whoever wants to take it away."""
    bare = [
        f"{name(path)}:{line}: {text}"
        for path in PYTHON
        for line, text in comments(path)
        if SILENCED.search(text) and not WITH_REASON.search(text)
    ]
    assert bare == []
