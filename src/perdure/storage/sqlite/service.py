"""Clients, models, and the service itself."""

from functools import cache

import apsw
import msgspec

from perdure.domain.model import ModelCard
from perdure.domain.principal import Principal, Scope
from perdure.storage.sqlite.query import certain, row, rows
from perdure.storage.sqlite.statements import load

_sql = load("service")
_BOOT, _KEEP_CLIENT, _KEEP_MODEL = _sql["boot"], _sql["keep_client"], _sql["keep_model"]
_CLIENT_BY_TOKEN, _QUEUED = _sql["client_by_token"], _sql["queued"]


def boot(connection: apsw.Connection, boot_id: str, at: int) -> str:
    """Note who serves now."""
    return certain(connection, _BOOT, {"boot_id": boot_id, "at": at})


def queued(connection: apsw.Connection) -> int:
    """How many tasks wait for a slot."""
    return certain(connection, _QUEUED)


def keep_client(
    connection: apsw.Connection, name: str, token_hash: bytes, token_prefix: str, scopes: frozenset[Scope], at: int
) -> int:
    """Write a client, or its new token."""
    client = {
        "name": name,
        "token_hash": token_hash,
        "token_prefix": token_prefix,
        "scopes": " ".join(sorted(scopes)),
        "at": at,
    }
    return certain(connection, _KEEP_CLIENT, client)


def principal(connection: apsw.Connection, token_hash: bytes, now: int) -> Principal | None:
    """The client of a token that works."""
    found = row(connection, _CLIENT_BY_TOKEN, {"token_hash": token_hash, "now": now})
    if found is None:
        return None
    client_id, name, scopes = found
    return Principal(client_id, name, _scopes(scopes))


@cache
def _scopes(text: str) -> frozenset[Scope]:
    """The scopes as the row has them; there are few different ones."""
    return frozenset(Scope(scope) for scope in text.split())


def keep_model(connection: apsw.Connection, card: ModelCard, path: str) -> None:
    """Write what is known of a model, if it is news."""
    rows(connection, _KEEP_MODEL, {**msgspec.structs.asdict(card), "path": path})
