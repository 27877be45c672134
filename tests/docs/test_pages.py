"""The pages of the project: paths, links, commands and examples that hold."""

import ast
import json
import os
import re
import subprocess
import sys
from pathlib import Path

from tests.docs.repository import ROOT, SOURCE, codes, tracked
from tests.system.server import Server, text_of

PAGES = [path for path in tracked() if path.suffix == ".md"]
README = (ROOT / "README.md").read_text()
ARCHITECTURE = (ROOT / "ARCHITECTURE.md").read_text()
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
FENCED = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
TAIL_CHARS = 100  # of the story: they come after the twelfth event
DECISION = re.compile(r"\d{4}-[a-z0-9-]+\.md")


def python_blocks(text: str) -> list[str]:
    """The Python examples of a page."""
    return [block for language, block in FENCED.findall(text) if language == "python"]


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings."""
    plain = (re.sub(r"[^\w\- ]", "", heading.lower()) for heading in HEADING.findall(page.read_text()))
    return {heading.replace(" ", "-") for heading in plain}


def test_every_path_of_the_architecture_exists() -> None:
    """Files and folders."""
    paths = [code for code in codes(ARCHITECTURE) if "/" in code]
    assert len(paths) > 20
    assert [path for path in paths if not (ROOT / path).exists()] == []


def test_the_architecture_names_every_part() -> None:
    """Everything that stands directly under src/perdure."""
    parts = [path for path in SOURCE.iterdir() if path.name not in ("__init__.py", "__pycache__")]
    assert len(parts) > 5
    assert [path.name for path in parts if f"src/perdure/{path.name}" not in ARCHITECTURE] == []


def test_links_lead_somewhere() -> None:
    """Those within the project: to a file that is there, and to a heading that it has."""
    broken: list[str] = []
    for page in PAGES:
        for target in (target for target in LINK.findall(page.read_text()) if "://" not in target):
            name, _, anchor = target.partition("#")
            found = page.parent / name if name else page
            if not found.exists() or (anchor and anchor not in anchors(found)):
                broken.append(f"{page.relative_to(ROOT)}: {target}")
    assert broken == []


def test_the_python_in_pages_is_python() -> None:
    """Every example can be compiled."""
    examples = [(page, block) for page in PAGES for block in python_blocks(page.read_text())]
    assert examples
    for page, block in examples:
        ast.parse(block, str(page))


def test_the_make_targets_of_the_readme_exist() -> None:
    """Each command of the menu that it names."""
    menu = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    text = "\n".join([*(block for _, block in FENCED.findall(README)), *codes(FENCED.sub("", README))])
    named = set(re.findall(r"\bmake ([a-z-]+)", text))
    assert {"run", "test"} <= named
    assert named <= menu


def test_a_decision_has_its_parts() -> None:
    """What, instead of what, and how we would notice; numbered without a gap."""
    pages = sorted((ROOT / "docs" / "decisions").iterdir())
    assert [page.name[:4] for page in pages] == [f"{number:04}" for number in range(1, len(pages) + 1)]
    parts = ["Context", "Decision", "Alternatives", "We would notice that it was wrong"]
    for page in pages:
        assert DECISION.fullmatch(page.name)
        title, *headings = HEADING.findall(page.read_text())
        assert title.startswith(f"{int(page.name[:4])}. ")
        assert headings == parts, page.name


def test_the_examples_of_the_readme_run(tmp_path: Path, tiny_model: Path) -> None:
    """Read on once more: the whole story, and nothing twice. Then the tools, by the same client."""
    story, tools = python_blocks(README)
    with Server(tmp_path / "perdure", tiny_model).start() as server:
        told = ran(f"{story}\nread_on()\n", server, tmp_path)
        (task,) = server.get("/v1/tasks?limit=1")["data"]
        assert task["background"]
        text = text_of(server.get(f"/v1/responses/{task['response_id']}"))
        assert len(text) > TAIL_CHARS
        assert told.endswith(text)
        client = story[: story.index("# Ask and wait.")]
        city, call = ran(client + tools, server, tmp_path).split("\n")[:2]
        assert city.startswith('{"city":')
        assert json.loads(call.removeprefix("get_weather "))["city"] is not None
        assert server.terminate() == 0


def ran(example: str, server: Server, home: Path) -> str:
    """What an example prints, as it stands but for the address and the model."""
    example = example.replace("http://127.0.0.1:8383", server.url)
    example = example.replace("smollm2-135m-instruct", server.model_name)
    found = subprocess.run(
        [sys.executable, "-c", example],
        capture_output=True,
        timeout=60,
        check=False,
        env=os.environ | dict.fromkeys(("HOME", "XDG_DATA_HOME"), str(home)) | {"PYTHONUTF8": "1"},
    )
    assert found.returncode == 0, found.stderr.decode()
    return found.stdout.decode()
