"""A child process as its parent sees it: a pipe for orders, a pipe of answers, and an end that is always awaited."""

import asyncio
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process

from perdure.runtime.llamacpp import wire

LEAVE_SECONDS = 2.0  # how long a child that was asked to leave may take before it is killed


class Child:
    """One process, started with `spawn`. Whoever started it awaits `end`, whatever happens."""

    def __init__(self, process: Process) -> None:
        self._process = process

    @classmethod
    async def spawn(cls, module: str) -> "Child":
        """Start `python -m module`. Raises `OSError` where no process can be started."""
        # -P: a file of the current directory must not stand in for a library.
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-P",
            "-m",
            module,
            stdin=PIPE,
            stdout=PIPE,
            env={**os.environ, **_ENVIRONMENT},
            start_new_session=True,  # Ctrl-C at a terminal is the service's to hear; it decides about its children
        )
        return cls(process)

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    def send(self, order: wire.Order) -> None:
        """Pass an order on; never waits. To a process that is gone it says nothing: the end of its answers tells."""
        assert self._process.stdin is not None  # noqa: S101 - PIPE was asked for
        frame = wire.pack(order)
        if self._process.returncode is None and not self._process.stdin.is_closing():
            self._process.stdin.write(frame)

    async def answer(self) -> wire.Answer | None:
        """The next answer; `None` when the process has closed its pipe. Raises `Nonsense`."""
        assert self._process.stdout is not None  # noqa: S101 - PIPE was asked for
        try:
            header = await self._process.stdout.readexactly(wire.HEADER.size)
            body = await self._process.stdout.readexactly(wire.body_length(header))
        except (asyncio.IncompleteReadError, ConnectionError):
            return None
        return wire.answer(body)

    def leave(self) -> None:
        """Ask the process to leave: it does when its orders end."""
        assert self._process.stdin is not None  # noqa: S101 - PIPE was asked for
        self._process.stdin.close()

    def kill(self) -> None:
        """End the process at once."""
        if self._process.returncode is None:
            self._process.kill()

    async def end(self) -> str:
        """Ask the process to leave, kill it if it does not, and say how it ended."""
        assert self._process.stdout is not None  # noqa: S101 - PIPE was asked for
        self.leave()
        try:
            async with asyncio.timeout(LEAVE_SECONDS):
                code = await self._process.wait()
        except TimeoutError:
            self.kill()
            code = await self._process.wait()
        while await self._process.stdout.read(1 << 16):
            """Nobody wants the rest, but only an empty pipe is closed."""
        return _describe(code)


# llama.cpp would attach a debugger to itself when it aborts, which takes seconds and holds the pipes open.
_ENVIRONMENT = {"GGML_NO_BACKTRACE": "1"}


def _describe(code: int) -> str:
    if code >= 0:
        return f"exit status {code}"
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"
