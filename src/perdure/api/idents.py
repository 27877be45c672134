"""Outside names: `resp_X` and `task_X` for the response and the task of ident X."""

import re
from typing import Any

from litestar import Request

from perdure.domain.errors import NotFound

_IDENT = r"([0-9A-Za-z_-]{1,64})"
_PREFIXES = {"response": re.compile("resp_" + _IDENT), "task": re.compile("task_" + _IDENT)}


def ident(request: Request[Any, Any, Any], noun: str) -> str:
    """The ident in the path. Raises `NotFound` for what cannot be a name, as for what is nobody's."""
    return parse(request.path_params[noun], noun)


def parse(name: str, noun: str, *, param: str | None = None) -> str:
    """The ident behind an outside name."""
    found = _PREFIXES[noun].fullmatch(name)
    if found is None:
        # In the words that the service has for a name that is nobody's, so that the two cannot be told apart.
        raise NotFound("There is nothing of this id that this token may see.", param=param)
    return found[1]
