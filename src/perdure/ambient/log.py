"""The log: one line an event on standard error, for people at a terminal and for machines elsewhere."""

import logging
import sys

import structlog

from perdure.domain.errors import PerdureError


def configure(level: str) -> None:
    """Set up the log of this process. `level` is debug, info, warning or error."""
    number = logging.getLevelNamesMapping()[level.upper()]
    human = sys.stderr.isatty()
    renderer = structlog.dev.ConsoleRenderer() if human else structlog.processors.JSONRenderer()
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=not human),
            *([] if human else [structlog.processors.dict_tracebacks]),
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(number),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )


def event(name: str, **facts: object) -> None:
    """Something happened."""
    structlog.get_logger().info(name, **facts)


def fault(doing: str, error: BaseException) -> None:
    """Something went wrong while `doing`. Trouble that is known by its code needs no trace; a fault of ours does."""
    log = structlog.get_logger()
    if isinstance(error, PerdureError):
        log.warning(doing, code=error.error_code, reason=error.message)
    else:
        log.error(doing, exc_info=error)
