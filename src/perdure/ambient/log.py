"""The log: one line an event on standard error, as JSON for machines or as text for a person at a terminal."""

import contextlib
import json
import logging
import sys
import time
import traceback
from typing import Any

from perdure.domain.errors import PerdureError

_LEVELS = {"debug": 0, "info": 1, "warning": 2, "error": 3}
_least = _LEVELS["info"]


def configure(level: str) -> None:
    """Set up the log of this process. `level` is debug, info, warning or error."""
    global _least  # noqa: PLW0603 -- a process has one standard error, and so one log
    _least = _LEVELS[level]
    logging.basicConfig(handlers=[_Others()], level=logging.WARNING, force=True)
    logging.getLogger("perdure").setLevel(logging.INFO)  # what a library has to say below a warning is its own


class _Others(logging.Handler):
    """What libraries, and floors that know only the standard log, have to say."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write one line."""
        level = record.levelname.lower()
        facts: dict[str, Any] = {"logger": record.name}
        if record.exc_info and record.exc_info[1]:
            facts["trace"] = "".join(traceback.format_exception(record.exc_info[1]))
        _write(level if level in _LEVELS else "error", record.getMessage(), facts)


def event(name: str, **facts: Any) -> None:
    """Something happened."""
    _write("info", name, facts)


class Held:
    """Events that are kept back until `release`: where a start is refused, one line says why, and no other."""

    def __init__(self) -> None:
        self._held: list[str] | None = []

    def event(self, name: str) -> None:
        """Something happened."""
        if self._held is None:
            event(name)
        else:
            self._held.append(name)

    def release(self) -> None:
        """Tell what was kept back, and from now on everything at once."""
        held, self._held = self._held or [], None
        for name in held:
            event(name)


def fault(doing: str, error: BaseException) -> None:
    """Something went wrong while `doing`. Trouble that is known by its code needs no trace; a fault of ours does."""
    if isinstance(error, PerdureError):
        _write("warning", doing, {"code": error.error_code, "reason": error.message})
    else:
        _write("error", doing, {"trace": "".join(traceback.format_exception(error))})


def _write(level: str, name: str, facts: dict[str, Any]) -> None:
    if _LEVELS[level] < _least:
        return
    at = time.strftime("%Y-%m-%dT%H:%M:%S%z")
    if sys.stderr.isatty():
        told = " ".join(f"{key}={value}" for key, value in facts.items())
        line = f"{at[11:19]} {level}: {name} {told}".rstrip()
    else:
        line = json.dumps({"at": at, "level": level, "event": name, **facts}, default=str, ensure_ascii=False)
    with contextlib.suppress(OSError, ValueError):  # a full disk or a closed terminal must not stop the work it logs
        print(line, file=sys.stderr, flush=True)
