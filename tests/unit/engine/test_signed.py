"""The one rule of signed reads, on every order of versions, reads and failures."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

import pytest

from perdure.domain.errors import NotFound, StorageFailed, Unavailable
from perdure.engine.signed import Ask, Found, NotModified, Reading, Signed, Signer

T = TypeVar("T")
ASK = Ask(1, "/v1/tasks?", "1.0")


class Versions:
    """Gives out versions in the order of the script; an exception in it is raised. `asked` counts."""

    def __init__(self, *script: str | Exception) -> None:
        self._script = list(script)
        self.asked = 0

    async def version(self) -> str:
        self.asked += 1
        given = self._script.pop(0)
        if isinstance(given, Exception):
            raise given
        return given


class Shelf:
    """What is read: `find` and `render` note that they were called, and raise where there is an error for them."""

    def __init__(self, content: str = "content", settled: str | None = None) -> None:
        self.content = content
        self.settled = settled
        self.fail_find: Exception | None = None
        self.fail_render: Exception | None = None
        self.steps: list[str] = []

    async def find(self) -> Found[str]:
        self.steps.append("find")
        if self.fail_find is not None:
            raise self.fail_find
        return Found(self._render, self.settled)

    async def _render(self) -> str:
        self.steps.append("render")
        if self.fail_render is not None:
            raise self.fail_render
        return self.content


def signed(
    versions: Versions,
    shelf: Shelf,
    ask: Ask = ASK,
    report: Callable[[str, BaseException], None] = lambda _what, error: pytest.fail(repr(error)),
) -> Signed[str] | NotModified:
    """One read by the rule; a report is a failure unless a test takes it."""
    return asyncio.run(_bounded(Signer(versions, report)(Reading(shelf.find), ask)))


async def _bounded(work: Awaitable[T]) -> T:
    async with asyncio.timeout(5):
        return await work


def marked(versions: Versions, shelf: Shelf, ask: Ask = ASK) -> str:
    """The mark of a read that has one."""
    answer = signed(versions, shelf, ask)
    assert isinstance(answer, Signed)
    assert answer.mark is not None
    return answer.mark


def asking(*known: str, **other: Any) -> Ask:
    """Somebody who has marks."""
    given: dict[str, Any] = {"client_id": 1, "target": "/v1/tasks?", "build": "1.0", **other}
    return Ask(known=frozenset(known), **given)


@pytest.mark.proves("S1")
def test_equal_versions_around_a_read_mark_it() -> None:
    """Both are taken, one before anything is looked at and one after everything is read."""
    versions, shelf = Versions("a", "a"), Shelf()
    answer = signed(versions, shelf)
    assert isinstance(answer, Signed)
    assert (answer.value, versions.asked, shelf.steps) == ("content", 2, ["find", "render"])
    assert answer.mark is not None


@pytest.mark.proves("S1", "S2")
@pytest.mark.parametrize(("before", "after"), [("a", "b"), ("b", "a")])
def test_different_versions_leave_the_answer_whole_and_without_a_mark(before: str, after: str) -> None:
    """It is no failure; and neither of the two is put on the answer."""
    assert signed(Versions(before, after), Shelf()) == Signed("content", None)


@pytest.mark.proves("S2")
def test_the_version_before_is_taken_before_the_first_look() -> None:
    """What is found belongs to the answer: a commit between the look and a later version would go unnoticed."""
    order: list[str] = []

    class Told(Versions):
        async def version(self) -> str:
            order.append("version")
            return await super().version()

    shelf = Shelf()
    shelf.steps = order
    signed(Told("a", "a"), shelf)
    assert order == ["version", "find", "render", "version"]


@pytest.mark.proves("S4")
@pytest.mark.parametrize(
    "script",
    [
        (StorageFailed("busy"), "a"),
        ("a", StorageFailed("busy")),
        (Unavailable("closed"), Unavailable("closed")),
    ],
)
def test_a_version_that_fails_costs_the_mark_and_nothing_else(script: Sequence[str | Exception]) -> None:
    """Before, after, or both."""
    assert signed(Versions(*script), Shelf()) == Signed("content", None)


@pytest.mark.proves("S4")
def test_a_fault_in_the_version_costs_the_mark_and_is_told() -> None:
    """What nobody foresaw does not take the answer away either."""
    told: list[tuple[str, BaseException]] = []
    fault = RuntimeError("novel")
    answer = signed(Versions(fault, "a"), Shelf(), report=lambda what, error: told.append((what, error)))
    assert answer == Signed("content", None)
    assert told == [("version", fault)]


@pytest.mark.proves("S5")
@pytest.mark.parametrize("script", [("a", "a"), ("a", "b"), (StorageFailed("busy"), StorageFailed("busy"))])
@pytest.mark.parametrize("part", ["fail_find", "fail_render"])
def test_an_error_of_the_read_is_the_callers(part: str, script: Sequence[str | Exception]) -> None:
    """Its own error, whatever the versions were."""
    shelf = Shelf()
    error = StorageFailed("the read")
    setattr(shelf, part, error)
    with pytest.raises(StorageFailed) as raised:
        signed(Versions(*script), shelf)
    assert raised.value is error


@pytest.mark.proves("S6")
def test_a_known_mark_spares_the_read() -> None:
    """Nothing is rendered, and one version is enough."""
    mark = marked(Versions("a", "a"), Shelf())
    versions, shelf = Versions("a"), Shelf()
    assert signed(versions, shelf, asking("other", mark)) == NotModified(mark)
    assert (versions.asked, shelf.steps) == (1, ["find"])


def test_a_mark_of_another_state_is_not_recognised() -> None:
    """Neither when the state had moved before the read nor when it moves during it back to what the client has."""
    mark = marked(Versions("a", "a"), Shelf("first"))
    assert signed(Versions("b", "b"), Shelf("second"), asking(mark)) == Signed(
        "second", marked(Versions("b", "b"), Shelf("second"))
    )
    assert signed(Versions("b", "a"), Shelf("second"), asking(mark)) == Signed("second", None)


def test_nobody_is_told_not_modified_without_a_version() -> None:
    """What cannot be told cannot be equal either."""
    mark = marked(Versions("a", "a"), Shelf())
    failed = StorageFailed("busy")
    assert signed(Versions(failed), Shelf(), asking(mark)) == Signed("content", None)


@pytest.mark.parametrize(
    "other", [{"client_id": 2}, {"target": "/v1/tasks?limit=2"}, {"target": "/v1/tasks"}, {"build": "1.1"}]
)
@pytest.mark.parametrize("settled", [None, "done"])
def test_a_mark_holds_for_one_client_one_target_and_one_build(other: dict[str, Any], settled: str | None) -> None:
    """The same state is another mark to anybody and anything else."""
    mark = marked(Versions("a", "a"), Shelf(settled=settled))
    assert marked(Versions("a", "a"), Shelf(settled=settled), asking(**other)) != mark
    assert isinstance(signed(Versions("a", "a"), Shelf(settled=settled), asking(mark, **other)), Signed)


def test_the_parts_of_a_mark_cannot_run_into_one_another() -> None:
    """Where one ends and the next begins is part of it."""
    assert asking(target="/a", build="b1").mark("version", "x") != asking(target="/ab", build="1").mark(
        "version", "x"
    )
    assert asking(client_id=1).mark("version", "12") != asking(client_id=21).mark("version", "1")


def test_what_is_settled_keeps_its_mark_whatever_else_is_committed() -> None:
    """No later version is taken, and a commit during the read does not take the mark away."""
    mark = marked(Versions("a"), Shelf(settled="done"))
    assert marked(Versions("b"), Shelf(settled="done")) == mark
    assert signed(Versions("c"), Shelf(settled="done"), asking(mark)) == NotModified(mark)


def test_what_is_settled_has_its_mark_without_any_version() -> None:
    """A version that fails is nothing to it."""
    mark = marked(Versions("a"), Shelf(settled="done"))
    failed = StorageFailed("busy")
    assert signed(Versions(failed), Shelf(settled="done")) == Signed("content", mark)
    assert signed(Versions(failed), Shelf(settled="done"), asking(mark)) == NotModified(mark)


def test_a_state_and_what_is_settled_in_it_are_told_apart() -> None:
    """A version and an identity of the same letters are two marks, and a mark of the one does not open the other."""
    moving = marked(Versions("x", "x"), Shelf())
    settled = marked(Versions("x", "x"), Shelf(settled="x"))
    assert moving != settled
    assert isinstance(signed(Versions("x", "x"), Shelf("end", settled="x"), asking(moving)), Signed)


@pytest.mark.parametrize("settled", [None, "done"])
def test_whoever_may_not_see_it_any_more_is_told_so_though_he_has_the_mark(settled: str | None) -> None:
    """The look comes before the comparison, each time."""
    shelf = Shelf(settled=settled)
    mark = marked(Versions("a", "a"), shelf)
    shelf.fail_find = NotFound("gone")
    with pytest.raises(NotFound):
        signed(Versions("a"), shelf, asking(mark))


def test_a_reading_can_be_awaited_for_its_value_alone() -> None:
    """With its errors, and as often as one likes."""

    async def twice() -> tuple[str, str]:
        reading = Reading(Shelf().find)
        return await reading, await reading

    assert asyncio.run(_bounded(twice())) == ("content", "content")
    shelf = Shelf()
    shelf.fail_render = NotFound("gone")

    async def read() -> str:
        return await Reading(shelf.find)

    with pytest.raises(NotFound):
        asyncio.run(_bounded(read()))
