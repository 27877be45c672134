"""What the child processes have in common: their place under the parent, their pipes, their end.

A child has one task and no state worth keeping, so it leaves when its parent closes the pipe or dies: at once, where
a thread listens or the kernel tells.
"""

import ctypes
import os
import queue
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from perdure.runtime.llamacpp import wire

_PR_SET_PDEATHSIG = 1


class Pipes:
    """The pipes to the parent. Makes the process a child that cannot outlive it."""

    def __init__(self) -> None:
        _stay_below_parent()
        self._orders = os.fdopen(os.dup(0), "rb")
        self._answers = _take_standard_output()

    def receive(self) -> wire.Order:
        """The next order; waits for it. The process ends with the pipe."""
        return _next(self._orders)

    def send(self, answer: wire.Answer) -> None:
        """Tell the parent. Where nobody listens any more, the process ends."""
        try:
            wire.write_answer(self._answers, answer)
        except OSError:
            os._exit(0)


class Channel(Pipes):
    """Pipes that a thread of their own reads while the process is at work: that can be called off, and ends with the
    pipe at once."""

    def __init__(self) -> None:
        super().__init__()
        self._inbox: queue.SimpleQueue[wire.Order] = queue.SimpleQueue()
        threading.Thread(target=_listen, args=(self._orders, self._inbox.put), daemon=True).start()

    def receive(self) -> wire.Order:
        """The next order; waits for it."""
        return self._inbox.get()

    def receive_now(self) -> wire.Order | None:
        """The next order if there is one."""
        try:
            return self._inbox.get_nowait()
        except queue.Empty:
            return None


def run(main: Callable[[], None]) -> None:
    """Run a child's main function. If it fails, say why and end without waiting for the thread that reads."""
    with failing_whole():
        main()
    os._exit(1)


@contextmanager
def failing_whole() -> Generator[None]:
    """What fails in here, in whichever thread, is the end of the process, which says why."""
    try:
        yield
    except BaseException:  # noqa: BLE001 - whatever it is, it ends here
        traceback.print_exc()
        os._exit(1)


def _stay_below_parent() -> None:
    """Leave signals to the parent, and let the kernel end this process with it where it can.

    A stop is often sent to all processes of a service at once; a child that obeyed it would look like a crash.

    The kernel goes by the thread that started the process: the parent's event loop, which lives as long as it does.
    """
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    end_with_parent()


def end_with_parent() -> None:
    """Have the kernel end this process with the thread that started it, where it can."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _take_standard_output() -> BinaryIO:
    """The pipe behind standard output, which from here on leads to standard error: libraries print as they like."""
    answers = os.dup(1)
    os.dup2(2, 1)
    return os.fdopen(answers, "wb")


def _listen(orders: BinaryIO, put: Callable[[wire.Order], None]) -> None:
    """Pass orders on until the pipe ends, then end the process: a decode call under way cannot delay that."""
    while True:
        put(_next(orders))


def _next(orders: BinaryIO) -> wire.Order:
    try:
        order = wire.read_order(orders)
    except (wire.Nonsense, OSError) as error:
        sys.stderr.write(f"perdure: {error}\n")
        os._exit(2)
    if order is None:
        os._exit(0)
    return order


def library_path(order: wire.OpenTokenizer | wire.OpenEngine) -> Path | None:
    """The library that an opening names."""
    return Path(os.fsdecode(order.library)) if order.library else None
