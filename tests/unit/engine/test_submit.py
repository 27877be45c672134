"""A submit is kept whole before the caller is told, or nothing of it is."""

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.unit.engine.stage import Stage, opened, request, scenario, started, turns, types, user

from perdure.domain.errors import InvalidRequest, ModelUnavailable, NotFound, QueueFull, StorageFull, Unavailable
from perdure.domain.lifecycle import Status
from perdure.domain.limits import IGNORED_MAX
from perdure.domain.model import ModelCard
from perdure.domain.request import CreateRequest
from perdure.testing.scripted_runtime import MODEL, Script


async def nothing_is_kept(stage: Stage) -> None:
    """The client has no task at all."""
    assert await stage.store.tasks(1, status=None, limit=10, after=None, ascending=True) == []


@pytest.mark.proves("P3")
@scenario
async def test_an_accepted_response_is_durable_before_the_caller_is_told(tmp_path: Path) -> None:
    """While the disk has not answered, neither is the caller; once he is, the row and its first events are there."""
    async with opened(tmp_path) as stage:
        stage.store.commits.clear()
        asked = asyncio.create_task(stage.submit())
        await turns(50)
        assert not asked.done()
        stage.store.commits.set()
        ident = await asked
        task = await stage.store.task(ident)
        assert task is not None
        assert task.status is Status.QUEUED
        assert types((await stage.store.events(task.id, -1, 10)).events) == ["created", "queued"]


@scenario
async def test_the_answer_is_the_response_as_it_was_kept(tmp_path: Path) -> None:
    """Byte for byte the object of the last event of the submit, whatever has become of the task meanwhile."""
    async with started(tmp_path) as stage:
        accepted = await stage.engine.submit(stage.principal, request(), [user("Hello")])
        await stage.ended(accepted.ident)
        task = await stage.store.task(accepted.ident)
        assert task is not None
        assert accepted.response == (await stage.store.events(task.id, 0, 1)).events[0].snapshot
        assert b'"status":"queued"' in accepted.response


@scenario
async def test_a_foreground_response_has_no_queued_event(tmp_path: Path) -> None:
    """Its caller waits in line, but is told of the work only."""
    async with started(tmp_path) as stage:
        ident = await stage.submit(background=False)
        assert types(await stage.follow(ident))[:2] == ["created", "in_progress"]


@scenario
async def test_an_unknown_model_is_refused_by_name_and_nothing_is_kept(tmp_path: Path) -> None:
    """The error names the models that there are; no other model answers in its place."""
    async with started(tmp_path) as stage:
        with pytest.raises(NotFound) as refused:
            await stage.submit(model="Tiny")
        assert (refused.value.param, refused.value.error_code) == ("model", "model_not_found")
        assert "tiny" in refused.value.message
        await nothing_is_kept(stage)
        assert stage.runtime.loads == 0


@scenario
async def test_a_model_that_cannot_be_used_is_refused_with_its_reason(tmp_path: Path) -> None:
    """The reason is the runtime's own sentence."""
    async with started(tmp_path) as stage:
        stage.runtime.unavailable["tiny"] = "The model tiny is damaged."
        with pytest.raises(ModelUnavailable, match="damaged"):
            await stage.submit()
        await nothing_is_kept(stage)


@pytest.mark.parametrize(("length", "fits"), [(15, True), (16, False)])
@scenario
async def test_a_prompt_that_fills_the_window_is_refused_with_both_numbers(
    tmp_path: Path, length: int, fits: bool
) -> None:
    """One token has to be left for the answer; nothing is cut off."""
    async with started(tmp_path, window=16) as stage:
        if fits:
            assert (await stage.ended(await stage.submit("x" * length))).status is Status.INCOMPLETE
            return
        with pytest.raises(InvalidRequest, match=r"16 tokens long; tiny holds 16 tokens") as refused:
            await stage.submit("x" * length)
        assert (refused.value.param, refused.value.error_code) == ("input", "context_length_exceeded")
        await nothing_is_kept(stage)


@scenario
async def test_a_full_queue_refuses_and_keeps_nothing(tmp_path: Path) -> None:
    """Those that wait already are not harmed."""
    async with started(tmp_path, queue_max=1) as stage:
        gate = asyncio.Event()
        stage.runtime.play("first", Script(gates={0: gate}))
        first = await stage.submit("first")
        await stage.store.reaches(first, Status.RUNNING)
        second = await stage.submit("second")
        with pytest.raises(QueueFull):
            await stage.submit("third")
        gate.set()
        assert (await stage.ended(second)).status is Status.COMPLETED
        assert len(await stage.store.tasks(1, status=None, limit=10, after=None, ascending=True)) == 2


@scenario
async def test_a_draining_service_accepts_nothing(tmp_path: Path) -> None:
    """The caller is asked to come again."""
    async with started(tmp_path) as stage:
        stage.engine.drain()
        with pytest.raises(Unavailable):
            await stage.submit()
        await nothing_is_kept(stage)


@pytest.mark.parametrize("background", [True, False])
@scenario
async def test_a_submit_that_the_disk_refuses_keeps_nothing(tmp_path: Path, background: bool) -> None:
    """The caller reads why, and the service goes on as before."""
    async with started(tmp_path) as stage:
        stage.store.trouble = lambda call: StorageFull("full") if call == "submit" else None
        with pytest.raises(StorageFull):
            await stage.submit(background=background)
        await nothing_is_kept(stage)
        stage.store.trouble = lambda _: None
        assert (await stage.ended(await stage.submit())).status is Status.COMPLETED


@scenario
async def test_a_submit_whose_caller_left_is_whole_or_absent(tmp_path: Path) -> None:
    """A background response that was on its way to the disk runs; nobody has to ask for it."""
    async with started(tmp_path) as stage:
        stage.store.commits.clear()
        asked = asyncio.create_task(stage.submit())
        await turns(20)
        stage.store.commits.set()
        await turns(2)
        asked.cancel()
        await asyncio.gather(asked, return_exceptions=True)
        assert (await stage.ended("r0001")).status is Status.COMPLETED


@scenario
async def test_what_had_no_effect_is_counted_beyond_a_bound(tmp_path: Path) -> None:
    """It stands in every snapshot, so its length is not free; and it is never cut in silence. What the schemas asked
    for in vain stands there too."""
    async with started(tmp_path) as stage:
        stage.runtime.dropped = ("tools[0].parameters.not",)
        for extra in (-1, 5):
            asked = request(ignored=("x",) * (IGNORED_MAX + extra))
            ident = (await stage.engine.submit(stage.principal, asked, [user("a")])).ident
            ignored = (await stage.response(ident))["perdure"]["ignored"]
            last = "and 6 more" if extra > 0 else "tools[0].parameters.not"
            assert ignored == ["x"] * (len(ignored) - 1) + [last]
            assert len(ignored) == IGNORED_MAX + (extra > 0)


@pytest.mark.parametrize(
    ("asked", "used"),
    [
        ({"temperature": None, "top_p": None}, (0.3, 0.7)),
        ({"temperature": 1.0, "top_p": None}, (1.0, 0.7)),
        ({"temperature": None, "top_p": 1.0}, (0.3, 1.0)),
        ({"temperature": 0.0, "top_p": 0.0}, (0.0, 0.0)),
    ],
)
@scenario
async def test_a_request_that_does_not_say_gets_the_sampling_of_its_model(
    tmp_path: Path, asked: dict[str, Any], used: tuple[float, float]
) -> None:
    """Each field for itself. What is shown, kept and drawn by is the same, and a restart on a model that recommends
    something else changes nothing of it."""
    async with started(tmp_path) as stage:
        stage.runtime.cards[MODEL] = sampled(stage, 0.3, 0.7)
        stage.runtime.play("Hello", Script(gates={3: asyncio.Event()}))
        ident = await stage.submit("Hello", **asked)
        task = await stage.store.until(ident, lambda task: task.tokens_kept == 3)
        stage.runtime.cards[MODEL] = sampled(stage, 2.0, 0.1)
        stage.runtime.play("Hello", Script())
        await stage.restart()
        await stage.ended(ident)
        shown = await stage.response(ident)
        assert (shown["temperature"], shown["top_p"]) == used
        snapshots = [event.snapshot for event in await stage.log(ident) if event.snapshot is not None]
        assert {(told["temperature"], told["top_p"]) for told in map(msgspec.json.decode, snapshots)} == {used}
        kept = msgspec.json.decode(task.request, type=CreateRequest)
        assert (kept.temperature, kept.top_p) == used
        assert {(job.sampling.temperature, job.sampling.top_p) for job in stage.runtime.jobs} == {used}
        assert len(stage.runtime.jobs) == 2


def sampled(stage: Stage, temperature: float, top_p: float) -> ModelCard:
    """The model, with another recommendation."""
    return msgspec.structs.replace(stage.runtime.cards[MODEL], temperature=temperature, top_p=top_p)
