"""Strict JSON: what is refused, with which code, and that nothing else happens to it."""

import asyncio
import json
import time
from collections.abc import AsyncGenerator
from typing import Any

import httpx
import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from perdure.api import json_body
from perdure.domain.errors import BodyTooLarge, InvalidRequest, UnsupportedMedia
from perdure.domain.limits import JSON_DEPTH_MAX

from .harness import HELLO, application, call, error_of, serving
from .scripted import OWNER_TOKEN, ScriptedService

FLOOD_CHUNKS = 512
JSON = {"Content-Type": "application/json"}


def nested(levels: int) -> bytes:
    return b'{"a":' + b"[" * (levels - 1) + b"]" * (levels - 1) + b"}"


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b" \n\t",
        b"{",
        b"{}{}",
        b"[]",
        b'"text"',
        b"null",
        b"1",
        b"\xef\xbb\xbf{}",
        b"{'a':1}",
        b'{"a":1,}',
        b'{"a":01}',
        b'{"a":.5}',
        b'{"a":NaN}',
        b'{"a":Infinity}',
        b'{"a":-Infinity}',
        b'{"a":1e999}',
        b'{"a":-1e999}',
        b'{"a":1,"a":1}',
        b'{"a":{"b":1,"\\u0062":2}}',
        b'{"a":"\xff"}',
        b'{"a":"\xed\xa0\x80"}',
        b'{"a":"\\ud800"}',
        b'{"a":"\\uDFFF\\uD800"}',
        b'{"\\ud800":1}',
        b'{"a":"\x01"}',
        b'{"a":"\n"}',
        b'{"a":"\\x41"}',
        "{}".encode("utf-16"),
        b'{"a":' + b"9" * 5000 + b"}",
        nested(JSON_DEPTH_MAX + 1),
        nested(100_000),
        b"[" * 100_000,
        b'{"a":' * 100_000,
        b"\x00",
    ],
)
def test_what_is_no_strict_json_object_is_refused(raw: bytes) -> None:
    """Each is `invalid_json`, whatever is wrong with it."""
    with pytest.raises(InvalidRequest) as refused:
        json_body.parse(raw)
    assert refused.value.error_code == "invalid_json"


@pytest.mark.parametrize(
    ("raw", "value"),
    [
        (b" {} ", {}),
        (nested(JSON_DEPTH_MAX), json.loads(nested(JSON_DEPTH_MAX))),
        (b'{"a":"' + b"[{" * 100 + b'"}', {"a": "[{" * 100}),
        (b'{"a":"' + b'\\"[' * 100 + b'"}', {"a": '"[' * 100}),
        (b'{"a":[' + b",".join([b"[]"] * 100) + b"]}", {"a": [[]] * 100}),
        (b'{"a":"\\ud83d\\ude00"}', {"a": "😀"}),
        (b'{"a":"\\\\ud800"}', {"a": "\\ud800"}),
        ('{"é":"\u2028"}'.encode(), {"é": "\u2028"}),
        (b'{"a":9007199254740993,"b":1e2,"c":-0.0}', {"a": 9007199254740993, "b": 100.0, "c": 0.0}),
        (b'{"a":{"x":1},"b":{"x":1}}', {"a": {"x": 1}, "b": {"x": 1}}),
    ],
)
def test_what_is_strict_json_is_read_exactly(raw: bytes, value: object) -> None:
    """Brackets in strings do not nest, pairs of escapes are one character, whole numbers stay whole."""
    assert json_body.parse(raw) == value


def test_an_unclosed_string_full_of_escapes_costs_little() -> None:
    """The look at the nesting reads each byte once: a hostile body is refused in no time."""
    raw = b'{"a":[' + b"[]," * JSON_DEPTH_MAX + b'"' + b'\\"' * 60_000
    began = time.monotonic()
    with pytest.raises(InvalidRequest):
        json_body.parse(raw)
    assert time.monotonic() - began < 1


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=200))
@example(b'{"a":"\\')
def test_bytes_are_read_or_refused(raw: bytes) -> None:
    """No body makes the parser fail in a way of its own."""
    try:
        outcome = json_body.parse(raw)
    except InvalidRequest as refused:
        outcome = refused
    assert isinstance(outcome, dict) or outcome.error_code == "invalid_json"


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@settings(max_examples=100, deadline=None)
@given(st.dictionaries(st.text(), VALUES, max_size=4), st.booleans())
def test_what_json_writes_is_read_back(value: dict[str, Any], ascii_only: bool) -> None:
    """Any object of Unicode text, escaped or not, comes through unchanged."""
    assert json_body.parse(json.dumps(value, ensure_ascii=ascii_only).encode()) == value


APP = application()


@settings(max_examples=100, deadline=None)
@given(
    st.dictionaries(
        st.sampled_from(["model", "input", "tools", "text", "metadata", "seed", "stream", "odd", "temperature"]),
        VALUES,
    )
)
def test_no_object_makes_the_route_fail(fields: dict[str, Any]) -> None:
    """Whatever JSON is sent, the answer is a result or an error of the client's, never a fault of ours."""
    body = {**HELLO, "background": True, **fields}
    answer = call(APP, "POST", "/v1/responses", content=json.dumps(body), headers=JSON)
    assert answer.status_code in (200, 202, 400, 404)
    if answer.status_code >= 400:
        error_of(answer)


@pytest.mark.parametrize(
    ("headers", "accepted"),
    [
        ({"content-type": "application/json"}, True),
        ({"content-type": "Application/JSON; charset=UTF-8"}, True),
        ({"content-type": 'application/json;charset="utf-8"'}, True),
        ({"content-type": "application/json; charset=latin-1"}, False),
        ({"content-type": "application/json; profile=x"}, False),
        ({"content-type": "text/plain"}, False),
        ({"content-type": "application/jsonl"}, False),
        ({"content-type": "application/x-www-form-urlencoded"}, False),
        ({"content-type": ""}, False),
        ({}, False),
        ({"content-type": "application/json", "content-encoding": "gzip"}, False),
        ({"content-type": "application/json", "content-encoding": "identity"}, True),
    ],
)
def test_only_plain_json_bodies_are_taken(headers: dict[str, str], accepted: bool) -> None:
    """Another type or a compressed body is 415, and nothing is stored."""
    service = ScriptedService()
    answer = call(
        application(service), "POST", "/v1/responses", content=json.dumps(dict(HELLO)).encode(), headers=headers
    )
    assert answer.status_code == (200 if accepted else 415)
    assert len(service.kept) == accepted
    if not accepted:
        assert error_of(answer)["code"] == "unsupported_media_type"


def body_of(size: int) -> bytes:
    """A good create body of exactly that size."""
    empty = json.dumps({**HELLO, "odd": ""}).encode()
    return json.dumps({**HELLO, "odd": "x" * (size - len(empty))}).encode()


@pytest.mark.parametrize(("size", "status"), [(2048, 200), (2049, 413)])
def test_the_limit_of_a_body_is_exact_and_named(size: int, status: int) -> None:
    """A body of the limit passes; one byte more is refused with the name of the setting."""
    service = ScriptedService()
    answer = call(
        application(service, body_max_bytes=2048), "POST", "/v1/responses", content=body_of(size), headers=JSON
    )
    assert answer.status_code == status
    if status == 413:
        error = error_of(answer)
        assert error["code"] == "body_too_large"
        assert "PERDURE_BODY_MAX_BYTES" in error["message"]
        assert "2048" in error["message"]
        assert not service.kept


def test_an_announced_size_over_the_limit_is_refused_unread() -> None:
    """Not one byte of the body is asked for."""

    async def receive() -> Any:
        raise AssertionError("the body was read")

    headers = [(b"content-type", b"application/json"), (b"content-length", b"101")]
    with pytest.raises(BodyTooLarge):
        asyncio.run(json_body.read(headers, receive, 100, dict))


@pytest.mark.parametrize("announced", [[], [(b"content-length", b"10")], [(b"content-length", b"x")]])
def test_a_body_that_grows_over_the_limit_is_not_read_further(announced: list[tuple[bytes, bytes]]) -> None:
    """Without a length, or with a false one, reading stops with the chunk that is too many."""
    read = 0

    async def receive() -> Any:
        nonlocal read
        read += 1
        return {"type": "http.request", "body": b"x" * 40, "more_body": True}

    with pytest.raises(BodyTooLarge):
        asyncio.run(json_body.read([(b"content-type", b"application/json"), *announced], receive, 100, dict))
    assert read == 3


def test_a_body_that_breaks_off_is_refused() -> None:
    """A client that leaves in the middle of its body has asked for nothing."""
    messages = [{"type": "http.request", "body": b"{", "more_body": True}, {"type": "http.disconnect"}]

    async def receive() -> Any:
        return messages.pop(0)

    with pytest.raises(InvalidRequest) as refused:
        asyncio.run(json_body.read([(b"content-type", b"application/json")], receive, 100, dict))
    assert refused.value.error_code == "invalid_json"


def test_the_type_is_looked_at_before_the_size() -> None:
    """A large form is told that it is no JSON."""

    async def receive() -> Any:
        raise AssertionError("the body was read")

    headers = [(b"content-type", b"text/plain"), (b"content-length", b"101")]
    with pytest.raises(UnsupportedMedia):
        asyncio.run(json_body.read(headers, receive, 100, dict))


def test_a_large_body_is_parsed_like_a_small_one() -> None:
    """Beyond the size that is parsed on the spot, the same text gives the same answers."""
    padding = "x" * json_body.PARSED_INLINE_MAX_BYTES
    app = application()
    assert create_raw(app, json.dumps({**HELLO, "odd": padding}).encode()).status_code == 200
    answer = create_raw(app, json.dumps({**HELLO, "odd": padding}).encode()[:-1])
    assert error_of(answer)["code"] == "invalid_json"


def create_raw(app: Any, content: bytes) -> Any:
    return call(app, "POST", "/v1/responses", content=content, headers=JSON)


def test_over_a_socket_a_chunked_flood_is_cut() -> None:
    """The server closes while the client still sends; it does not swallow the rest."""

    async def run() -> int:
        async with serving(application(body_max_bytes=4096)) as base:
            _, writer = await asyncio.open_connection("127.0.0.1", int(base.rpartition(":")[2]))
            writer.write(
                b"POST /v1/responses HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\n"
                b"Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n" % OWNER_TOKEN.encode()
            )
            for sent in range(FLOOD_CHUNKS):
                try:
                    writer.write(b"10000\r\n" + b"x" * 65536 + b"\r\n")
                    await writer.drain()
                except ConnectionError:
                    return sent
            return FLOOD_CHUNKS

    assert asyncio.run(run()) < FLOOD_CHUNKS


@pytest.mark.parametrize("chunked", [False, True])
def test_over_a_socket_an_oversized_body_gets_its_error(chunked: bool) -> None:
    """The client has sent three times too much before it reads, and still reads the 413 and not a reset."""

    async def parts() -> AsyncGenerator[bytes]:
        for _ in range(48):
            yield b"x" * 65536

    async def run() -> httpx.Response:
        content = parts() if chunked else b"x" * 48 * 65536
        async with serving(application(body_max_bytes=16 * 65536)) as base, httpx.AsyncClient(base_url=base) as http:
            headers = {**JSON, "Authorization": f"Bearer {OWNER_TOKEN}"}
            return await http.post("/v1/responses", content=content, headers=headers)

    answer = asyncio.run(run())
    assert (answer.status_code, error_of(answer)["code"]) == (413, "body_too_large")


def test_the_connection_goes_on_after_a_refused_body() -> None:
    """A client that sent bad JSON may use the same connection for the next request."""

    async def run() -> list[int]:
        headers = {**JSON, "Authorization": f"Bearer {OWNER_TOKEN}"}
        async with serving(application()) as base, httpx.AsyncClient(base_url=base, headers=headers) as http:
            bad = await http.post("/v1/responses", content=b"{")
            good = await http.post("/v1/responses", content=json.dumps(dict(HELLO)))
            return [bad.status_code, good.status_code]

    assert asyncio.run(run()) == [400, 200]


@pytest.mark.parametrize("sign", ["", "-"])
def test_an_integer_is_no_longer_than_every_reader_takes(sign: str) -> None:
    """What is kept must be readable after a restart, by a reader that takes fewer digits than this one."""
    longest = sign + "9" * (4_000 - len(sign))
    read = json_body.parse(b'{"a": %b}' % longest.encode())
    assert msgspec.json.decode(msgspec.json.encode(read)) == {"a": int(longest)}
    with pytest.raises(InvalidRequest, match="too many digits"):
        json_body.parse(b'{"a": %b9}' % longest.encode())
