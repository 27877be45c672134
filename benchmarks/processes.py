"""The processes of a benchmark: helpers that are asked over pipes, and what a process has used of the processor."""

import json
import subprocess
import sys
from contextlib import suppress
from typing import Any, Self

import psutil

LEAVE_SECONDS = 10.0


class Helper:
    """`python -m benchmarks.MODULE` in a process of its own: one JSON line asks, one JSON line answers.

    Its first line, `hello`, says that it is ready. `python` is the interpreter of another environment, if need be.
    """

    def __init__(self, module: str, *arguments: str, python: str = sys.executable) -> None:
        self.process = subprocess.Popen(
            [python, "-m", f"benchmarks.{module}", *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.hello = self._answer()

    def ask(self, **question: Any) -> Any:
        """Ask, and wait for the answer."""
        self.tell(**question)
        return self._answer()

    def tell(self, **what: Any) -> None:
        """Say something that needs no answer."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(what) + "\n")
        self.process.stdin.flush()

    def _answer(self) -> Any:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self.process.args!r} ended with {self.process.wait()}")
        return json.loads(line)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        with suppress(BrokenPipeError):
            self.process.stdin.close()
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(LEAVE_SECONDS)
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()


def say(answer: Any) -> None:
    """A helper's side: one answer."""
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


def heard() -> dict[str, Any] | None:
    """A helper's side: the next question, or None when there is no more."""
    line = sys.stdin.readline()
    return json.loads(line) if line else None


def cpu_seconds(process: psutil.Process | int) -> float:
    """What a process has used so far, user and system."""
    found = process if isinstance(process, psutil.Process) else psutil.Process(process)
    times = found.cpu_times()
    return times.user + times.system
