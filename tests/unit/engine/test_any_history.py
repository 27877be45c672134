"""Whatever a model writes and whatever befalls it, a stream keeps its grammar and adds up to what was stored.

Hypothesis draws answers of text, reasoning and calls, cut into tokens anyhow, with limits and troubles; and cancels,
deletes and restarts at any call of the store. Who reads the streams shares no code with who writes them.
"""

import asyncio
import tempfile
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, Phase, given, note, settings
from hypothesis import strategies as st
from openai._models import construct_type
from openai._types import omit
from openai.lib.streaming.responses import (
    ResponseFunctionCallArgumentsDeltaEvent,
    ResponseTextDeltaEvent,
)
from openai.lib.streaming.responses._responses import ResponseStreamState
from openai.types.responses import ResponseCompletedEvent, ResponseStreamEvent
from tests.integration.failpoints.zygote import without_waiting

from perdure.domain.errors import NotFound
from perdure.domain.events import Event
from perdure.domain.limits import CRASHES_MAX
from perdure.domain.parts import CallArguments, CallBegin, CallEnd, Logprob, Part, Reasoning, Text, TopLogprob
from perdure.domain.recovery import OnRestart
from perdure.ports.runtime import JobFailed, RuntimeCrashed
from perdure.storage.sqlite import connection
from perdure.testing.scripted_runtime import Script

from .event_reader import RETRIED, EventReader
from .stage import Stage, opened, scenario

EXAMPLES = 100
SLOTS = 2

# What a model writes.


@dataclass(frozen=True)
class Answer:
    """What is drawn for one request. `shows` has the parts that each token but the last stands for."""

    shows: tuple[tuple[Part, ...], ...]
    limit: int | None
    troubles: tuple[tuple[int, str], ...]
    policy: OnRestart
    background: bool

    @property
    def length(self) -> int:
        """In tokens, the end mark counted."""
        return len(self.shows) + 1

    @property
    def tokens(self) -> int:
        """How many are drawn if nothing stops it."""
        return min(self.limit or self.length, self.length)

    @property
    def end(self) -> str:
        """What it comes to if nothing befalls it."""
        return "completed" if self.tokens == self.length else "incomplete"

    def script(self) -> Script:
        """For the runtime. A token that shows nothing comes with the next one that does."""
        kinds = {"failed": JobFailed, "crashed": RuntimeCrashed}
        return Script(
            length=self.length,
            shows=dict(enumerate(self.shows)),
            silent=frozenset(place for place, parts in enumerate(self.shows) if not parts),
            troubles=[(place, kinds[kind](kind)) for place, kind in self.troubles],
        )


def called(name: str, arguments: list[CallArguments]) -> list[Part]:
    """The parts of a whole call."""
    return [CallBegin(name), *arguments, CallEnd()]


def chained(found: Iterable[Iterable[Part]]) -> list[Part]:
    """The parts of several items."""
    return list(chain.from_iterable(found))


letters = st.text('ab {}"\\é\n', min_size=1, max_size=4)
tops = st.builds(TopLogprob, letters, st.just(-0.5), st.just((97,)))
logprobs = st.builds(Logprob, letters, st.just(-1.5), st.just((98, 99)), st.lists(tops, max_size=1).map(tuple))
messages = st.lists(st.builds(Text, letters, st.lists(logprobs, max_size=2).map(tuple)), min_size=1, max_size=3)
thoughts = st.lists(st.builds(Reasoning, letters), min_size=1, max_size=3)
calls = st.builds(
    called,
    st.sampled_from(["f", "get_weather"]),
    st.lists(st.builds(CallArguments, letters), max_size=3),
)
written = st.lists(st.one_of(messages, thoughts, calls), max_size=5).map(chained)


@st.composite
def answers(draw: st.DrawFn) -> Answer:
    """An answer: its parts laid out over tokens, several to one, one to several."""
    shows = list[tuple[Part, ...]]()
    for part in draw(written):
        place = draw(st.sampled_from(["next", "next", "same", "later"]))
        if place == "same" and shows:
            shows[-1] = (*shows[-1], part)
        else:
            shows += [()] * (place == "later") + [(part,)]
    shows += [()] * draw(st.integers(0, 1))
    trouble = st.tuples(st.integers(0, len(shows)), st.sampled_from(["crashed", "crashed", "failed"]))
    background = draw(st.sampled_from([True, True, True, False]))
    return Answer(
        shows=tuple(shows),
        limit=draw(st.none() | st.integers(1, len(shows) + 1)),
        troubles=tuple(draw(st.lists(trouble, max_size=4)) if draw(st.booleans()) else ()),
        policy=draw(st.sampled_from(OnRestart)) if background else OnRestart.FAIL,
        background=background,
    )


def items(parts: Iterable[Part]) -> list[list[Any]]:
    """The items that parts stand for, each as its type and what it holds."""
    found = list[list[Any]]()
    for part in parts:
        kind = found[-1][0] if found else None
        if isinstance(part, Text):
            if kind != "message":
                found.append(["message", "", []])
            found[-1][1] += part.text
            found[-1][2] += msgspec.json.decode(msgspec.json.encode(part.logprobs))
        elif isinstance(part, Reasoning):
            if kind != "reasoning":
                found.append(["reasoning", ""])
            found[-1][1] += part.text
        elif isinstance(part, CallBegin):
            found.append(["function_call", part.name, ""])
        elif isinstance(part, CallArguments):
            found[-1][2] += part.text
    return found


def plain(item: dict[str, Any]) -> list[Any]:
    """An item as `items` has it."""
    if item["type"] == "function_call":
        return ["function_call", item["name"], item["arguments"]]
    (part,) = item["content"]
    return [item["type"], part["text"], *([part["logprobs"]] if item["type"] == "message" else [])]


def begins(output: list[list[Any]], whole: list[list[Any]]) -> bool:
    """Whether the items are the beginning of the whole answer."""
    if not output:
        return True
    *before, last = output
    following = whole[len(before)]
    return before == whole[: len(before)] and all(b[: len(a)] == a for a, b in zip(last, following, strict=True))


def thought(answer: Answer) -> int:
    """How many tokens reasoning takes, however the answer was cut into pieces and commits: those of each piece that
    begins with reasoning, and those that show nothing behind it."""
    count, waiting, thinks = 0, 0, False
    for place in range(answer.tokens):
        parts = answer.shows[place] if place < len(answer.shows) else ()
        waiting += 1
        if parts or place == answer.tokens - 1:
            count += waiting * (isinstance(parts[0], Reasoning) if parts else thinks)
            waiting = 0
        if parts:
            thinks = isinstance(parts[-1], Reasoning)
    return count


# What befalls it.


@dataclass(frozen=True)
class Act:
    """Something that is done when the store has been called so many times since the last act."""

    calls: int
    what: str
    whom: int


@dataclass(frozen=True)
class History:
    """Answers, and what is done to them. The first tells of all restarts."""

    answers: tuple[Answer, ...]
    acts: tuple[Act, ...]

    def untouched(self, number: int) -> bool:
        """Whether nothing befalls an answer that could keep it from its end. Restarts may: they count as crashes
        while it has not got any further."""
        answer = self.answers[number]
        touched = [act for act in self.acts if act.what != "restart" and act.whom % len(self.answers) == number]
        restarts = sum(act.what == "restart" for act in self.acts)
        bearable = 1 if answer.policy is OnRestart.FAIL else CRASHES_MAX
        return not touched and not answer.troubles and restarts < bearable


whats = st.sampled_from(["restart", "restart", "cancel", "delete"])
acts = st.lists(st.builds(Act, st.integers(1, 45), whats, st.integers(0, 5)), max_size=3)
histories = st.builds(History, st.lists(answers(), min_size=1, max_size=3).map(tuple), acts.map(tuple))


@dataclass
class Viewer:
    """Somebody who reads a stream, and comes back with his cursor."""

    stage: Stage
    ident: str
    seen: list[Event] = field(default_factory=list[Event])

    async def read(self) -> None:
        """Read on, to where it ends."""
        last = self.seen[-1].seq if self.seen else -1
        with suppress(NotFound):
            async with self.stage.engine.follow(self.stage.principal, self.ident, last) as events:
                async for event in events:
                    if event is not None:
                        self.seen.append(event)


class Play:
    """A history under way."""

    def __init__(self, stage: Stage, history: History) -> None:
        self.stage = stage
        self.history = history
        self.viewers: list[Viewer] = []
        self._under_way: set[asyncio.Task[None]] = set()
        self._left = 0
        self._come = asyncio.Event()
        stage.store.trouble = self._count

    async def run(self) -> None:
        """Until every stream has ended."""
        await self.stage.engine.start()
        for number, answer in enumerate(self.history.answers):
            prompt = f"prompt {number}"
            self.stage.runtime.play(prompt, answer.script())
            ident = await self.stage.submit(
                prompt,
                background=answer.background,
                max_output_tokens=answer.limit,
                on_restart=answer.policy,
            )
            self.viewers.append(Viewer(self.stage, ident))
            self._start(self.viewers[-1].read())
        for act in self.history.acts:
            await self._moment(act.calls)
            await self._do(act)
        while self._under_way:
            await asyncio.wait(self._under_way)

    async def _do(self, act: Act) -> None:
        if act.what == "restart":
            await self.stage.restart()
            for viewer in self.viewers:
                self._start(viewer.read())
        else:
            verb = self.stage.cancel if act.what == "cancel" else self.stage.delete
            self._start(_asked(verb, self.viewers[act.whom % len(self.viewers)].ident))

    async def _moment(self, calls: int) -> None:
        """Wait until the store has been called so often, or nothing is left to happen."""
        self._left = calls
        self._come.clear()
        come = asyncio.create_task(self._come.wait())
        while self._under_way and not come.done():
            await asyncio.wait((come, *self._under_way), return_when=asyncio.FIRST_COMPLETED)
        come.cancel()

    def _count(self, _call: str) -> None:
        self._left -= 1
        if not self._left:
            self._come.set()

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._under_way.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._under_way.discard(task)
        if not task.cancelled():
            task.result()  # a complaint of the loop fails the test


async def _asked(verb: Callable[[str], Awaitable[None]], ident: str) -> None:
    with suppress(NotFound):
        await verb(ident)


# What must be true.


def read(log: Sequence[Event]) -> EventReader:
    """Read a stream by the grammar."""
    reader = EventReader()
    for event in log:
        reader.read(event.json, len(event.tokens))
    return reader


async def check(stage: Stage, viewer: Viewer, answer: Answer, *, untouched: bool) -> None:
    """Everything that holds for one stream."""
    reader = read(viewer.seen)
    task = await stage.store.task(viewer.ident)
    if task is None or task.hidden:
        return  # deleted: what was seen kept the grammar
    log = list((await stage.store.events(task.id, -1, 1000)).events)
    assert viewer.seen == log
    end = await stage.response(viewer.ident)
    assert end == reader.end
    used = end["usage"]
    assert used["output_tokens"] == reader.drawn
    assert used["output_tokens_details"]["reasoning_tokens"] == reader.reasoned
    assert used["input_tokens"] + used["output_tokens"] == used["total_tokens"]
    if untouched:
        assert end["status"] == answer.end
    parts = [part for shown in answer.shows[: answer.tokens] for part in shown]
    output = [plain(item) for item in end["output"]]
    if end["status"] not in ("completed", "incomplete"):
        assert begins(output, items(parts))
        return
    assert end["status"] == answer.end
    empty = [["message", "", []]] if end["status"] == "completed" else []
    assert output == (items(parts) or empty)
    assert (reader.drawn, reader.reasoned) == (answer.tokens, thought(answer))
    if parts:
        whole = end["status"] == "completed" or isinstance(parts[-1], CallEnd)
        assert end["output"][-1]["status"] == ("completed" if whole else "incomplete")
    if end["status"] == "completed":
        check_by_the_official_client(log, end)


def named(item: dict[str, Any]) -> tuple[Any, ...]:
    """An item with its names; the official client adds fields of its own."""
    return item["id"], item.get("call_id"), item["status"], plain(item)


def check_by_the_official_client(log: Sequence[Event], end: dict[str, Any]) -> None:
    """Its accumulator takes the stream, and has come to the same."""
    state = ResponseStreamState[Any](input_tools=omit, text_format=omit)
    snapshots, final = dict[int, str](), None
    for event in log:
        if event.type == RETRIED:
            snapshots = {}
        taken: Any = construct_type(type_=ResponseStreamEvent, value=msgspec.json.decode(event.json))
        for told in state.handle_event(taken):
            if isinstance(told, ResponseTextDeltaEvent | ResponseFunctionCallArgumentsDeltaEvent):
                snapshots[told.output_index] = told.snapshot
            if isinstance(told, ResponseCompletedEvent):
                final = told.response
    shown = [plain(item) for item in end["output"] if item["type"] != "reasoning"]
    texts = [each[2] if each[0] == "function_call" else each[1] for each in shown]
    assert list(snapshots.values()) == [text for text in texts if text]
    assert final is not None
    assert [named(item.to_dict()) for item in final.output] == [named(item) for item in end["output"]]


def keeps_its_grammar(history: History) -> None:
    """Live through a history, and look at every stream."""
    note(str(history))

    async def play(folder: Path) -> None:
        async with opened(folder, slots=SLOTS) as stage:
            played = Play(stage, history)
            await played.run()
            for number, viewer in enumerate(played.viewers):
                await check(stage, viewer, history.answers[number], untouched=history.untouched(number))
            await stage.stop(seconds=0)
            assert stage.reports == []

    with tempfile.TemporaryDirectory() as folder:
        scenario(play)(Path(folder))


def test_every_stream_keeps_its_grammar_and_adds_up(
    pytestconfig: pytest.Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever was written, cut off, given up, cancelled, deleted and restarted."""
    monkeypatch.setattr(connection, "WRITER", without_waiting(connection.WRITER))
    times = int(pytestconfig.getoption("--store-soak") or 1)
    smaller = [Phase.shrink] * (times > 1)  # to find a smaller history takes minutes
    tried = settings(
        max_examples=EXAMPLES * times,
        deadline=None,
        phases=[Phase.reuse, Phase.generate, *smaller],
        suppress_health_check=[HealthCheck.too_slow],
    )
    tried(given(histories)(keeps_its_grammar))()
