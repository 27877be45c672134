"""Quarantine: a text that was under way when the model's process died is drawn alone, until it has got further.

A process that dies takes every text of its batch along, and nobody can tell which of them it died of. Were they drawn
together again, one bad text would count its crashes on all of them. Alone, it counts them on itself, and the others
are cleared by their next token.
"""

import asyncio
from collections.abc import Iterable


class Quarantine:
    """Who may draw beside whom, of the texts of one model.

    A run is known by its hint, which is set when it is worth while to ask again. Suspects come before others, in the
    order in which they asked first. While one waits, the texts under way make room, where they go on as if nothing
    had been; one that would become approximate is not interrupted, but waited for.
    """

    def __init__(self) -> None:
        self._line: dict[asyncio.Event, bool] = {}
        self._inside: dict[asyncio.Event, bool] = {}
        self._alone: asyncio.Event | None = None

    def enter(self, hint: asyncio.Event, *, suspect: bool, exact: bool) -> bool:
        """Whether the run may draw now. If not, it is in the line, and its hint is set later."""
        self._line[hint] = suspect
        first = next((each for each, suspected in self._line.items() if suspected), None)
        free = (not self._inside and first is hint) if suspect else (first is None and self._alone is None)
        if free:
            del self._line[hint]
            self._inside[hint] = exact
            self._alone = hint if suspect else None
        elif suspect and self._alone is None:
            self._wake(each for each, interruptible in self._inside.items() if interruptible)
        return free

    def clear(self, hint: asyncio.Event) -> None:
        """The run has got further: it is no suspect any more."""
        if self._alone is hint:
            self._alone = None
            self._wake(self._line)

    def leave(self, hint: asyncio.Event) -> None:
        """The run does not draw and does not wait. May be repeated."""
        self.clear(hint)
        if self._inside.pop(hint, None) is not None or self._line.pop(hint, None) is not None:
            self._wake(self._line)

    def _wake(self, hints: Iterable[asyncio.Event]) -> None:
        for hint in hints:
            hint.set()
