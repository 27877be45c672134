"""What a command writes: its result to standard output, everything else to standard error, one line each."""

import os
import sys
from contextlib import suppress

from perdure.cli.failures import OutputFailed

_CONTROLS = {code: f"\\x{code:02x}" for code in (*range(0x20), *range(0x7F, 0xA0))}
_IN_TEXT = {code: shown for code, shown in _CONTROLS.items() if chr(code) not in "\n\t"}
_IN_JSON = {code: f"\\u{code:04x}" for code in range(0x7F, 0xA0)}


def visible(line: str) -> str:
    """A line without control characters: what comes from a model or a client must not steer the terminal."""
    return line.translate(_CONTROLS)


def counted(number: int, noun: str) -> str:
    """So many of them."""
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


def place(before: int) -> str:
    """A place in the queue, as people count; the service tells how many are before it."""
    number = before + 1
    ending = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}" if before else "next"


class Output:
    """Standard output, flushed after every piece, and notes on standard error beside it."""

    def __init__(self) -> None:
        self.terminal = sys.stdout.isatty()
        self._at_line_start = True

    def text(self, piece: str) -> None:
        """Write text; to a terminal without control characters other than line ends and tabs."""
        if piece:
            self._at_line_start = piece.endswith("\n")
            shown = piece.translate(_IN_TEXT) if self.terminal else piece
            # A terminal that cannot show a character must not end the text.
            self._write(shown.encode(sys.stdout.encoding or "utf-8", "backslashreplace"))

    def fresh_line(self) -> None:
        """End the line that was begun, if one was."""
        if not self._at_line_start:
            self.text("\n")

    def json(self, line: bytes) -> None:
        """Write one JSON value as a line, in the bytes it came in; to a terminal without control characters.

        JSON escapes most of them itself. It leaves those from 0x7f on, some of which begin commands to a terminal.
        """
        self._write((line.decode().translate(_IN_JSON).encode() if self.terminal else line) + b"\n")

    def note(self, text: str) -> None:
        """Tell something beside the result."""
        if self.terminal:
            with suppress(OutputFailed, BrokenPipeError):  # it has been closed
                self.fresh_line()
        note(text)

    def _write(self, piece: bytes) -> None:
        try:
            sys.stdout.buffer.write(piece)
            sys.stdout.buffer.flush()
        except BrokenPipeError:  # whoever read it has left
            raise
        except OSError as error:
            close_output()
            raise OutputFailed(error.strerror or str(error)) from None


def note(text: str) -> None:
    """A line on standard error."""
    with suppress(OSError):  # nobody listens
        print(f"perdure: {visible(text)}", file=sys.stderr, flush=True)


def close_output() -> None:
    """Let standard output lead nowhere: what is left in its buffer would fail once more when the process ends."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.close(nowhere)
