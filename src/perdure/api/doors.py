"""Routes of OpenAI's API that have their place here and are not served yet: 501 with what to use instead.

They are looked up only where routing has found nothing, so a route that is added shuts its door by itself, and they
cost nothing on the way of a good request. Like every other route they ask for a token first.
"""

import re
from collections.abc import Iterable, Sequence

from litestar.types import Scope

from perdure.domain.errors import NotServed

_STORED_CHATS = (
    "Chat completions are not read here; one of `store: true` is kept as a response: chatcmpl-X is "
    "GET /v1/responses/resp_X."
)
_DOORS: Sequence[tuple[re.Pattern[str], str]] = tuple(
    (re.compile(pattern), message)
    for pattern, message in (
        (r"POST /v1/responses/compact", "Compaction is not served yet; send `truncation: auto`, or a shorter input."),
        (
            r"[A-Z]+ /v1/conversations(/.*)?",
            "Conversations are not served yet; chain responses by `previous_response_id`.",
        ),
        (r"[A-Z]+ /v1/embeddings", "Embeddings are not served yet, and nothing here stands in for them."),
        (r"[A-Z]+ /v1/completions", "Completions of a bare prompt are not served yet; use POST /v1/responses."),
        (r"GET /v1/chat/completions", _STORED_CHATS),
        (r"[A-Z]+ /v1/chat/completions/[^/]+(/messages)?", _STORED_CHATS),
    )
)


def later(scope: Scope) -> NotServed | None:
    """The error for a request that a later version will serve; None for any other that found no route."""
    path = re.sub("/+", "/", scope["path"]).removesuffix("/")  # as routing reads it
    asked = f"{scope.get('method')} {path}"
    return next((NotServed(message) for pattern, message in _DOORS if pattern.fullmatch(asked)), None)


def refuse_upgrade(headers: Iterable[tuple[bytes, bytes]]) -> None:
    """Raise `NotServed` for a handshake that asks for a WebSocket; any other upgrade is ignored, as HTTP allows."""
    for name, value in headers:
        if name == b"upgrade" and value.strip().lower() == b"websocket":
            raise NotServed("WebSocket mode is not served yet; use POST /v1/responses with `stream: true`.")
