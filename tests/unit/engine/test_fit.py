"""What does not fit the window goes the oldest first, and is named; or the request is refused with the numbers."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.engine.stage import request, scenario, started, user

from perdure.domain.errors import InvalidRequest
from perdure.domain.items import Item, conversation
from perdure.domain.lifecycle import Status
from perdure.domain.model import Encoded, Prompt
from perdure.engine.fit import Fitted, fit, room_wanted
from perdure.ports.runtime import PromptTooLong
from perdure.testing.scripted_runtime import MODEL, ScriptedRuntime, card, encoded

from .conversing import answered, call, chained, kept, result, send

WINDOW = 100


class Choosy(ScriptedRuntime):
    """Its template takes no conversation that does not begin with a user; it says no numbers where that is `mute`."""

    mute = False
    choosy = False

    async def encode(self, model: str, prompt: Prompt) -> Encoded:
        found = await super().encode(model, prompt)
        if self.choosy and next(each.role for each in prompt.messages if each.role != "system") != "user":
            raise InvalidRequest("The template takes only a user first.", param="input")
        if self.mute and len(found.tokens) >= WINDOW:
            raise PromptTooLong("very")
        return found


def message(role: str, text: str) -> Item:
    return {**user(text), "role": role}


def numbered(items: Sequence[Item]) -> list[Item]:
    return [{"id": f"i{place}", **item} for place, item in enumerate(items)]


async def fitted(items: Sequence[Item], runtime: ScriptedRuntime | None = None, **fields: Any) -> Fitted:
    asked = request(truncation="auto", **fields)
    return await fit(runtime or ScriptedRuntime(), card(MODEL, WINDOW), asked, numbered(items))


def test_room_for_the_answer() -> None:
    """A fourth of the window, or what the answer may have, at most half; always one."""
    asked = [(100, None), (100, 10), (100, 60), (1, None), (2, 1), (3, 5)]
    assert [room_wanted(*each) for each in asked] == [25, 10, 50, 1, 1, 1]


@pytest.mark.proves("F-09", "I-08")
@scenario
async def test_the_oldest_go_until_there_is_room_and_are_named(tmp_path: Path) -> None:
    """In the response, in the row that a restart reads, and in no later prompt; they stay in what it answers."""
    async with started(tmp_path, window=WINDOW) as stage:
        items = [
            user("a" * 40),
            message("assistant", "b" * 40),
            user("c" * 40),
            message("assistant", "d" * 20),
            user("e"),
        ]
        ident = await answered(stage, items, truncation="auto", instructions="Brief")
        shown = await stage.response(ident)
        assert shown["perdure"]["truncated"] == [f"msg_{ident}_in0", f"msg_{ident}_in1"]
        assert shown["usage"]["input_tokens"] == 5 + 40 + 20 + 1
        assert (shown["status"], shown["truncation"]) == ("completed", "auto")
        assert len(await kept(stage, ident)) == 5
        child = await answered(stage, [user("f" * 10)], truncation="auto", **chained(ident))
        assert (await stage.response(child))["perdure"]["truncated"][:2] == shown["perdure"]["truncated"]


@pytest.mark.proves("F-09", "I-08")
@scenario
async def test_without_auto_nothing_goes_and_the_numbers_are_told(tmp_path: Path) -> None:
    """How long it is and how much there is room for, also for a count; nothing is kept."""
    async with started(tmp_path, window=WINDOW) as stage:
        long = [user("secret " * 10), user("x" * 130)]
        for verb in (stage.engine.submit, stage.engine.input_tokens):
            with pytest.raises(InvalidRequest, match=r"200 tokens long; tiny holds 100 tokens") as refused:
                await verb(stage.principal, request(), long)
            assert (refused.value.param, refused.value.error_code) == ("input", "context_length_exceeded")
        assert await stage.store.tasks(1, status=None, limit=9, after=None, ascending=True) == []
        assert (
            await stage.engine.input_tokens(stage.principal, request(truncation="auto"), [*long[:1], user("x")]) == 71
        )
        assert (
            await stage.engine.input_tokens(stage.principal, request(truncation="auto"), [*long[:1], user("x" * 60)])
            == 60
        )


@scenario
async def test_what_cannot_fit_is_refused_with_auto_too(tmp_path: Path) -> None:
    """The newest item, instructions and messages of the system never go."""
    async with started(tmp_path, window=WINDOW) as stage:
        for items, fields in (
            ([user("a"), user("b" * 100)], {}),
            ([user("a"), user("b")], {"instructions": "c" * 100}),
            ([message("developer", "c" * 100), user("a"), user("b")], {}),
        ):
            with pytest.raises(InvalidRequest, match=r"without its 1 oldest items is 10[01] tokens long") as refused:
                await send(stage, items, truncation="auto", **fields)
            assert refused.value.error_code == "context_length_exceeded"


@scenario
async def test_a_newest_item_that_leaves_little_room_is_answered_all_the_same() -> None:
    """It would be without truncation; the room is what is wanted, not what is needed."""
    found = await fitted([user("a" * 5), user("b" * 99)])
    assert (len(found.encoded.tokens), found.left_out) == (99, ("i0",))


@scenario
async def test_a_call_goes_with_its_result_and_rules_stay() -> None:
    """Also where the result stands far behind its call; a rest that begins with a user comes first."""
    items = [
        message("system", "s" * 10), user("a" * 30), call("1", "{}"), call("2", "{}"), message("developer", "t" * 10),
        result("2", "y" * 5), result("1", "z" * 5), message("assistant", "b" * 5), user("c" * 30), call("3", "{}"),
        result("3", "d" * 40),
    ]  # fmt: skip
    found = await fitted(items, max_output_tokens=10)
    assert found.left_out == ("i1", "i2", "i3", "i5", "i6", "i7")
    found = await fitted(items, max_output_tokens=20)
    assert found.left_out == ("i1", "i2", "i3", "i5", "i6", "i7", "i8")


@scenario
async def test_where_no_user_comes_later_calls_go_one_by_one() -> None:
    """Each with its own result, though another stands between."""
    items = [
        user("a" * 30), call("1", "{}"), call("2", "{}"), result("2", "y" * 20), result("1", "z" * 20),
        call("3", "{}"), result("3", "d" * 40),
    ]  # fmt: skip
    assert (await fitted(items, max_output_tokens=10)).left_out == ("i0",)
    assert (await fitted(items, max_output_tokens=30)).left_out == ("i0", "i1", "i4")


@scenario
async def test_what_no_model_reads_is_not_said_to_be_left_out() -> None:
    """Reasoning stands in no prompt anyway."""
    thought: Item = {"type": "reasoning", "summary": [], "status": "completed"}
    assert (await fitted([thought, user("a" * 80), thought, user("b")])).left_out == ("i1",)


@scenario
async def test_a_rest_that_the_template_refuses_is_passed_over() -> None:
    """And one that refuses the whole conversation, or all that could be left of it, is heard."""
    runtime = Choosy()
    runtime.choosy = True
    items = [user("a" * 20), message("assistant", "b" * 70), message("assistant", "c" * 5), user("d")]
    assert (await fitted(items, runtime)).left_out == ("i0", "i1", "i2")
    for refused in (items[1:], [user("a" * 90), message("assistant", "b")]):
        with pytest.raises(InvalidRequest, match="template"):
            await fitted(refused, runtime)


def told(items: Sequence[Item]) -> int:
    return len(encoded("".join(each.content for each in conversation(None, items))))


PIECES = st.tuples(st.sampled_from(["user", "assistant", "system"]), st.integers(0, 60))


@given(pieces=st.lists(PIECES, min_size=1, max_size=40), mute=st.booleans())
def test_no_shorter_cut_would_do(pieces: list[tuple[str, int]], mute: bool) -> None:
    """What is left fits, and had one item more been kept, it would not have; few prompts are encoded for it."""

    @scenario
    async def check() -> None:
        items = [message(role, "x" * length) for role, length in [*pieces, ("user", 1)]]
        runtime = Choosy()
        runtime.mute = mute
        most = WINDOW - room_wanted(WINDOW, None)
        try:
            found = await fitted(items, runtime)
        except InvalidRequest:
            assert told([item for item in items if item["role"] == "system"]) + 1 >= WINDOW
            return
        left = [item for item in numbered(items) if item["id"] not in found.left_out]
        assert len(found.encoded.tokens) == told(left)
        talk = [item for item in numbered(items) if item["role"] != "system"]
        assert tuple(item["id"] for item in talk[: len(found.left_out)]) == found.left_out
        assert len(runtime.prompts) <= 12
        users = [n for n in range(1, len(talk)) if talk[n]["role"] == "user"]
        if found.left_out:
            assert len(found.left_out) in users
            before = max([0, *(n for n in users if n < len(found.left_out))])
            gone = {item["id"] for item in talk[:before]}
            assert told([item for item in numbered(items) if item["id"] not in gone]) > most

    check()


@scenario
async def test_few_prompts_are_encoded_for_a_long_conversation() -> None:
    """Ten thousand turns of uneven length: a handful."""
    runtime = ScriptedRuntime()
    items = [user("x" * (1 + n * 7919 % 13)) for n in range(10_000)]
    found = await fitted(items, runtime)
    assert 60 <= len(found.encoded.tokens) <= 75
    assert len(runtime.prompts) <= 6


@scenario
async def test_a_restart_goes_on_with_what_was_left(tmp_path: Path) -> None:
    """The prompt is kept as it was cut; nothing is cut again."""
    async with started(tmp_path, window=WINDOW) as stage:
        ident = await send(stage, [user("a" * 80), user("b" * 10)], truncation="auto")
        prompts = len(stage.runtime.prompts)
        await stage.restart()
        assert (await stage.ended(ident)).status is Status.COMPLETED
        assert (await stage.response(ident))["perdure"]["truncated"] == [f"msg_{ident}_in0"]
        assert stage.runtime.jobs[-1].prompt == encoded("b" * 10)
        assert len(stage.runtime.prompts) == prompts
