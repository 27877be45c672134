"""From token bytes to text, in pieces that end where a character ends.

A piece ends when no byte waits for the rest of its character. The decoder is then as empty as at the start, so a text
that goes on after any piece decodes as if it had never been interrupted.
"""

import codecs
from collections.abc import Callable
from typing import NamedTuple

_Decoder = codecs.getincrementaldecoder("utf-8")


class Run(NamedTuple):
    """Text, and the token ids it was made of."""

    text: str
    tokens: tuple[int, ...]


class Pieces:
    """Gathers drawn tokens into pieces. `bytes_of` gives a token's bytes; control tokens have none."""

    def __init__(self, bytes_of: Callable[[int], bytes]) -> None:
        self._bytes_of = bytes_of
        self._decoder = _Decoder("replace")
        self._text = ""
        self._tokens: list[int] = []

    def push(self, token: int) -> Run | None:
        """Take the next token; the piece that it completes, if it does.

        Bytes that can no longer become a character show as U+FFFD, as Python's decoder does with `errors="replace"`.
        """
        self._tokens.append(token)
        self._text += self._decoder.decode(self._bytes_of(token))
        unfinished, _ = self._decoder.getstate()
        return None if unfinished or not self._text else self._take()

    def finish(self, last: int | None = None) -> Run:
        """What is left when the text ends, `last` being its end mark; an unfinished character shows as U+FFFD."""
        if last is not None:
            self._tokens.append(last)
        self._text += self._decoder.decode(b"", final=True)
        return self._take()

    def _take(self) -> Run:
        run = Run(self._text, tuple(self._tokens))
        self._text, self._tokens = "", []
        return run
