"""The program that dies at one line: the `perdure` command, unchanged, under a trace.

    python -P doomed_server.py PLAN perdure serve ...

PLAN is a JSON object: the `module` and a `text` of the line before which the process is killed, how often it has to
come there (`nth`), and `when`: local names and the texts of their values; other comings do not count.
"""

import json
import sys
from types import FrameType
from typing import Any

from perdure.cli.main import main
from perdure.testing.failpoints import Failpoints, place_of


def doom(plan: dict[str, Any]) -> None:
    """Watch for the line."""

    def due(frame: FrameType) -> bool:
        return all(str(frame.f_locals.get(name)) == value for name, value in plan["when"].items())

    place = place_of(plan["module"], plan["text"])
    Failpoints([plan["module"]], place, plan["nth"], due).install()


if __name__ == "__main__":
    doom(json.loads(sys.argv[1]))
    sys.argv = sys.argv[2:]
    main()
