"""What the looks at the log add up to: numbers in, lines out (W3, W4, W5, W7, W11)."""

import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.storage.sqlite.connection import LOG_SIZE_MAX_BYTES
from perdure.storage.sqlite.log_watch import Line, LogWatch

PAGE_BYTES = 4096
LIMIT = 16_384
Look = tuple[int, int, int]


def watch() -> LogWatch:
    """One at the usual page size and the real limit."""
    return LogWatch(PAGE_BYTES, LOG_SIZE_MAX_BYTES)


def levels(lines: tuple[Line, ...]) -> list[int]:
    """The levels of lines."""
    return [line.level for line in lines]


def played(*looks: Look) -> tuple[LogWatch, list[list[int]]]:
    """The watch after some looks, and what each of them told."""
    it = watch()
    return it, [levels(it.look(*each)) for each in looks]


WARN, INFO = [logging.WARNING], [logging.INFO]
SILENT: list[int] = []


@pytest.mark.proves("W3", "W6")
@pytest.mark.parametrize(("page_bytes", "limit"), [(512, 131_072), (1_024, 65_536), (4_096, 16_384), (65_536, 1_024)])
def test_the_threshold_is_the_limit_of_the_size_in_the_databases_own_pages(page_bytes: int, limit: int) -> None:
    """One page above it, and not all moved: told. At it, or all moved: not."""
    told = {pages: LogWatch(page_bytes, LOG_SIZE_MAX_BYTES).look(0, pages, 5) for pages in (limit, limit + 1)}
    assert levels(told[limit]) == SILENT
    assert levels(told[limit + 1]) == WARN
    assert LogWatch(page_bytes, LOG_SIZE_MAX_BYTES).look(0, limit + 1, limit + 1) == ()
    assert LogWatch(page_bytes, LOG_SIZE_MAX_BYTES).limit_pages == limit


@pytest.mark.proves("W3")
@pytest.mark.parametrize("busy", [0, 1])
def test_busy_is_no_sign(busy: int) -> None:
    """Neither does it take to be told, nor is it enough."""
    assert played((busy, LIMIT + 1, 5))[1] == [WARN]
    assert played((busy, 1_000, 5), (busy, LIMIT + 1, LIMIT + 1))[1] == [SILENT, SILENT]


@pytest.mark.proves("W4", "W10")
@pytest.mark.parametrize("nothing", [(1, -1, -1), (0, -1, -1), (1, 20_000, -1), (0, -1, 20_000), (-1, 5, 5)])
def test_what_was_not_measured_changes_nothing(nothing: Look) -> None:
    """No line, no other state, and what was gathered stays: neither a recovery nor a repeat comes of it."""
    it, told = played(nothing, (0, 20_000, 5), nothing, (0, 39_999, 5), nothing)
    assert told == [SILENT, WARN, SILENT, SILENT, SILENT]
    assert (it.state, it.pages, it.moved, it.unmeasured) == ("held", 39_999, 5, 3)
    assert levels(it.look(0, 20_000, 20_000)) == INFO
    growing, told = played((0, 17_000, 17_000), nothing, (0, 18_000, 18_000), nothing)
    assert told == [SILENT, SILENT, WARN, SILENT]
    assert growing.state == "growing"


@pytest.mark.proves("W5")
def test_without_the_page_size_nothing_is_told() -> None:
    """Whatever the numbers are; they can still be seen."""
    it = LogWatch(None, LOG_SIZE_MAX_BYTES)
    looks = [(0, 10_000_000, 5), (0, 20_000_000, 20_000_000), (0, 30_000_000, 30_000_000)]
    assert [it.look(*each) for each in looks] == [(), (), ()]
    assert (it.state, it.pages, it.moved, it.limit_pages) == ("ok", 30_000_000, 30_000_000, None)


@pytest.mark.proves("W7", "W10")
def test_a_held_log_is_told_on_entering_and_when_it_has_doubled() -> None:
    """Measured against the size that was told, not against the last look; shrinking in between changes nothing."""
    sizes = [LIMIT, 20_000, 20_000, 39_999, 17_000, 39_999, 40_000, 40_001, 79_999, 80_000]
    _, told = played(*((0, size, 5) for size in sizes))
    assert told == [SILENT, WARN, SILENT, SILENT, SILENT, SILENT, WARN, SILENT, SILENT, WARN]


@pytest.mark.proves("W7", "W10")
def test_recovery_is_told_once_and_only_when_the_log_was_moved_whole() -> None:
    """Small is not whole; whole is, whatever its size; and then the next trouble is told anew."""
    it, told = played((0, 20_000, 5), (0, 3, 2), (0, 0, 0), (0, 0, 0))
    assert told == [WARN, SILENT, INFO, SILENT]
    assert it.state == "ok"
    assert played((0, 500, 500), (0, 20_000, 5), (0, 20_000, 20_000), (0, 20_000, 5))[1] == [SILENT, WARN, INFO, WARN]


@pytest.mark.proves("W10")
def test_a_small_log_that_is_not_whole_is_no_trouble() -> None:
    """Readers come and go."""
    it, told = played((0, 500, 3), (0, LIMIT, 3), (0, 500, 500))
    assert told == [SILENT, SILENT, SILENT]
    assert it.state == "ok"


@pytest.mark.proves("W11")
def test_a_log_that_is_moved_whole_each_time_and_grows_is_told_too() -> None:
    """Above the limit and larger than when it was last whole; again when it has doubled; then when it is over."""
    sizes = [300, LIMIT, LIMIT + 1, 30_000, 32_769, 32_770, 40_000, 40_000, 20_000, LIMIT, 500]
    it, told = played(*((0, size, size) for size in sizes))
    quiet = [SILENT, SILENT, WARN, SILENT, SILENT, WARN, SILENT, SILENT, SILENT]
    assert told == [*quiet, INFO, SILENT]
    assert it.state == "ok"


@pytest.mark.proves("W11")
def test_a_long_log_that_does_not_grow_is_not_growing() -> None:
    """As at a start on a long log, or on a service at rest."""
    assert played(*[(0, 20_000, 20_000)] * 3)[1] == [SILENT, SILENT, SILENT]
    assert played((0, 20_000, 20_000), (0, 20_001, 20_001))[1] == [SILENT, WARN]


@pytest.mark.proves("W11")
def test_the_two_signs_do_not_quieten_each_other() -> None:
    """Each has a state and a patience of its own."""
    it, told = played((0, 17_000, 17_000), (0, 30_000, 30_000), (0, 30_001, 5), (0, 31_000, 31_000))
    assert told == [SILENT, WARN, WARN, INFO]
    assert it.state == "growing"
    assert levels(it.look(0, 59_999, 59_999)) == SILENT
    assert levels(it.look(0, 60_000, 60_000)) == WARN
    assert levels(it.look(0, 5, 4)) == SILENT
    assert levels(it.look(0, 5, 5)) == INFO


@pytest.mark.proves("W11")
def test_what_has_gathered_behind_a_reader_is_not_growth() -> None:
    """The end of a hold is one line, and what comes after it is measured against it."""
    assert played((0, 500, 500), (0, 20_000, 5), (0, 25_000, 25_000), (0, 25_000, 25_000))[1] == [
        SILENT,
        WARN,
        INFO,
        SILENT,
    ]
    assert played((0, 500, 500), (0, 20_000, 5), (0, 25_000, 25_000), (0, 26_000, 26_000))[1][-1] == WARN


def test_a_line_says_how_much_what_usually_holds_it_and_what_to_do() -> None:
    """And claims nobody's fault."""
    (held,) = watch().look(0, 25_600, 5_120)
    for part in ("25600 pages (100.0 MiB)", "16384 pages (64.0 MiB)", "20480 pages (80.0 MiB)", "usually", "end it"):
        assert part in held.text
    it, _ = played((0, 5_120, 5_120))
    (growing,) = it.look(0, 25_600, 25_600)
    for part in ("25600 pages (100.0 MiB)", "16384 pages (64.0 MiB)", "5120 pages (20.0 MiB)", "usually"):
        assert part in growing.text


NUMBERS = st.sampled_from([-1, 0, 3, 500, LIMIT, LIMIT + 1, 20_000, 39_999, 40_000, 80_000, 200_000])
LOOKS = st.lists(st.tuples(st.integers(-1, 1), NUMBERS, NUMBERS), max_size=60)


@pytest.mark.proves("W4", "W7", "W11")
@given(LOOKS)
def test_whatever_is_seen_no_line_comes_without_its_reason(looks: list[Look]) -> None:
    """No recovery from what was not told or is not whole; no sign twice without a doubling; -1 changes nothing."""
    it, told = watch(), {"held": 0, "growing": 0}
    for busy, pages, moved in looks:
        before = (it.state, it.pages, it.moved, dict(vars(it)))
        lines = it.look(busy, pages, moved)
        if min(busy, pages, moved) < 0:
            after = dict(vars(it)) | {"unmeasured": before[3]["unmeasured"]}
            assert (lines, after) == ((), before[3])
            continue
        assert len(lines) <= 1
        for line in lines:
            if line.level == logging.INFO:
                assert before[0] != "ok"
                assert moved >= pages
                told["held"] = 0
                told["growing"] = told["growing"] if pages > LIMIT else 0
            else:
                sign = "held" if moved < pages else "growing"
                assert pages > LIMIT
                assert pages >= 2 * told[sign]
                told[sign] = pages
        assert it.state == next((sign for sign in ("held", "growing") if told[sign]), "ok")
        if pages > LIMIT and moved < pages:
            assert it.state == "held"


@given(LOOKS)
def test_what_was_not_measured_might_as_well_not_have_been_looked_at(looks: list[Look]) -> None:
    """The same lines come without those looks."""
    measured = [look for look in looks if min(look) >= 0]
    one, other = watch(), watch()
    assert [line for look in looks for line in one.look(*look)] == [
        line for look in measured for line in other.look(*look)
    ]
    assert one.state == other.state
