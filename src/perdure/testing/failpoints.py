"""Failpoints without a line of them in the program: every line that it executes is one.

`Failpoints` is a trace function. It gives each step of the chosen modules a place, counts how often each place is
come to, and kills the process where it is told to, as an accident would: nothing is flushed, nothing is closed.

A place is `engine/submit.py:62`, come to before line 62 is executed; or `engine/submit.py:40 leaves`, come to when
the function that begins in line 40 returns, raises, or lets others go on (`await`).
"""

import os
import signal
import sys
import threading
from collections import Counter
from collections.abc import Callable, Collection
from pathlib import Path
from types import FrameType
from typing import Any

import perdure

SOURCE = Path(perdure.__file__).parent
LEAVES = " leaves"
Tracer = Callable[[FrameType, str, Any], Any]
_Key = tuple[str, int, bool]


class Failpoints:
    """Watches `modules` (paths below the package), and kills the process when `kill_at` is come to the `nth` time.

    Comings at which `when` says no do not count.
    """

    def __init__(
        self,
        modules: Collection[str],
        kill_at: str | None = None,
        nth: int = 1,
        when: Callable[[FrameType], bool] = lambda _: True,
    ) -> None:
        self._names = {str(SOURCE / module): module for module in modules}
        self._hits: dict[_Key, int] = {}
        self._kill_at = None if kill_at is None else _key(kill_at)
        self._left = nth
        self._when = when
        self._tracer = self._step  # made once: it is handed over at every step

    def install(self) -> None:
        """Watch this thread, and every one that is started from now on."""
        threading.settrace(self._enter)
        sys.settrace(self._enter)

    @property
    def hits(self) -> Counter[str]:
        """How often each place was come to."""
        return Counter(
            {
                f"{self._names[file]}:{line}{LEAVES if leaves else ''}": count
                for (file, line, leaves), count in self._hits.items()
            }
        )

    def _enter(self, frame: FrameType, _event: str, _argument: Any) -> Tracer | None:
        return self._tracer if frame.f_code.co_filename in self._names else None

    def _step(self, frame: FrameType, event: str, _argument: Any) -> Tracer:
        if event == "line":
            self._come_to((frame.f_code.co_filename, frame.f_lineno, False), frame)
        elif event == "return":
            self._come_to((frame.f_code.co_filename, frame.f_code.co_firstlineno, True), frame)
        return self._tracer

    def _come_to(self, key: _Key, frame: FrameType) -> None:
        self._hits[key] = self._hits.get(key, 0) + 1
        if key == self._kill_at and self._when(frame):
            self._left -= 1
            if not self._left:
                os.kill(os.getpid(), signal.SIGKILL)


def place_of(module: str, text: str) -> str:
    """The place of the one line of a module that holds a text; a program that has changed is told here."""
    lines = (SOURCE / module).read_text().splitlines()
    (found,) = [number for number, line in enumerate(lines, 1) if text in line]
    return f"{module}:{found}"


def _key(place: str) -> _Key:
    module, line = place.removesuffix(LEAVES).split(":")
    return str(SOURCE / module), int(line), place.endswith(LEAVES)
