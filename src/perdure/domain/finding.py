"""What a look at a service's files finds."""

from dataclasses import dataclass
from enum import StrEnum


class Level(StrEnum):
    """How much it matters."""

    OK = "ok"
    NOTE = "note"
    PROBLEM = "problem"


@dataclass(frozen=True)
class Finding:
    """One line of a report. A note and a problem have a remedy, or the reason why none is needed."""

    level: Level
    check: str
    message: str
    remedy: str | None = None


def ok(check: str, message: str) -> Finding:
    """As it should be."""
    return Finding(Level.OK, check, message)


def note(check: str, message: str, remedy: str) -> Finding:
    """Worth knowing; nothing is wrong."""
    return Finding(Level.NOTE, check, message, remedy)


def problem(check: str, message: str, remedy: str) -> Finding:
    """Not as it should be."""
    return Finding(Level.PROBLEM, check, message, remedy)
