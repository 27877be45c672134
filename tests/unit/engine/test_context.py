"""What a response answers: the conversation that it goes on from, and what cannot be gone on from."""

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.unit.engine.stage import Stage, request, scenario, started, user

from perdure.domain.errors import InvalidRequest
from perdure.domain.items import Item, conversation
from perdure.domain.lifecycle import Status
from perdure.domain.limits import INPUT_ITEMS_MAX, REFERENCED_RESPONSES_MAX
from perdure.domain.model import Message
from perdure.domain.parts import CallArguments, CallBegin, CallEnd, Logprob, Part, Text
from perdure.domain.principal import ALL_SCOPES, Principal
from perdure.engine import read, submit
from perdure.engine.kept import input_of
from perdure.engine.service import Listed
from perdure.ports.runtime import JobFailed
from perdure.testing.scripted_runtime import Script
from perdure.testing.store_steps import add_client

from .conversing import answered, call, chained, kept, output, result, send

TURNS = 50


@pytest.mark.proves("A-20")
@scenario
async def test_the_earlier_turns_are_in_the_prompt(tmp_path: Path) -> None:
    """Input, output, input, in this order; the instructions of the first are not, those of the second are."""
    async with started(tmp_path) as stage:
        stage.runtime.play("Be brief.My name is Ada.", Script(2, shows={0: (Text("Hello Ada."),)}))
        first = await answered(stage, [user("My name is Ada.")], instructions="Be brief.")
        await answered(stage, [user("What is my name?")], instructions="Be kind.", **chained(first))
        assert stage.runtime.prompts[-1].messages == (
            Message("system", "Be kind."),
            Message("user", "My name is Ada."),
            Message("assistant", "Hello Ada."),
            Message("user", "What is my name?"),
        )


@scenario
async def test_items_keep_their_ids_and_their_order_down_the_chain(tmp_path: Path) -> None:
    """The parent's as they are called there; each own one by its place. A deleted parent takes nothing with it."""
    async with started(tmp_path) as stage:
        first = await answered(stage, [user("one"), {**user("two"), "id": "mine"}])
        second = await answered(stage, [user("three")], **chained(first))
        await stage.delete(first)
        third = await answered(stage, [user("four")], **chained(second))
        assert [item["id"] for item in await kept(stage, third)] == [
            f"msg_{first}_in0",
            "mine",
            f"msg_{first}_0",
            f"msg_{second}_in0",
            f"msg_{second}_0",
            f"msg_{third}_in0",
        ]
        assert (await stage.response(third))["previous_response_id"] == f"resp_{second}"


@scenario
async def test_nothing_new_is_needed_to_go_on(tmp_path: Path) -> None:
    """The conversation so far is answered again."""
    async with started(tmp_path) as stage:
        first = await answered(stage, [user("one")])
        second = await answered(stage, [], **chained(first))
        assert [item["id"] for item in await kept(stage, second)] == [f"msg_{first}_in0", f"msg_{first}_0"]


@scenario
async def test_nothing_at_all_is_nothing_to_answer(tmp_path: Path) -> None:
    """Neither is a call alone that was never finished."""
    async with started(tmp_path) as stage:
        for items in ([], [call("c1", '{"a":', status="incomplete")]):
            await refused(stage, items, "input", "empty_input")


async def refused(stage: Stage, items: list[Item], param: str, code: str, **fields: Any) -> str:
    """A create and a count are refused alike, and nothing is kept; returns what the caller is told."""
    before = len(await stage.store.tasks(1, status=None, limit=1000, after=None, ascending=True))
    for verb in (send, count):
        with pytest.raises(InvalidRequest) as error:
            await verb(stage, items, **fields)
        assert (error.value.param, error.value.error_code) == (param, code)
    assert len(await stage.store.tasks(1, status=None, limit=1000, after=None, ascending=True)) == before
    return error.value.message


async def count(stage: Stage, items: list[Item], **fields: Any) -> object:
    return await stage.engine.input_tokens(stage.principal, request(**fields), items)


@pytest.mark.proves("A-20", "C-19")
@scenario
async def test_only_what_is_stored_and_ones_own_can_be_gone_on_from(tmp_path: Path) -> None:
    """Unknown, malformed, somebody else's, not stored, deleted, over by its age: one answer."""
    async with started(tmp_path, retention_seconds=3600) as stage:
        mine = await answered(stage, [user("mine")])
        ephemeral = await answered(stage, [user("passing")], store=False)
        deleted = await answered(stage, [user("deleted")])
        await stage.delete(deleted)
        other = Principal(await add_client(stage.store, "other", b"o" * 32), "other", ALL_SCOPES)
        ours, stage.principal = stage.principal, other
        await refused(stage, [user("x")], "previous_response_id", "previous_response_not_found", **chained(mine))
        stage.principal = ours
        for previous in (
            *(f"resp_{name}" for name in ("nothing", ephemeral, deleted, f"resp_{mine}", f"{mine} ", "")),
            *(mine, f"task_{mine}", "\x00"),
        ):
            fields = {"previous_response_id": previous}
            await refused(stage, [user("x")], "previous_response_id", "previous_response_not_found", **fields)
        stage.clock.advance(3601)
        await stage.store.gone(mine)
        await refused(stage, [user("x")], "previous_response_id", "previous_response_not_found", **chained(mine))


@scenario
async def test_what_is_over_but_not_purged_yet_is_not_there(tmp_path: Path) -> None:
    """A response that is being deleted is hidden, though its rows are there until its end."""
    async with started(tmp_path) as stage:
        stage.runtime.play("held", Script(gates={1: asyncio.Event()}))
        held = await send(stage, [user("held")])
        await stage.store.reaches(held, Status.RUNNING)
        await refused(stage, [user("x")], "previous_response_id", "previous_response_not_finished", **chained(held))
        await stage.delete(held)
        await refused(stage, [user("x")], "previous_response_id", "previous_response_not_found", **chained(held))


@scenario
async def test_a_parent_that_is_deleted_meanwhile_is_not_there(tmp_path: Path) -> None:
    """Nothing of what is left of it is taken for its conversation."""
    async with started(tmp_path) as stage:
        first = await answered(stage, [user("one")])

        async def purge(task: Any) -> None:
            stage.store.after_task = None
            await stage.store.purge([task.id])

        stage.store.after_task = purge
        with pytest.raises(InvalidRequest) as error:
            await send(stage, [user("two")], **chained(first))
        assert error.value.error_code == "previous_response_not_found"


@scenario
async def test_every_way_to_end_can_be_gone_on_from(tmp_path: Path) -> None:
    """What was said before the end stands there; a call that was cut in its arguments does not, and is named."""
    async with started(tmp_path) as stage:
        cut: dict[int, tuple[Part, ...]] = {
            0: (Text("Let me look."),),
            1: (CallBegin("look"), CallArguments('{"place":')),
        }
        whole: dict[int, tuple[Part, ...]] = {1: (CallBegin("look"), CallArguments("{}"), CallEnd())}
        stage.runtime.play("cut", Script(shows=cut))
        stage.runtime.play("fails", Script(shows=cut, troubles=[(2, JobFailed("no"))]))
        stage.runtime.play("held", Script(shows={**cut, **whole}, gates={2: asyncio.Event()}))
        ends = {"cut": (Status.INCOMPLETE, 2), "fails": (Status.FAILED, 9), "held": (Status.CANCELLED, 9)}
        for prompt, (status, tokens) in ends.items():
            ident = await send(stage, [user(prompt)], max_output_tokens=tokens)
            if status is Status.CANCELLED:
                await stage.store.until(ident, lambda task: task.tokens_kept == 2)
                await stage.cancel(ident)
            assert (await stage.ended(ident)).status is status
            child = await answered(stage, [user("Go on.")], **chained(ident))
            items = await kept(stage, child)
            broken = [] if status is Status.CANCELLED else [f"fc_{ident}_1"]
            calls = [item for item in items if item["type"] == "function_call"]
            assert [each["id"] for each in calls] == ([f"fc_{ident}_1"] if not broken else [])
            assert items[1]["content"][0]["text"] == "Let me look."
            assert (await stage.response(child))["perdure"]["ignored"] == broken
            assert [item["id"] for item in await output(stage, ident)] == [f"msg_{ident}_0", f"fc_{ident}_1"]


@scenario
async def test_the_result_of_a_call_needs_the_call(tmp_path: Path) -> None:
    """In the request before it, or in what it goes on from; what was cut off counts as not there."""
    async with started(tmp_path) as stage:
        await refused(stage, [user("x"), result("c1", "y")], "input[1].call_id", "call_not_found")
        await refused(stage, [result("c1", "y"), call("c1", "{}")], "input[0].call_id", "call_not_found")
        broken = call("c1", "{", status="incomplete")
        told = await refused(stage, [user("x"), broken, result("c1", "y")], "input[2].call_id", "call_not_found")
        assert "stands before its output" not in told  # it does stand there
        assert "arguments" in told
        await refused(stage, [user("x"), call("c1", "[]")], "input[1].arguments", "invalid_value")
        await answered(stage, [user("x"), call("c1", "{}"), result("c1", "y")])
        far = '{"n": 1e999, "m": %s.5}' % ("9" * 400)  # no number is too large for a grammar
        await answered(stage, [user("x"), call("c1", far), result("c1", "y")])
        stage.runtime.play("call", Script(2, shows={0: (CallBegin("f"), CallArguments("{}"), CallEnd())}))
        first = await answered(stage, [user("call")])
        (made,) = await output(stage, first)
        assert made["type"] == "function_call"
        child = await answered(stage, [result(made["call_id"], "y")], **chained(first))
        assert [item["type"] for item in await kept(stage, child)] == [
            "message",
            "function_call",
            "function_call_output",
        ]


@scenario
async def test_an_item_stands_once_in_a_conversation(tmp_path: Path) -> None:
    """Whoever sends again what he goes on from is told, as by OpenAI, instead of having it read twice."""
    async with started(tmp_path) as stage:
        twice = {**user("x"), "id": "a"}
        await refused(stage, [twice, user("y"), twice], "input[2].id", "duplicate_item")
        first = await answered(stage, [user("one")])
        again = await output(stage, first)
        await refused(stage, again, "input[0].id", "duplicate_item", **chained(first))
        await refused(stage, [reference(f"msg_{first}_in0")], "input[0].id", "duplicate_item", **chained(first))


def reference(item_id: str) -> Item:
    return {"type": "item_reference", "id": item_id}


@scenario
async def test_a_reference_stands_for_the_item(tmp_path: Path) -> None:
    """Of the input or the output of any stored response, whole and with its id."""
    async with started(tmp_path) as stage:
        first = await answered(stage, [user("one")])
        second = await answered(stage, [user("two")])
        wanted = [f"msg_{second}_0", f"msg_{first}_in0", f"msg_{second}_in0"]
        third = await answered(stage, [*map(reference, wanted), user("three")])
        items = await kept(stage, third)
        assert [item["id"] for item in items] == [*wanted, f"msg_{third}_in3"]
        assert items[:1] == await output(stage, second)
        assert items[1:3] == [(await kept(stage, ident))[0] for ident in (first, second)]


@scenario
async def test_a_reference_to_nothing_is_refused_where_it_stands(tmp_path: Path) -> None:
    """Unknown, of another's, of what is not stored, not written yet, or of a name that was not given here."""
    async with started(tmp_path, slots=2) as stage:
        mine = await answered(stage, [{**user("mine"), "id": "own_name"}])
        ephemeral = await answered(stage, [user("passing")], store=False)
        stage.runtime.play("held", Script(gates={1: asyncio.Event()}))
        held = await send(stage, [user("held")])
        places = (f"{ephemeral}_0", f"{mine}_1", f"{mine}_in1", "x_0", f"{held}_0")
        for item_id in (*(f"msg_{place}" for place in places), f"fc_{mine}_0", "own_name", "msg", ""):
            await refused(stage, [user("x"), reference(item_id)], "input[1].id", "item_not_found")
        await answered(stage, [reference(f"msg_{mine}_0")])
        stage.principal = Principal(await add_client(stage.store, "other", b"o" * 32), "other", ALL_SCOPES)
        await refused(stage, [reference(f"msg_{mine}_0")], "input[0].id", "item_not_found")
        await refused(
            stage,
            [reference(f"msg_r{n}_0") for n in range(REFERENCED_RESPONSES_MAX + 1)],
            "input",
            "out_of_range",
        )


@scenario
async def test_the_whole_conversation_is_bounded(tmp_path: Path) -> None:
    """Not each turn for itself."""
    async with started(tmp_path, window=100_000) as stage:
        first = await answered(stage, [user("x")] * (INPUT_ITEMS_MAX - 2))
        second = await answered(stage, [user("y")], **chained(first))
        await refused(stage, [user("y")], "previous_response_id", "out_of_range", **chained(second))


@scenario
async def test_probabilities_are_not_handed_down(tmp_path: Path) -> None:
    """They are the parent's; a conversation would grow twentyfold by them."""
    async with started(tmp_path) as stage:
        text = Text("Hi", (Logprob("Hi", -0.5, (72, 105)),))
        stage.runtime.play("one", Script(2, shows={0: (text,)}))
        first = await answered(stage, [user("one")], logprobs=True)
        assert (await output(stage, first))[0]["content"][0]["logprobs"]
        second = await answered(stage, [user("two")], **chained(first))
        part = (await kept(stage, second))[1]["content"][0]
        assert (part["text"], part["logprobs"]) == ("Hi", [])


@scenario
async def test_a_long_chain_costs_each_turn_the_same_reads(tmp_path: Path) -> None:
    """Each begins at the moment the last event of the one before arrives; the first word is still there."""
    async with started(tmp_path, window=10**6) as stage:
        reads: list[str] = []
        real = stage.store.received

        async def counted(task_id: int) -> bytes:
            reads.append("received")
            return await real(task_id)

        stage.store.received = counted
        previous: dict[str, Any] = {}
        for turn in range(TURNS):
            ident = await send(stage, [user(f"turn {turn}")], max_output_tokens=1, **previous)
            assert (await stage.follow(ident))[-1].type == "response.incomplete"
            previous = chained(ident)
        assert len(reads) == TURNS - 1
        said = [message.content for message in stage.runtime.prompts[-1].messages if message.role == "user"]
        assert said == [f"turn {turn}" for turn in range(TURNS)]


@pytest.mark.parametrize(
    ("received", "said"),
    [
        (b'"Hello"', [("user", "Hello")]),
        (
            b'[{"role":"user","content":"a"},{"role":"assistant","content":"b","id":null}]',
            [("user", "a"), ("assistant", "b")],
        ),
        (
            b'[{"type":"message","role":"developer","content":[{"type":"text","text":"a"}]},{"role":"user","content":""}]',
            [("system", "a"), ("user", "")],
        ),
    ],
)
def test_what_the_first_version_kept_is_read_in_normal_form(received: bytes, said: list[tuple[str, str]]) -> None:
    """With ids that are the same each time."""
    items = input_of(received, "abc")
    assert items == input_of(received, "abc")
    assert input_of(msgspec.json.encode(items), "other") == items
    assert [item["id"] for item in items] == [f"msg_abc_in{place}" for place in range(len(said))]
    assert [(message.role, message.content) for message in conversation(None, items)] == said
    for item in items:
        assert item.keys() == {"id", "type", "role", "status", "content"}
        kind = "output_text" if item["role"] == "assistant" else "input_text"
        assert {part["type"] for part in item["content"]} == {kind}


@pytest.mark.proves("A-24")
@scenario
async def test_pages_of_items_are_the_same_after_a_restart(tmp_path: Path) -> None:
    """25 items without ids, in pages of ten, both ways: each once, in order, and never under another name."""
    async with started(tmp_path) as stage:
        ident = await answered(stage, [user(f"number {n}") for n in range(25)])

        async def pages(*, ascending: bool) -> list[Listed]:
            found, after = list[Listed](), None
            while not found or found[-1].has_more:
                reading = stage.engine.input_items(stage.principal, ident, limit=10, after=after, ascending=ascending)
                found.append(await reading)
                after = found[-1].data[-1][0]
            return found

        before = [await pages(ascending=ascending) for ascending in (True, False)]
        for found in before:
            assert [len(page.data) for page in found] == [10, 10, 5]
        up, down = ([each for page in found for each in page.data] for found in before)
        assert up == down[::-1]
        assert [name for name, _ in up] == [f"msg_{ident}_in{n}" for n in range(25)]
        await stage.restart()
        assert [await pages(ascending=ascending) for ascending in (True, False)] == before


@scenario
async def test_a_conversation_is_bounded_in_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With all that it goes on from; each turn alone would be small enough."""
    monkeypatch.setattr(submit, "CONTEXT_MAX_BYTES", 700)
    async with started(tmp_path) as stage:
        first = await answered(stage, [user("x" * 200)], max_output_tokens=1)
        await refused(stage, [user("y" * 200)], "input", "out_of_range", **chained(first))
        await answered(stage, [user("y" * 200)])


@scenario
async def test_a_page_of_responses_ends_before_it_is_too_large(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """But never before its first one; unfinished ones stand there as they are now. Nothing is lost in between."""
    async with started(tmp_path) as stage:
        stage.runtime.play("held", Script(gates={1: asyncio.Event()}))
        names = [await answered(stage, [user("x")]) for _ in range(3)]
        names.append(await send(stage, [user("held")]))
        await stage.store.until(names[-1], lambda task: task.tokens_kept == 1)
        sizes = [len(await stage.engine.response(stage.principal, name)) for name in names]
        for most, counts in ((1, [1, 1, 1, 1]), (sum(sizes[:2]), [2, 2]), (sum(sizes), [4])):
            monkeypatch.setattr(read, "RESPONSES_PAGE_MAX_BYTES", max(most, sum(sizes[2:])) if most > 1 else 1)
            seen, after, pages = list[tuple[str, bytes]](), None, list[int]()
            while True:
                page = await stage.engine.responses(stage.principal, limit=9, after=after, ascending=True)
                seen += page.data
                pages.append(len(page.data))
                after = page.data[-1][0].removeprefix("resp_")
                if not page.has_more:
                    break
            assert pages == counts
            assert seen == [(f"resp_{name}", await stage.engine.response(stage.principal, name)) for name in names]
