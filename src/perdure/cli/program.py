"""The name under which the command was called, for usage and for hints that one can paste."""

import os
import shlex
import sys
from pathlib import Path

NAME = "perdure"


def program() -> str:
    """`perdure` where the shell finds this very file under that name, else the path as it was typed."""
    called = Path(sys.argv[0])
    if called.stem != NAME or called.name == sys.argv[0] or _found(called.name) == called.resolve():
        return NAME
    return shlex.quote(sys.argv[0])


def _found(name: str) -> Path | None:
    """The file that the shell would run."""
    for folder in os.get_exec_path():
        if os.access(path := Path(folder, name), os.X_OK):
            return path.resolve()
    return None
