"""What the texts are when nobody is killed: the measure of all others."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tests.system.kills import rows
from tests.system.kills.plan import Request
from tests.system.server import Server, text_of


@dataclass(frozen=True)
class Expected:
    """The end of an undisturbed response."""

    response: dict[str, Any]
    text: str
    tokens: tuple[int, ...]


class Undisturbed:
    """A service that lives, asked once for each request."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._known: dict[str, Expected] = {}

    def texts(self, requests: Sequence[Request]) -> list[Expected]:
        """How each of the requests ends."""
        if self._server.process is None:
            self._server.start()
        missing = {json.dumps(each): each for each in requests if json.dumps(each) not in self._known}
        asked = {key: self._server.create(**request)["id"] for key, request in missing.items()}
        ended = {key: self._server.ended(response) for key, response in asked.items()}
        kept = rows.of_the_living(self._server.data, list(asked.values())).tasks
        for key, response in ended.items():
            row = kept[response["id"]]
            assert row.crashes == 0, "a text that should be undisturbed was disturbed"
            assert response["status"] in ("completed", "incomplete"), response
            assert len(row.tokens) == row.kept == response["usage"]["output_tokens"]
            self._known[key] = Expected(response, text_of(response), row.tokens)
        return [self._known[json.dumps(each)] for each in requests]

    def close(self) -> None:
        """End the service."""
        self._server.__exit__()
