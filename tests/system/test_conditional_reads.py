"""Conditional reads of a real service: over the wire, through a restart, and beside a client that knows of none."""

from pathlib import Path

import httpx
import pytest

from tests.system.server import TERMINAL, Server


def read(server: Server, path: str, tag: str | None = None) -> httpx.Response:
    """A read by somebody who has the answer of a tag, or nothing."""
    return server.http.get(path, headers={} if tag is None else {"If-None-Match": tag})


def pages(ident: str) -> list[str]:
    """What shows one response by itself."""
    task = ident.replace("resp_", "task_")
    return [f"/v1/responses/{ident}", f"/v1/tasks/{task}", f"/v1/tasks/{task}/events?limit=1000", "/v1/models"]


@pytest.mark.proves("S6", "E-25", "C-17", "V8")
def test_a_poller_is_told_of_every_change_and_of_nothing_else(tmp_path: Path, tiny_model: Path) -> None:
    """From the create to the end; then nothing is new, not even after a restart, but for the list of all tasks."""
    with Server(tmp_path / "data", tiny_model).start() as server:
        name = server.create(max_output_tokens=200)["id"]
        path = f"/v1/responses/{name}"
        seen: dict[str, bytes] = {}
        tag: str | None = None
        status = ""
        while status not in TERMINAL:
            answer = read(server, path, tag)
            if answer.status_code == 304:
                assert answer.headers["etag"] == tag
                continue
            assert answer.status_code == 200
            status = answer.json()["status"]
            tag = answer.headers.get("etag")
            if tag is not None:
                assert seen.setdefault(tag, answer.content) == answer.content, "two bodies under one tag"
        tags = {each: read(server, each).headers["etag"] for each in pages(name)}
        listed = read(server, "/v1/tasks")
        server.ended(server.create("Another one.", max_output_tokens=8)["id"])
        assert read(server, "/v1/tasks", listed.headers["etag"]).status_code == 200
        assert [read(server, each, tags[each]).status_code for each in tags] == [304] * len(tags)
        listed = read(server, "/v1/tasks")
        assert server.terminate() == 0
        server.start()
        assert [read(server, each, tags[each]).status_code for each in tags] == [304] * len(tags)
        again = read(server, "/v1/tasks", listed.headers["etag"])
        assert (again.status_code, again.content) == (200, listed.content)
        assert server.client().responses.retrieve(name).status == status
        assert server.terminate() == 0


@pytest.mark.proves("S6")
def test_a_304_leaves_the_connection_in_order(tiny_server: Server) -> None:
    """Nothing stands behind its headers, and nothing in them promises that; the next answer is whole."""
    whole = read(tiny_server, "/v1/models")
    with httpx.Client(base_url=tiny_server.url, limits=httpx.Limits(max_connections=1), trust_env=False) as client:
        client.headers = tiny_server.http.headers
        for _ in range(3):
            unchanged = client.get("/v1/models", headers={"If-None-Match": f'"other", W/{whole.headers["etag"]}'})
            assert (unchanged.status_code, unchanged.content) == (304, b"")
            assert set(unchanged.headers) == {"etag", "cache-control", "x-request-id", "date"}
            assert unchanged.headers["cache-control"] == "private, no-cache"
            assert client.get("/v1/models").content == whole.content
