"""Conditional reads over the engine and a real store: what a tag stands for while work goes on."""

import asyncio
import hashlib
import itertools
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from litestar import Litestar
from tests.unit.engine.stage import Stage, scenario, started, turns

from perdure.api.app import build_app
from perdure.domain.errors import StorageFailed, StorageFull
from perdure.domain.lifecycle import Status
from perdure.ports.storage import TaskRecord
from perdure.testing.scripted_runtime import MODEL, Script, card
from perdure.testing.store_steps import add_client

from .harness import VERSION, FixedNames, client, settings
from .scripted import OTHER_TOKEN, OWNER_TOKEN

PAGES = ("/v1/responses/resp_{}", "/v1/tasks/task_{}", "/v1/tasks/task_{}/events?limit=1000", "/v1/tasks?limit=50")
SETTLED = PAGES[:3]


class Caller:
    """Reads as a client that keeps what it gets, and checks that nothing it is told is false."""

    def __init__(self, stage: Stage, http: httpx.AsyncClient) -> None:
        self._stage = stage
        self._http = http
        self.kept: dict[str, httpx.Response] = {}

    async def read(self, path: str, **headers: str) -> httpx.Response:
        """A read with the headers that are given."""
        return await self._http.get(path, headers={name.replace("_", "-"): value for name, value in headers.items()})

    async def poll(self, path: str) -> int:
        """A read with the tag of the answer that is kept, which is then the true one; returns the status."""
        held = self.kept.get(path)
        headers = {} if held is None else {"if_none_match": held.headers["etag"]}
        answer = await self.read(path, **headers)
        if answer.status_code == 304:
            assert held is not None
            assert answer.headers["etag"] == held.headers["etag"]
        elif "etag" in answer.headers:
            self.kept[path] = answer
        return answer.status_code

    async def true(self, path: str) -> None:
        """What is kept is what would be answered now, and has its tag."""
        now = await self.read(path)
        assert (now.content, now.headers["etag"]) == (self.kept[path].content, self.kept[path].headers["etag"])


def app_of(stage: Stage, build: str = VERSION) -> Litestar:
    return build_app(stage.engine, settings(), build, FixedNames())


@asynccontextmanager
async def caller(stage: Stage, who: str = OWNER_TOKEN, build: str = VERSION) -> AsyncGenerator[Caller]:
    """A client of the stage's engine."""
    async with client(app_of(stage, build), who) as http:
        yield Caller(stage, http)


@asynccontextmanager
async def serving(folder: Path, **options: Any) -> AsyncGenerator[Stage]:
    """A stage whose principal has the owner's token, beside another client."""
    async with started(folder, **options) as stage:
        for name, token in (("owner", OWNER_TOKEN), ("other", OTHER_TOKEN)):
            await add_client(stage.store, name, hashlib.sha256(token.encode()).digest())
        yield stage


def paths(ident: str) -> list[str]:
    return [page.format(ident) for page in PAGES]


@pytest.mark.proves("E-25", "C-17")
@scenario
async def test_two_responses_are_polled_through_all_their_states(tmp_path: Path) -> None:
    """Each visible change is a new tag, no change is none, no two pages have one tag, and no 304 is ever false."""
    async with serving(tmp_path) as stage, caller(stage) as reader:
        gates = {position: asyncio.Event() for position in range(4)}
        stage.runtime.play("first", Script(gates=gates))
        stage.runtime.load_gate = asyncio.Event()
        idents = [await stage.submit("first"), await stage.submit("second")]
        pages = sorted({path for ident in idents for path in paths(ident)})
        tags: dict[str, list[str]] = {path: [] for path in pages}
        bodies: dict[str, list[bytes]] = {path: [] for path in pages}

        async def look() -> None:
            """In a moment in which nothing is written."""
            for path in pages:
                assert await reader.poll(path) in (200, 304)
                assert await reader.poll(path) == 304
                await reader.true(path)
                tags[path].append(reader.kept[path].headers["etag"])
                bodies[path].append(reader.kept[path].content)

        await stage.store.reaches(idents[0], Status.LOADING)
        await look()
        stage.runtime.load_gate.set()
        await stage.store.reaches(idents[0], Status.RUNNING)
        for tokens, gate in enumerate(gates.values()):
            await stage.store.until(idents[0], lambda task, tokens=tokens: task.tokens_kept == tokens)
            await quiet(stage)
            await look()
            gate.set()
        for ident in idents:
            await stage.ended(ident)
        await quiet(stage)
        await look()
        for path in pages:
            for n, body in enumerate(bodies[path][1:]):
                assert body == bodies[path][n] or tags[path][n + 1] != tags[path][n]
        assert statuses(bodies[PAGES[0].format(idents[0])]) == ["in_progress"] * 5 + ["completed"]
        assert statuses(bodies[PAGES[0].format(idents[1])]) == ["queued"] * 5 + ["completed"]
        assert statuses(bodies[PAGES[1].format(idents[0])]) == ["loading", *["running"] * 4, "completed"]
        assert len(set(bodies[PAGES[0].format(idents[0])])) == len(gates) + 1
        everything = [tag for path in pages for tag in set(tags[path])]
        assert len(set(everything)) == len(everything)


def statuses(bodies: list[bytes]) -> list[str]:
    return [json.loads(body)["status"] for body in bodies]


async def quiet(stage: Stage) -> None:
    """Return once nothing has been written for a while of turns."""
    version = ""
    while version != (version := await stage.store.version()):
        await turns(200)


@pytest.mark.proves("E-25", "C-01")
@scenario
async def test_a_finished_response_keeps_its_tag_whatever_else_is_written(tmp_path: Path) -> None:
    """So do its task and its events; the list, which shows more than it, does not."""
    async with serving(tmp_path) as stage, caller(stage) as reader:
        ident = await stage.submit("done")
        await stage.ended(ident)
        await quiet(stage)
        for path in paths(ident):
            assert await reader.poll(path) == 200
        for _ in range(3):
            other = await stage.submit("other")
            await stage.ended(other)
            await stage.cancel(ident)  # too late, and no change
            await quiet(stage)
            assert [await reader.poll(path) for path in paths(ident)] == [304, 304, 304, 200]
            for path in paths(ident):
                await reader.true(path)


@pytest.mark.proves("S1", "S2")
@scenario
async def test_a_read_that_a_commit_crosses_has_no_tag(tmp_path: Path) -> None:
    """It is whole all the same; the next undisturbed one has its tag."""
    async with serving(tmp_path) as stage, caller(stage) as reader:
        stage.runtime.play("held", Script(gates={2: asyncio.Event()}))
        ident = await stage.submit("held")
        await stage.store.until(ident, lambda task: task.tokens_kept == 2)
        await quiet(stage)

        numbers = itertools.count()

        async def cross(_task: TaskRecord) -> None:
            await stage.store.boot(f"crossing {next(numbers)}", 1)

        for path in paths(ident)[:3]:
            assert await reader.poll(path) == 200
            stage.store.after_task = cross
            for header in ("*", reader.kept[path].headers["etag"], '"nothing"'):
                crossed = await reader.read(path, if_none_match=header)
                assert (crossed.status_code, crossed.content) == (200, reader.kept[path].content)
                assert "etag" not in crossed.headers
            stage.store.after_task = None
            assert await reader.poll(path) == 200
            assert await reader.poll(path) == 304


@scenario
async def test_a_response_that_ends_during_the_read_is_not_marked_with_its_end(tmp_path: Path) -> None:
    """What was found running is answered without a tag, though what is rendered shows more; the end has its own."""
    async with serving(tmp_path) as stage, caller(stage) as reader:
        gate = asyncio.Event()
        stage.runtime.play("held", Script(gates={2: gate}))
        ident = await stage.submit("held")
        await stage.store.until(ident, lambda task: task.tokens_kept == 2)
        await quiet(stage)

        async def end(_task: TaskRecord) -> None:
            stage.store.after_task = None
            gate.set()
            await stage.ended(ident)

        stage.store.after_task = end
        crossed = await reader.read(PAGES[2].format(ident))
        assert crossed.status_code == 200
        assert b"response.completed" in crossed.content
        assert "etag" not in crossed.headers
        for path in paths(ident)[:3]:
            assert await reader.poll(path) == 200
            assert await reader.poll(path) == 304


@pytest.mark.parametrize("page", SETTLED)
@scenario
async def test_a_response_that_is_removed_during_the_read_is_not_there(tmp_path: Path, page: str) -> None:
    """Nothing of what is left of it goes out, least of all under its tag."""
    async with serving(tmp_path) as stage, caller(stage) as reader:
        ident = await stage.submit("done")
        await stage.ended(ident)
        path = page.format(ident)

        async def remove(task: TaskRecord) -> None:
            stage.store.after_task = None
            await stage.store.purge([task.id])

        stage.store.after_task = remove
        answer = await reader.read(path)
        assert (answer.status_code, answer.headers.get("etag")) == (404, None)


@pytest.mark.proves("E-25")
@pytest.mark.parametrize("page", SETTLED)
@scenario
async def test_only_its_client_is_told_that_it_has_not_changed(tmp_path: Path, page: str) -> None:
    """Running or finished: the other one gets 404, with the very tag, and with `*`."""
    async with serving(tmp_path) as stage, caller(stage) as reader, caller(stage, OTHER_TOKEN) as other:
        stage.runtime.play("held", Script(gates={1: asyncio.Event()}))
        done, held = await stage.submit("done"), await stage.submit("held")
        await stage.ended(done)
        await stage.store.until(held, lambda task: task.tokens_kept == 1)
        await quiet(stage)
        for path in (page.format(done), page.format(held)):
            assert await reader.poll(path) == 200
            for header in ("*", reader.kept[path].headers["etag"]):
                assert (await other.read(path, if_none_match=header)).status_code == 404
                assert (await reader.read(path, if_none_match=header)).status_code == 304


@pytest.mark.parametrize("page", SETTLED)
@scenario
async def test_what_is_over_by_the_clock_is_not_there_though_its_rows_are(tmp_path: Path, page: str) -> None:
    """No commit tells of it, and its tag is as it was: the look comes first."""
    async with serving(tmp_path) as stage, caller(stage) as reader:
        stage.store.trouble = lambda call: StorageFull("no room") if call == "purge" else None
        ident = await stage.submit("passing", store=False)
        await stage.ended(ident)
        await quiet(stage)
        path = page.format(ident)
        assert await reader.poll(path) == 200
        tag = reader.kept[path].headers["etag"]
        version = await stage.store.version()
        stage.clock.advance(60)
        for header in ("*", tag):
            assert (await reader.read(path, if_none_match=header)).status_code == 404
        assert await stage.store.version() == version
        assert await stage.store.task(ident) is not None
        stage.store.trouble = lambda _call: None


@pytest.mark.proves("S4", "S5")
@scenario
async def test_a_failing_version_costs_the_tag_and_a_failing_read_the_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each its own; and a finished response needs no version."""
    async with serving(tmp_path) as stage, caller(stage) as reader:
        stage.runtime.play("held", Script(gates={1: asyncio.Event()}))
        done, held = await stage.submit("done"), await stage.submit("held")
        await stage.ended(done)
        await stage.store.until(held, lambda task: task.tokens_kept == 1)
        await quiet(stage)

        async def fail() -> str:
            raise StorageFailed("busy")

        with monkeypatch.context() as patch:
            patch.setattr(stage.store, "version", fail)
            for path in paths(held):
                answer = await reader.read(path, if_none_match="*")
                assert (answer.status_code, answer.headers.get("etag")) == (200, None)
            for path in paths(done)[:3]:
                answer = await reader.read(path, if_none_match="*")
                assert (answer.status_code, "etag" in answer.headers) == (304, True)
        stage.store.trouble = lambda call: StorageFailed("disk") if call == "task" else None
        for path in paths(held)[:3]:
            answer = await reader.read(path, if_none_match="*")
            assert (answer.status_code, answer.json()["error"]["code"]) == (503, "storage_failed")
        stage.store.trouble = lambda _call: None


@pytest.mark.proves("V2", "V8")
@scenario
async def test_after_a_restart_only_what_had_ended_is_recognised(tmp_path: Path) -> None:
    """The counter begins anew with the store, the tags do not come back; another build recognises nothing."""
    held: dict[str, str] = {}
    ours: list[str] = []
    for life in range(3):
        async with serving(tmp_path) as stage, caller(stage) as reader, caller(stage, build="9.9") as later:
            if life == 0:
                ended = [await stage.submit(text) for text in ("one", "two")]
                for ident in ended:
                    await stage.ended(ident)
                ours = [*paths(ended[0]), "/v1/models", f"/v1/models/{MODEL}"]
            await quiet(stage)
            lasting = [path for path in ours if not path.startswith("/v1/tasks?")]
            for path in ours:
                answer = await reader.read(path, if_none_match=held.get(path, '"none"'))
                assert answer.status_code == (304 if life and path in lasting else 200)
                assert (await later.read(path, if_none_match=answer.headers["etag"])).status_code == 200
                if path not in lasting:
                    assert answer.headers["etag"] not in held.values()
                held[path] = answer.headers["etag"]


@pytest.mark.proves("V6", "V8")
@scenario
async def test_a_caller_who_leaves_takes_nobodys_tag_away(tmp_path: Path) -> None:
    """At whatever point of the read he goes."""
    async with serving(tmp_path) as stage, caller(stage) as reader:
        stage.runtime.play("held", Script(gates={1: asyncio.Event()}))
        ident = await stage.submit("held")
        await stage.store.until(ident, lambda task: task.tokens_kept == 1)
        await quiet(stage)
        for path in paths(ident):
            assert await reader.poll(path) == 200
            for moment in range(20):
                leaving = asyncio.create_task(reader.read(path))
                await turns(moment)
                leaving.cancel()
                await asyncio.gather(leaving, return_exceptions=True)
                assert await reader.poll(path) == 304


@scenario
async def test_models_are_known_by_what_is_told_of_them(tmp_path: Path) -> None:
    """They come from memory: no commit changes their tags, and another content does without one."""
    async with serving(tmp_path) as stage, caller(stage) as reader:
        pages = ["/v1/models", f"/v1/models/{MODEL}"]
        for path in pages:
            assert await reader.poll(path) == 200
        await stage.ended(await stage.submit("other"))
        assert [await reader.poll(path) for path in pages] == [304, 304]
        version = await stage.store.version()
        stage.runtime.cards[MODEL] = card(MODEL, digest="c" * 64)
        assert [await reader.poll(path) for path in pages] == [200, 200]
        assert await stage.store.version() == version
