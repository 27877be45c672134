"""An accepted response never vanishes (C-25): killed at each of five points it has one defined result.

The process is really gone at each of them. They are gathered in a few lives of one service: the first three in one
kill, each of the others in the life of a process that ends exactly there.
"""

from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.system.doomed import after_the_closing_commit, after_the_last_token, doomed, within_the_closing_commit
from tests.system.field import frozen_load, tokens_drawn
from tests.system.server import Server, check_log, deltas_of, text_of

LONG, SHORT = 1500, 40
FATES = {41: after_the_last_token, 42: within_the_closing_commit, 43: after_the_closing_commit}
"""By the number of tokens of the work that they strike."""


@dataclass(frozen=True)
class Left:
    """A response as the service has it that found it after the kill: the object, its events, its task's history."""

    response: dict[str, Any]
    events: list[dict[str, Any]]
    history: list[dict[str, Any]]
    undisturbed: dict[str, Any]
    drawn: int | None = None

    @property
    def statuses(self) -> list[str]:
        """The states that it went through."""
        return [step["status"] for step in self.history]

    @property
    def notes(self) -> str:
        """The reasons that the history gives."""
        return "; ".join(step["note"] for step in self.history)


Lives = dict[str, Left]


@pytest.fixture(scope="module")
def left(tmp_path_factory: pytest.TempPathFactory, tiny_model: Path) -> Generator[Lives]:
    """What became of a response that was left at each point, each read after the restart."""
    with Server(tmp_path_factory.mktemp("points") / "data", tiny_model, slots=2) as server:
        server.start()
        ids = first_three(server)
        server.kill()
        drawn = dict[str, int]()
        for tokens, fate in FATES.items():
            server.start(*doomed(fate, tokens))
            drawn |= seen_to_their_end(server, ids)
            ids[fate.__name__] = ended_with_its_process(server, tokens)
        server.start()
        drawn |= seen_to_their_end(server, ids)
        yield {point: look(server, found, drawn.get(point)) for point, found in ids.items()}
        assert server.terminate() == 0


def first_three(server: Server) -> dict[str, str]:
    """One with its first text, one whose model is loading, one that waits: a new engine is held as it starts."""
    ids = {"first token": server.create(max_output_tokens=LONG, seed=1)["id"]}
    server.holds(ids["first token"])
    frozen_load(server)
    assert server.task(ids["first token"])["status"] == "running"
    ids["loading"] = server.create(max_output_tokens=SHORT, seed=2)["id"]
    server.reaches(ids["loading"], "loading")
    ids["queued"] = server.create(max_output_tokens=SHORT, seed=3)["id"]
    assert server.task(ids["queued"])["status"] == "queued"
    return ids


def ended_with_its_process(server: Server, tokens: int) -> str:
    """A response that the process does not outlive."""
    found = server.create(max_output_tokens=tokens, seed=tokens)["id"]
    assert server.wait() == -9
    return found


def seen_to_their_end(server: Server, ids: dict[str, str]) -> dict[str, int]:
    """Wait until all have ended; how many tokens this process has drawn for it, noted for the last one."""
    for found in ids.values():
        server.ended(found)
    return {list(ids)[-1]: tokens_drawn(server)}


def look(server: Server, found: str, drawn: int | None) -> Left:
    """All there is to read of a response, and an undisturbed one like it."""
    response = server.get(f"/v1/responses/{found}")
    events = check_log(server.frames(found))
    like = {"max_output_tokens": response["max_output_tokens"], "seed": response["seed"]}
    undisturbed = server.ended(server.create(**like)["id"])
    return Left(response, events, server.task(found)["history"], undisturbed, drawn)


POINTS = ["queued", "loading", "first token", "after_the_last_token", "within_the_closing_commit"]
ALL = [*POINTS, "after_the_closing_commit"]


@pytest.mark.proves("C-25")
@pytest.mark.parametrize("point", ALL)
def test_it_ends_as_an_undisturbed_one(left: Lives, point: str) -> None:
    """With the same text and the same counts, in one attempt, told by one gapless log."""
    found = left[point]
    assert found.response["status"] == found.undisturbed["status"] == "incomplete"
    assert found.response["usage"] == found.undisturbed["usage"]
    assert text_of(found.response) == deltas_of(found.events) == text_of(found.undisturbed)
    assert found.events[-1]["response"] == found.response
    assert found.response["perdure"]["attempt"] == 1


@pytest.mark.proves("C-25")
@pytest.mark.parametrize(
    ("point", "statuses", "reason"),
    [
        ("queued", ["queued", "loading", "running", "incomplete"], None),
        ("loading", ["queued", "loading", "queued", "loading", "running", "incomplete"], "server restarted; queued"),
        ("first token", ["running", "running", "incomplete"], "server restarted; going on after"),
        ("after_the_last_token", ["running", "running", "incomplete"], "going on after 41 tokens"),
        ("within_the_closing_commit", ["running", "running", "incomplete"], "server restarted; going on after"),
        ("after_the_closing_commit", ["queued", "loading", "running", "incomplete"], None),
    ],
)
def test_reason_and_attempts_are_readable(left: Lives, point: str, statuses: list[str], reason: str | None) -> None:
    """The history tells of the restart and what it did; of one that had ended or not begun, nothing needs telling."""
    found = left[point]
    assert found.statuses[-len(statuses) :] == statuses
    if reason is None:
        assert "restarted" not in found.notes
        assert found.statuses == statuses
    else:
        assert reason in found.notes
    assert {step["attempt"] for step in found.history} <= {0, 1}


@pytest.mark.proves("C-25")
@pytest.mark.parametrize("point", ["after_the_last_token", "after_the_closing_commit"])
def test_what_was_complete_is_not_drawn_again(left: Lives, point: str) -> None:
    """The process that found it drew no token."""
    assert left[point].drawn == 0
