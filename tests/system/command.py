"""The command `perdure` in the hands of a user: at a pipe or at a terminal, read while it runs."""

import os
import pty
import select
import shlex
import signal
import subprocess
import termios
from pathlib import Path
from typing import IO, Any, Self

from tests.system.server import COMMAND, Server, until

WAIT_SECONDS = 60.0
CALLED = shlex.quote(str(COMMAND))  # as hints name it, where the shell would not find it


def ran(
    *words: str | bytes, given: bytes = b"", stdout: IO[bytes] | int = subprocess.PIPE, **env: str
) -> subprocess.CompletedProcess[bytes]:
    """A command that has ended."""
    return subprocess.run(
        [COMMAND, *words],
        input=given,
        stdout=stdout,
        stderr=subprocess.PIPE,
        timeout=WAIT_SECONDS,
        check=False,
        env=_surroundings() | env,
    )


def on(server: Server, *words: str, **more: Any) -> subprocess.CompletedProcess[bytes]:
    """A command on a server's folder that has ended."""
    return ran(*words, "--data", str(server.data), **more)


def _surroundings() -> dict[str, str]:
    """The environment, without what would hide that a command does not send off what it writes, and with a search
    path on which it is not."""
    found = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    folders = found.get("PATH", "").split(os.pathsep)
    return found | {"PATH": os.pathsep.join(each for each in folders if Path(each) != COMMAND.parent)}


class Command:
    """A command on a server's folder that runs."""

    def __init__(self, server: Server, *words: str, terminal: bool = False) -> None:
        self.errors: Path = server.data.parent / f"{words[0]}.stderr"
        self._read, write = pty.openpty() if terminal else os.pipe()
        if terminal:
            settings = termios.tcgetattr(write)
            settings[1] &= ~termios.OPOST  # what is written arrives as it was written
            termios.tcsetattr(write, termios.TCSANOW, settings)
        if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as in a job of a script, which passes it on
            signal.signal(signal.SIGINT, signal.default_int_handler)
        with self.errors.open("wb") as stderr:
            self.process = subprocess.Popen(
                [COMMAND, *words, "--data", str(server.data)],
                stdin=subprocess.DEVNULL,
                stdout=write,
                stderr=stderr,
                env=_surroundings(),
            )
        os.close(write)
        self.output = b""

    def reads(self, size: int) -> bytes:
        """Everything that it has written, once that is so much."""
        while len(self.output) < size:
            assert self._take(), (self.output, self.said())
        return self.output

    def says(self, text: str) -> None:
        """Wait until it has said that on standard error."""
        until(lambda: text in self.said() or None, f"{text!r} in what the command says", WAIT_SECONDS)

    def said(self) -> str:
        """What it has said on standard error."""
        return self.errors.read_text()

    def interrupt(self, number: int = signal.SIGINT) -> None:
        """Ctrl-C, or another signal."""
        self.process.send_signal(number)

    def stops_reading(self) -> None:
        """Close the side of the pipe that it is read from."""
        if self._read >= 0:
            os.close(self._read)
            self._read = -1

    def ended(self) -> int:
        """The exit code, once it has written everything."""
        while self._take():
            pass
        return self.process.wait(WAIT_SECONDS)

    def _take(self) -> bool:
        ready, _, _ = select.select([self._read], [], [], WAIT_SECONDS)
        assert ready, self.said()
        try:
            piece = os.read(self._read, 65536)
        except OSError:  # a terminal whose other side is closed
            piece = b""
        self.output += piece
        return bool(piece)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.stops_reading()
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait(WAIT_SECONDS)
