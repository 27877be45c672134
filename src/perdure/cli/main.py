"""The entry point of the command `perdure`."""

import os
import sys
from pathlib import Path

from perdure.domain.errors import PerdureError

EXIT_REFUSED = 1
EXIT_INTERRUPTED = 130


def _open_standard_streams() -> None:
    """Have all three, leading nowhere if need be: the next file or socket would otherwise take their numbers, and
    what is printed would go into it."""
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(descriptor, True)
    os.close(descriptor)
    for name in ("stdin", "stdout", "stderr"):
        if getattr(sys, name) is None:
            stream = Path(os.devnull).open("r" if name == "stdin" else "w")  # noqa: SIM115 -- for the whole process
            setattr(sys, name, stream)


def main() -> None:
    """Run the command; trouble that has a name is one line and exit code 1.

    The commands are imported here, so that Ctrl-C in that half second ends in order as well.
    """
    _open_standard_streams()
    try:
        from perdure.cli.app import app

        app()
    except PerdureError as refusal:
        print(f"perdure: {refusal.message}", file=sys.stderr)
        sys.exit(EXIT_REFUSED)
    except KeyboardInterrupt:
        sys.exit(EXIT_INTERRUPTED)
