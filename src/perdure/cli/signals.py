"""SIGTERM and SIGHUP end a command in the same order as Ctrl-C does."""

import signal
from types import FrameType

from perdure.cli.failures import EXIT_INTERRUPTED

_NAMES = ("SIGTERM", "SIGHUP")  # the second one is not to be had everywhere


class Stopped(KeyboardInterrupt):
    """A signal asks the command to end."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number


def listen() -> None:
    """Raise `Stopped` when one comes; one that the caller has chosen to ignore, as `nohup` does, stays ignored."""
    for name in _NAMES:
        number = getattr(signal, name, None)
        if number is not None and signal.getsignal(number) == signal.SIG_DFL:
            signal.signal(number, _stop)


def exit_code(interrupt: KeyboardInterrupt) -> int:
    """What a shell shows for a program that the signal ended."""
    return 128 + interrupt.number if isinstance(interrupt, Stopped) else EXIT_INTERRUPTED


def _stop(number: int, _frame: FrameType | None) -> None:
    raise Stopped(number)
