"""The checks with which the benchmarks keep themselves honest, and the sums behind the table."""

from pathlib import Path
from typing import Any

import pytest
from benchmarks import __main__ as program
from benchmarks import creates, generation, seen
from benchmarks.figures import Row, ratio, slope, table
from benchmarks.stream_client import Stream, events_of

from perdure.storage.sqlite.connection import open_writer


def test_a_ratio_is_taken_round_by_round() -> None:
    """A round in which everything was slow counts like any other."""
    found = ratio([10.0, 1.0, 8.0], [20.0, 2.0, 10.0])
    assert found.values == (0.5, 0.5, 0.8)
    assert found.shown() == "0.50 (0.50 to 0.80)"


def test_a_ratio_needs_both_sides_of_every_round() -> None:
    """A side that missed a round is an error, not a shorter list."""
    with pytest.raises(ValueError, match="argument 2"):
        ratio([1.0, 2.0], [1.0])


def test_a_slope_is_what_is_added_for_each_thousand() -> None:
    """Points on a line give its slope."""
    assert slope([(1, 50.0), (2, 50.5), (4, 51.5)]) == pytest.approx(0.5)


def test_figures_go_between_their_marks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What stands around them stays, the figures of the other benchmarks too."""
    marked = {name: (program.BEGIN % name, program.END % name) for name in ("creates", "memory")}
    page = tmp_path / "page.md"
    page.write_text("before\n" + "".join(f"{begin}\nold {name}\n{end}\n" for name, (begin, end) in marked.items()))
    monkeypatch.setattr(program, "PAGE", page)
    program.write_page("creates", table([Row("speed", "3/s")]))
    text = page.read_text()
    begin, end = marked["creates"]
    assert text.startswith(f"before\n{begin}\n")
    assert "| speed | 3/s |" in text[: text.index(end)]
    assert "old creates" not in text
    assert text.endswith(f"{end}\n{marked['memory'][0]}\nold memory\n{marked['memory'][1]}\n")


def test_the_page_has_a_place_for_every_benchmark() -> None:
    """`make bench WRITE=1` finds its marks."""
    page = program.PAGE.read_text()
    for name in (*program.NAMES, *program.BY_HAND):
        assert page.count(program.BEGIN % name) == page.count(program.END % name) == 1


def database(folder: Path, idents: list[str]) -> Path:
    """A database in which tasks of those names are kept."""
    path = folder / "perdure.db"
    connection = open_writer(path)
    connection.execute("CREATE TABLE tasks (ident TEXT)")
    connection.executemany("INSERT INTO tasks VALUES (?)", [(ident,) for ident in idents])
    connection.close()
    return path


def test_creates_that_were_answered_and_kept_pass(tmp_path: Path) -> None:
    """The good case."""
    creates.check(database(tmp_path, ["a", "b"]), {"a", "b"}, {"202": 2}, 2)


@pytest.mark.parametrize(
    ("kept", "answered", "statuses"),
    [
        (["a"], {"a", "b"}, {"202": 2}),
        (["a", "c"], {"a", "b"}, {"202": 2}),
        (["a", "b"], {"a", "b"}, {"202": 1, "429": 1}),
        (["a"], {"a"}, {"202": 1}),
    ],
    ids=["one is lost", "another is kept", "one was refused", "one was not sent"],
)
def test_creates_that_are_not_what_was_answered_fail(
    tmp_path: Path, kept: list[str], answered: set[str], statuses: dict[str, int]
) -> None:
    """No figure without its rows."""
    with pytest.raises(AssertionError):
        creates.check(database(tmp_path, kept), answered, statuses, 2)


def run_of(tokens: int = 8, prompt_tokens: int = 5, cpu: float = 1.0, text: str = "a") -> dict[str, Any]:
    """A run of one stream that took a second."""
    return {
        "seconds": 1.0,
        "cpu": cpu,
        "streams": [{"tokens": tokens, "prompt_tokens": prompt_tokens, "text": text, "first": 0.1}],
    }


def test_runs_of_equal_work_pass() -> None:
    """The good case."""
    generation.check({"ours": run_of(), "bare": run_of(), "peer": run_of()}, 8)


@pytest.mark.parametrize(
    "other",
    [run_of(tokens=7), run_of(prompt_tokens=4), run_of(cpu=1.9)],
    ids=["a shorter text", "a shorter prompt", "a second thread"],
)
def test_runs_of_unequal_work_fail(other: dict[str, Any]) -> None:
    """Who does less, or with more, is not compared."""
    with pytest.raises(AssertionError):
        generation.check({"ours": run_of(), "peer": other}, 8)


def test_texts_are_compared_one_by_one() -> None:
    """The share counts texts that are the same on both sides."""
    turn = {"ours": run_of(text="a"), "bare": run_of(text="a"), "peer": run_of(text="b")}
    assert generation.same({1: [turn]}) == {"same_text_as_bare": "1 of 1", "same_text_as_peer": "0 of 1"}


HEAD = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
FRAMES = [b'event: x\ndata: {"type":"x","sequence_number":%d,"response":{}}\n\n' % number for number in range(3)]
CHUNKS = [b"%x\r\n%b\r\n" % (len(frame), frame) for frame in FRAMES]


def test_events_are_read_out_of_a_chunked_answer() -> None:
    """Every event, in order."""
    came = HEAD + b"".join(CHUNKS) + b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n"
    assert [event["sequence_number"] for event in events_of(came)] == [0, 1, 2]


def test_an_answer_that_is_an_error_is_one() -> None:
    """A refused request has no events to count."""
    with pytest.raises(ConnectionError, match="429"):
        events_of(b"HTTP/1.1 429 Too Many Requests\r\n\r\n{}")


def test_an_event_arrives_with_the_read_that_completes_it() -> None:
    """Half an event is none."""
    came = HEAD + b"".join(CHUNKS)
    half = len(HEAD) + len(CHUNKS[0]) + len(CHUNKS[1]) - 4  # the blank line is missing
    assert Stream(came, reads=[(1.0, half), (2.0, len(came))]).arrivals() == [1.0, 2.0, 2.0]


def test_a_delay_is_taken_for_every_token_of_an_event() -> None:
    """Tokens that were kept together are seen together."""
    stream = {"arrivals": [1.0, 2.0, 3.0], "tokens": 3}
    drawn = {0: 1_500_000_000, 1: 1_750_000_000, 2: 2_900_000_000}
    assert seen.delays(stream, [0, 2, 1], drawn) == pytest.approx([0.5, 0.25, 0.1])


@pytest.mark.parametrize(
    ("counts", "drawn"),
    [([0, 2], {0: 0, 1: 0, 2: 0}), ([0, 1, 1], {0: 0, 1: 0, 2: 0}), ([0, 2, 1], {0: 0, 1: 0, 2: 3_100_000_000})],
    ids=["an event is missing", "a token is missing", "seen before it was drawn"],
)
def test_delays_that_cannot_be_fail(counts: list[int], drawn: dict[int, int]) -> None:
    """What was seen, what is kept and what was drawn have to agree."""
    with pytest.raises(AssertionError):
        seen.delays({"arrivals": [1.0, 2.0, 3.0], "tokens": 3}, counts, drawn)
