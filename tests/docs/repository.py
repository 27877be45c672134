"""The files of this project, and the parts of a document that tests look at."""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "perdure"
REFERENCE = ROOT / "docs" / "reference"

_CODE = re.compile(r"`([^`]+)`")


def tracked() -> list[Path]:
    """Every file that is kept in git, or would be with the next commit."""
    command = ["git", "-C", str(ROOT), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split("\0")
    return sorted(path for name in set(names) if name and (path := ROOT / name).is_file())


def modules() -> Iterator[tuple[Path, ast.Module]]:
    """Every module of the source, parsed."""
    for path in sorted(SOURCE.rglob("*.py")):
        yield path, ast.parse(path.read_text(), str(path))


def tool(name: str) -> ModuleType:
    """A program of tools/ as a module."""
    spec = spec_from_file_location(name, ROOT / "tools" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    sys.modules[name] = module  # where the types of its fields are looked for
    spec.loader.exec_module(module)
    return module


def section(page: Path, title: str) -> str:
    """What stands under a heading, up to the next one of any level."""
    parts = re.split(r"^#+ (.+)$", page.read_text(), flags=re.MULTILINE)
    found = dict(zip(parts[1::2], parts[2::2], strict=True))
    assert title in found, f"{page.name} has no heading {title!r}"
    return found[title]


def rows(text: str) -> dict[str, list[str]]:
    """The rows of the tables in a text, by the code in their first cell; each must be there once."""
    found: dict[str, list[str]] = {}
    for line in text.splitlines():
        if line.startswith("| `"):
            first, *cells = (cell.strip() for cell in line.strip("|").split("|"))
            name = first.strip("`")
            assert name not in found, f"{name} stands there twice"
            found[name] = cells
    return found


def codes(text: str) -> list[str]:
    """What stands in backquotes."""
    return _CODE.findall(text)
