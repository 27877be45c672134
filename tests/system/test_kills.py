"""Kills at random moments of real generations: the text is the undisturbed one, and no frame that was seen changes.

Twenty kills with those of the other tests here; every victim and every moment is among them. `make soak` makes more.
"""

import random
import threading
from collections.abc import Generator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.system.kills.plan import Aim, Model, Moment, Plan, Sampling, Victim, requests
from tests.system.kills.round import SETTINGS, STARTING, Kill, kill_round
from tests.system.kills.undisturbed import Undisturbed
from tests.system.server import WAIT_SECONDS, Server, check_log, still_alive, text_of, thaw

GONE_SECONDS = 10.0  # it takes milliseconds; a shared machine may take longer to get round to it
ROUNDS_MAX = 10  # a moment that was missed, as on a busy machine, is aimed at again
MANY_CRASHES: dict[str, Any] = {"crashes_max": SETTINGS["crashes_max"]}

S, C, B = Victim.SERVICE, Victim.CHILD, Victim.BOTH
TINY = {
    "one": (1, Sampling.SAMPLED, (S, Moment.TEXT), (B, Moment.START), (S, Moment.LISTENING)),
    "four": (4, Sampling.MIXED, (S, Moment.QUEUED), (C, Moment.START), (B, Moment.TEXT)),
    "four, long prompts": (4, Sampling.GREEDY, (B, Moment.PROMPT), (B, Moment.SCAN)),
    "eight": (8, Sampling.MIXED, (C, Moment.LOADING), (S, Moment.TEXT), (S, Moment.SCAN)),
}
REAL = {
    "one, long prompt": (1, Sampling.GREEDY, (C, Moment.PROMPT), (S, Moment.TEXT)),
    "two": (2, Sampling.MIXED, (S, Moment.LOADING), (B, Moment.TEXT)),
}
LENGTHS: dict[Model, tuple[int, ...]] = {"tiny": (200, 400), "real": (20, 28)}
PROMPT_TOKENS: dict[Model, int] = {"tiny": 600, "real": 150}
Row = tuple[Any, ...]


def plan_of(model: Model, row: Row, rng: random.Random) -> Plan:
    """The plan that a row of the tables above stands for."""
    streams, sampling, *aims = row
    moments = [moment for _, moment in aims]
    prompt = PROMPT_TOKENS[model] if Moment.PROMPT in moments else 0
    asked = requests(model, sampling, streams, rng, lengths=LENGTHS[model], prompt_tokens=prompt)
    return Plan(model, streams, sampling, asked, tuple(Aim(*each) for each in aims))


def hit(kills: list[Kill]) -> set[str]:
    """What was hit, in the words in which it is aimed at."""
    return {"the start" if kill.hit in STARTING else kill.hit for kill in kills} | {kill.victim for kill in kills}


def aimed(row: Row) -> set[str]:
    """What has to be hit. A service that just listens may be found at anything."""
    _, _, *aims = row
    start: dict[Moment, str] = {Moment.START: "the start", Moment.SCAN: "the start"}
    found = {start.get(moment, str(moment)) for _, moment in aims if moment is not Moment.LISTENING}
    return found | {str(victim) for victim, moment in aims if moment not in start}


def killed(folder: Path, file: Path | None, model: Model, row: Row, undisturbed: Undisturbed) -> None:
    """Make a round, and again if a moment was missed; the texts are compared each time."""
    missed = aimed(row)
    for n in range(ROUNDS_MAX):
        rng = random.Random(n)
        with Server(folder / f"data-{n}", file) as server:
            missed -= hit(kill_round(server, plan_of(model, row, rng), undisturbed, rng))
        if not missed:
            return
    pytest.fail(f"{missed} was never hit")


@pytest.fixture(scope="module")
def tiny_undisturbed(tmp_path_factory: pytest.TempPathFactory, tiny_model: Path) -> Generator[Undisturbed]:
    """The texts of the tiny model when nobody is killed."""
    undisturbed = Undisturbed(
        Server(tmp_path_factory.mktemp("undisturbed") / "data", tiny_model, **SETTINGS, slots=8)
    )
    yield undisturbed
    undisturbed.close()


@pytest.fixture(scope="module")
def real_undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Generator[Undisturbed]:
    """The texts of the bundled model when nobody is killed."""
    undisturbed = Undisturbed(Server(tmp_path_factory.mktemp("undisturbed") / "data", **SETTINGS, slots=8))
    yield undisturbed
    undisturbed.close()


@pytest.mark.proves("R1", "R2", "R3", "P4")
@pytest.mark.parametrize("row", TINY.values(), ids=TINY)
def test_killed_texts_of_the_tiny_model_are_the_undisturbed_ones(
    tmp_path: Path, tiny_model: Path, tiny_undisturbed: Undisturbed, row: Row
) -> None:
    """Greedy and sampled; alone, four and eight at once; killed at every moment."""
    killed(tmp_path, tiny_model, "tiny", row, tiny_undisturbed)


@pytest.mark.real_model
@pytest.mark.proves("R2", "R3", "P4")
@pytest.mark.parametrize("row", REAL.values(), ids=REAL)
def test_killed_texts_of_the_real_model_are_the_undisturbed_ones(
    tmp_path: Path, real_undisturbed: Undisturbed, row: Row
) -> None:
    """The same with the bundled model."""
    killed(tmp_path, None, "real", row, real_undisturbed)


def kept_tokens(server: Server, response_id: str) -> int:
    """How many tokens the last restart found."""
    notes = [step["note"] for step in server.task(response_id)["history"]]
    return int(next(note for note in reversed(notes) if "going on after" in note).split()[-2])


@pytest.mark.proves("R3")
def test_after_a_restart_only_the_remaining_tokens_are_drawn(tmp_path: Path, tiny_model: Path) -> None:
    """What was kept is read again, not drawn again: the new process counts only what was missing."""
    with Server(tmp_path / "data", tiny_model).start() as server:
        found = server.create(max_output_tokens=1800, seed=5)["id"]
        server.holds(found)
        server.kill()
        server.start()
        response = server.ended(found)
        drawn = sum(model["tokens_drawn"] for model in server.get("/v1/service")["models"])
        kept = kept_tokens(server, found)
        assert 0 < kept < 1800
        assert drawn == response["usage"]["output_tokens"] - kept


def create_until_killed(server: Server, accepted: list[str], enough: threading.Event, answers: int) -> None:
    """One of several callers, who creates one response after the other until nobody answers any more."""
    with server.caller() as client:
        while True:
            try:
                answer = client.post("/v1/responses", json={"model": server.model_name, "input": "Go.", **SHORT})
            except httpx.TransportError:
                return
            assert answer.status_code == 202, answer.text
            accepted.append(answer.json()["id"])
            if len(accepted) >= answers:
                enough.set()


SHORT: dict[str, Any] = {"background": True, "max_output_tokens": 20}


@pytest.mark.proves("P3", "C-25")
def test_a_create_answered_and_killed_at_once_is_not_lost(tmp_path: Path, tiny_model: Path) -> None:
    """SIGKILL between the answers to four callers, twice. All that were answered are there, and end well."""
    with Server(tmp_path / "data", tiny_model, **MANY_CRASHES) as server:
        accepted: list[str] = []
        for n in range(2):
            server.start()
            answers, enough = random.Random(n).randint(1, 12), threading.Event()
            among: list[str] = []
            callers = [
                threading.Thread(target=create_until_killed, args=(server, among, enough, answers)) for _ in range(4)
            ]
            for caller in callers:
                caller.start()
            assert enough.wait(WAIT_SECONDS)
            server.kill()
            for caller in callers:
                caller.join(WAIT_SECONDS)
            accepted += among
        server.start()
        for each in accepted:
            assert server.ended(each)["status"] == "incomplete"
            check_log(server.frames(each))


def test_the_model_process_is_gone_within_a_moment_of_its_parent(tmp_path: Path, tiny_model: Path) -> None:
    """No process stays behind to eat the machine, also in the middle of drawing."""
    with Server(tmp_path / "data", tiny_model).start() as server:
        found = server.create(max_output_tokens=1800)["id"]
        thaw(server.holds(found))
        orphans = server.kill()
        assert len(orphans) >= 2
        assert still_alive(orphans, seconds=GONE_SECONDS) == []


@pytest.mark.proves("C-10")
def test_a_model_process_that_dies_is_replaced_and_the_text_goes_on(tmp_path: Path, tiny_model: Path) -> None:
    """The service lives on; the text is the undisturbed one."""
    with Server(tmp_path / "data", tiny_model).start() as server:
        expected = server.ended(server.create(max_output_tokens=1500, seed=3)["id"])
        found = server.create(max_output_tokens=1500, seed=3)["id"]
        server.holds(found).kill()
        assert text_of(server.ended(found)) == text_of(expected)
