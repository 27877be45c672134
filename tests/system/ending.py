"""The command `perdure`, telling what threads are left at its end: `ending.py NOTE PLACE perdure ...`.

PLACE is one of `hanging`'s, or `nowhere`.
"""

import json
import sys
import threading
from pathlib import Path

from perdure.cli.main import main
from tests.system.hanging import PLACES


def left() -> list[str]:
    """The threads that a process would wait for before it ends."""
    return [each.name for each in threading.enumerate() if each is not threading.main_thread() and not each.daemon]


if __name__ == "__main__":
    note, place = Path(sys.argv[1]), sys.argv[2]
    if place in PLACES:
        PLACES[place](note.parent)
    sys.argv[:] = sys.argv[3:]
    try:
        main()
    finally:
        note.write_text(json.dumps(left()))
