"""What is written, at a terminal and at a pipe."""

import json
import os
import pty
import subprocess
import sys

EVERY = "".join(map(chr, range(0x100)))
WRITES = """
import json, sys
from perdure.cli.output import Output, note
every = "".join(map(chr, range(256)))
output = Output()
output.text(every)
output.fresh_line()
output.json(json.dumps(every, ensure_ascii=False).encode())
output.text("begun")
output.note(every)
"""


def written(terminal: bool) -> tuple[list[str], str]:
    """The lines of the output, and what was said beside it."""
    read, write = pty.openpty() if terminal else os.pipe()
    program = [sys.executable, "-c", WRITES]
    ran = subprocess.run(
        program, stdout=write, stderr=subprocess.PIPE, check=True, timeout=60, env=os.environ | {"PYTHONUTF8": "1"}
    )
    os.close(write)
    with os.fdopen(read, "rb") as output:
        return output.read1(65536).decode().replace("\r\n", "\n").split("\n"), ran.stderr.decode()


def test_a_terminal_gets_no_control_characters() -> None:
    """But line ends and tabs in a text; JSON keeps its meaning. A note has a line of its own."""
    first, second, value, begun, rest = written(terminal=True)[0]
    assert [char for char in first + second if not char.isprintable()] == ["\t", "\xa0", "\xad"]
    assert first.endswith("\\x08\t")
    assert second.startswith("\\x0b\\x0c\\x0d")
    assert "\\x1b" in second
    assert "\\x9b" in second
    assert [char for char in value if not char.isprintable()] == ["\xa0", "\xad"]
    assert json.loads(value) == EVERY
    assert (begun, rest) == ("begun", "")


def test_a_pipe_gets_what_was_written() -> None:
    """Every character, and no line end for the sake of a note."""
    text, value, begun = "\n".join(written(terminal=False)[0]).rsplit("\n", 2)
    assert text == EVERY
    assert json.loads(value) == EVERY
    assert begun == "begun"


def test_a_note_is_one_line_without_control_characters() -> None:
    """Wherever the output goes: it may hold what a client has sent."""
    for terminal in (True, False):
        said = written(terminal)[1]
        assert said.startswith("perdure: \\x00\\x01")
        assert [char for char in said.removesuffix("\n") if ord(char) < 0x20 or 0x7F <= ord(char) < 0xA0] == []
