"""Strict JSON bodies: what two readers could understand differently is refused.

Refused: another content type, a body over the limit, invalid UTF-8, a name twice in one object, NaN and infinities
(also by overflow), half a surrogate pair, nesting deeper than `JSON_DEPTH_MAX`, a top level that is no object. The
standard library reads it, since it alone shows every pair of an object.
"""

import asyncio
import json
import math
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from litestar.types import Receive

from perdure.domain.errors import BodyTooLarge, InvalidRequest, UnsupportedMedia
from perdure.domain.limits import JSON_DEPTH_MAX

PARSED_INLINE_MAX_BYTES = 64 * 1024
"""A larger body is parsed in a thread, so that nobody else waits for it."""

T = TypeVar("T")
Headers = Iterable[tuple[bytes, bytes]]

# Strings first, so that a bracket inside one is not counted; an unclosed string runs to the end, so that no quote is
# looked at twice.
_BRACKETS = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?|([\[{])|([\]}])', re.DOTALL)
_SURROGATE = re.compile(rb"\\u[dD][89abAB]|\\u[dD][c-fC-F]")
_SHOWN_NAME_MAX_CHARS = 64
_INTEGER_MAX_CHARS = 4_000  # no reader of what is kept takes more than 4,300, and not all count the sign


async def read(headers: Headers, receive: Receive, max_bytes: int, understand: Callable[[dict[str, Any]], T]) -> T:
    """What `understand` makes of the body of a request, which is an object. It must be fit to run in a thread.

    Raises `UnsupportedMedia`, `BodyTooLarge`, `InvalidRequest`, and what `understand` raises.
    """
    length = _check_headers(headers)
    if length is not None and length > max_bytes:
        raise _too_large(max_bytes)
    raw = await _gather(receive, max_bytes)
    if len(raw) > PARSED_INLINE_MAX_BYTES:
        return await asyncio.to_thread(lambda: understand(parse(raw)))
    return understand(parse(raw))


def parse(raw: bytes) -> dict[str, Any]:
    """Strict JSON with an object on top. Raises `InvalidRequest` (code `invalid_json`)."""
    if not raw.strip():
        raise _invalid("The body is empty; it must be a JSON object.")
    _check_depth(raw)
    value = _decode(raw)
    if not isinstance(value, dict):
        raise _invalid("The body must be a JSON object.")
    if _SURROGATE.search(raw):
        _check_surrogates(value)
    return value


def _check_headers(headers: Headers) -> int | None:
    """The announced length, after the content type has been found good."""
    media, encoding, length = b"", b"identity", None
    for name, value in headers:
        if name == b"content-type":
            media = value
        elif name == b"content-encoding":
            encoding = value
        elif name == b"content-length" and value.isdigit():
            length = int(value[:20])
    if media != b"application/json" and not _is_json(media):
        raise UnsupportedMedia("The body must be JSON: send it with `Content-Type: application/json`.")
    if encoding.strip().lower() != b"identity":
        raise UnsupportedMedia("A compressed body is not accepted: send it without `Content-Encoding`.")
    return length


def _is_json(media: bytes) -> bool:
    kind, *parameters = (part.strip().lower() for part in media.split(b";"))
    return kind == b"application/json" and all(p in (b"", b"charset=utf-8", b'charset="utf-8"') for p in parameters)


async def _gather(receive: Receive, max_bytes: int) -> bytes:
    """The bytes of the body; stops reading as soon as they are too many, whatever length was announced."""
    chunks: list[bytes] = []
    size, more = 0, True
    while more:
        message = await receive()
        if message["type"] != "http.request":
            raise _invalid("The connection closed before the body was complete.")
        chunk = message.get("body", b"")
        size += len(chunk)
        if size > max_bytes:
            raise _too_large(max_bytes)
        chunks.append(chunk)
        more = message.get("more_body", False)
    return b"".join(chunks)


def _check_depth(raw: bytes) -> None:
    """Refuse deep nesting before anything recurses into it."""
    if raw.count(b"[") + raw.count(b"{") <= JSON_DEPTH_MAX:
        return
    depth = 0
    for found in _BRACKETS.finditer(raw):
        if found[1]:
            depth += 1
            if depth > JSON_DEPTH_MAX:
                raise _invalid(f"The JSON is nested deeper than {JSON_DEPTH_MAX} levels.")
        elif found[2]:
            depth -= 1


def _decode(raw: bytes) -> Any:
    try:
        return _DECODER.decode(raw.decode())
    except UnicodeDecodeError:
        raise _invalid("The body is not valid UTF-8.") from None
    except json.JSONDecodeError as error:
        raise _invalid(f"The body is not valid JSON (line {error.lineno}, column {error.colno}).") from None


def _unique(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise _invalid(f"The JSON has the name {_repeated(pairs)} twice in one object.")
    return found


def _repeated(pairs: Sequence[tuple[str, Any]]) -> str:
    seen: set[str] = set()
    for name, _ in pairs:
        if name in seen:
            return json.dumps(name[:_SHOWN_NAME_MAX_CHARS])
        seen.add(name)
    raise AssertionError("no name is repeated")


def _whole(text: str) -> int:
    if len(text) > _INTEGER_MAX_CHARS:
        raise _invalid("The JSON holds a number with too many digits.")
    return int(text)


def _finite(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise _invalid("The JSON holds a number that is too large.")
    return number


def _refuse_constant(text: str) -> float:
    raise _invalid(f"{text} is not JSON.")


_DECODER = json.JSONDecoder(
    object_pairs_hook=_unique, parse_int=_whole, parse_float=_finite, parse_constant=_refuse_constant
)


def _check_surrogates(value: object) -> None:
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise _invalid("The JSON holds half of a surrogate pair, which stands for no character.") from None


def _too_large(max_bytes: int) -> BodyTooLarge:
    return BodyTooLarge(f"The body is larger than {max_bytes} bytes (the setting PERDURE_BODY_MAX_BYTES).")


def _invalid(message: str) -> InvalidRequest:
    return InvalidRequest(message, code="invalid_json")
