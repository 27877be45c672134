"""The check against DNS rebinding: a web page must not reach this service through a name of its own.

Binding to the loopback address does not help against a page whose name is pointed there, so the `Host` header must be
one that this service goes by. Pages of other origins are turned away too (CORS is off).
"""

import ipaddress
from collections.abc import Iterable

from perdure.domain.errors import Forbidden

_UNKNOWN_HOST = "This service does not go by that host name; use the address that it prints at its start."
_FOREIGN_PAGE = "Pages of other origins may not call this service; call it from a program, or through a proxy."
_LOOPBACK = frozenset({"localhost", "127.0.0.1", "[::1]"})
_ANY = frozenset({"0.0.0.0", "::"})  # noqa: S104 -- compared with, not bound to


class Hosts:
    """The host names that requests may carry, for a service bound to `bound`."""

    def __init__(self, bound: str) -> None:
        self._literals = bound in _ANY
        self._names = _LOOPBACK if self._literals else _LOOPBACK | {_bracketed(bound)}

    def check(self, headers: Iterable[tuple[bytes, bytes]]) -> None:
        """Raise `Forbidden` unless the request was sent to this service, by no foreign page."""
        hosts = [value for name, value in headers if name == b"host"]
        if len(hosts) != 1 or not self._known(hosts[0].decode("latin-1").lower()):
            raise Forbidden(_UNKNOWN_HOST, code="forbidden_host")
        own = (b"http://" + hosts[0], b"https://" + hosts[0])
        if any(name == b"origin" and value not in own for name, value in headers):
            raise Forbidden(_FOREIGN_PAGE, code="forbidden_origin")

    def _known(self, host: str) -> bool:
        name, _, port = host.rpartition(":") if not host.endswith("]") else (host, "", "")
        if not name:
            name, port = host, ""
        if port and not port.isdigit():
            return False
        return name in self._names or (self._literals and _is_literal(name))


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host.lower()


def _is_literal(name: str) -> bool:
    bare = name[1:-1] if name.startswith("[") and name.endswith("]") else name
    try:
        ipaddress.ip_address(bare)
    except ValueError:
        return False
    return True
