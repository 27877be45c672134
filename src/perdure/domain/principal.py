"""Who asks, and what they may do. A principal comes from a token alone, never from a field of the request."""

from dataclasses import dataclass
from enum import StrEnum

from perdure.domain.errors import Forbidden


class Scope(StrEnum):
    """What a token can allow."""

    RESPONSES_READ = "responses:read"
    RESPONSES_WRITE = "responses:write"
    MODELS_READ = "models:read"
    MODELS_WRITE = "models:write"
    CLIENTS_WRITE = "clients:write"
    SERVICE_READ = "service:read"


ALL_SCOPES = frozenset(Scope)
OWNER = "owner"
"""The name of the client that the first start creates."""


@dataclass(frozen=True)
class Principal:
    """An authenticated client."""

    client_id: int
    name: str
    scopes: frozenset[Scope]

    def require(self, scope: Scope) -> None:
        """Raise `Forbidden` unless the token allows `scope`."""
        if scope not in self.scopes:
            raise Forbidden(f"This token lacks the scope {scope}; ask the owner for one that has it.")
