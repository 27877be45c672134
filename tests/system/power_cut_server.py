"""The program that loses its power: the `perdure` command on a disk whose cache is lost with the process.

    python -P power_cut_server.py PLAN perdure serve ...

PLAN is a JSON object: where to `tally`, the `seed` of the disk's chances, the operation to `cut_at` or null, the
`log_pages` at which the log is moved into the file, and the writer's `synchronous`, or null for the command's own.
Nothing else of the command is changed.
"""

import json
import os
import random
import stat
import sys
from pathlib import Path
from typing import Any

import apsw

from perdure.cli.main import main
from perdure.storage.sqlite import connection, log
from perdure.testing.volatile_disk import Tally, VolatileDisk

SYNC_SECONDS = 0.003
"""About what a disk takes. It is also the time in which a cut finds something to lose."""
LEVELS = {"off": 0, "normal": 1}


def plug_in(plan: dict[str, Any]) -> None:
    """Put every database of this process on the disk."""
    tally = Tally(Path(plan["tally"]))
    chance = random.Random(plan["seed"])
    disk = VolatileDisk("volatile", chance, tally, sync_seconds=SYNC_SECONDS, cut_at=plan["cut_at"])
    apsw.set_default_vfs("volatile")
    fsync = os.fsync

    def watched(descriptor: int) -> None:
        fsync(descriptor)
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            disk.sync_names()

    os.fsync = watched
    if level := plan["synchronous"]:
        connection.WRITER = tuple(
            ("synchronous", level, LEVELS[level]) if each[0] == "synchronous" else each for each in connection.WRITER
        )
    log.LOG_MAX_PAGES = plan["log_pages"]


if __name__ == "__main__":
    plug_in(json.loads(sys.argv[1]))
    sys.argv = sys.argv[2:]
    main()
