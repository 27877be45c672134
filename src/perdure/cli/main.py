"""The entry point of the command `perdure`."""

import io
import os
import sys
from pathlib import Path

from perdure.cli.failures import EXIT_DAMAGED, EXIT_FAILED, EXIT_OUTPUT_CLOSED, CommandFailed
from perdure.cli.output import close_output, note
from perdure.cli.signals import exit_code
from perdure.domain.errors import PerdureError, StorageDamaged


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
    if isinstance(sys.stdout, io.TextIOWrapper):  # a character that it lacks must not end the help with a traceback
        sys.stdout.reconfigure(errors="backslashreplace")


def main() -> None:
    """Run the command; trouble that has a name is one line and an exit code.

    The commands are imported here, so that Ctrl-C in that half second ends in order as well.
    """
    _open_standard_streams()
    try:
        from perdure.cli.app import run

        sys.exit(run())
    except PerdureError as refusal:
        note(refusal.message)
        sys.exit(EXIT_DAMAGED if isinstance(refusal, StorageDamaged) else EXIT_FAILED)
    except CommandFailed as failure:
        note(str(failure))
        sys.exit(failure.exit_code)
    except BrokenPipeError:  # whoever read the output has left: `perdure follow ID | head`
        close_output()
        sys.exit(EXIT_OUTPUT_CLOSED)
    except KeyboardInterrupt as interrupt:
        sys.exit(exit_code(interrupt))
