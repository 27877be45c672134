"""Kills in the middle of generations: the text is the undisturbed one, and no frame that was seen ever changes."""

import random
from pathlib import Path
from typing import Any

import pytest

from tests.system.server import Server, check_log, deltas_of, still_alive, text_of

MANY_CRASHES: dict[str, Any] = {
    "crashes_max": 1000
}  # kills come faster than progress here; the bound has a test of its own
KILLS_A_TEXT = 5
SAMPLED: dict[str, Any] = {"temperature": 0.9, "top_p": 0.95}
GREEDY: dict[str, Any] = {"temperature": 0}
PROMPTS = ["Tell me of the sea.", "Why is the sky blue?", "What is a good day?", "Name seven fruits."]


def jobs(streams: int, tokens: int, seed: int = 100) -> list[dict[str, Any]]:
    """Requests of both kinds, each with a seed of its own."""
    return [
        {
            "text": PROMPTS[n % len(PROMPTS)],
            "max_output_tokens": tokens,
            "seed": seed + n,
            **(SAMPLED if n % 2 else GREEDY),
        }
        for n in range(streams)
    ]


def seen_until(server: Server, response_id: str, deltas: int, after: int = -1) -> list[str]:
    """The frames that a reader has got when he has seen so many new pieces of text."""
    seen: list[str] = []
    with server.stream(response_id, after if after >= 0 else None) as frames:
        for frame in frames:
            if frame == "data: [DONE]":
                break
            seen.append(frame)
            deltas -= "output_text.delta" in frame
            if deltas <= 0:
                break
    return seen


def kept_tokens(server: Server, response_id: str) -> int:
    """How many tokens the last restart found."""
    notes = [step["note"] for step in server.task(response_id)["history"]]
    return int(next(note for note in reversed(notes) if "going on after" in note).split()[-2])


def killed_in_mid_text(server: Server, requests: list[dict[str, Any]], kills: int, rng: random.Random) -> None:
    """Run requests together, kill the service so many times at random places, compare with undisturbed runs."""
    undisturbed = [server.ended(server.create(**each)["id"]) for each in requests]
    ids = [server.create(**each)["id"] for each in requests]
    seen: dict[str, list[str]] = {each: [] for each in ids}
    for _ in range(kills):
        watched = rng.choice(ids)
        seen[watched] += seen_until(server, watched, rng.randint(1, 12), after=len(seen[watched]) - 1)
        server.kill()
        server.start()
    for each, expected in zip(ids, undisturbed, strict=True):
        response = server.ended(each)
        frames = server.frames(each)
        events = check_log(frames)
        assert frames[: len(seen[each])] == seen[each]
        assert text_of(response) == deltas_of(events) == text_of(expected)
        assert response["usage"] == expected["usage"]
        assert response["status"] == expected["status"]


@pytest.mark.proves("R3", "P4")
@pytest.mark.parametrize("streams", [1, 4])
def test_killed_texts_of_the_tiny_model_are_the_undisturbed_ones(
    tmp_path: Path, tiny_model: Path, streams: int, pytestconfig: pytest.Config
) -> None:
    """Greedy and sampled, alone and four together: kills at random places change nothing."""
    kills = int(pytestconfig.getoption("--kills") or 0)
    with Server(tmp_path / "data", tiny_model, **MANY_CRASHES).start() as server:
        rng = random.Random(streams)
        for first in range(0, kills, KILLS_A_TEXT):  # new texts each time: a text comes to its end after a few kills
            requests = jobs(streams, 1500, seed=100 + 10 * first)
            killed_in_mid_text(server, requests, min(KILLS_A_TEXT, kills - first), rng)


@pytest.mark.real_model
@pytest.mark.proves("R3", "P4")
@pytest.mark.parametrize("streams", [2])
def test_killed_texts_of_the_real_model_are_the_undisturbed_ones(tmp_path: Path, streams: int) -> None:
    """The same with the bundled model."""
    with Server(tmp_path / "data", **MANY_CRASHES).start() as server:
        killed_in_mid_text(server, jobs(streams, 48), 2, random.Random(7))


@pytest.mark.proves("R3")
def test_after_a_restart_only_the_remaining_tokens_are_drawn(tmp_path: Path, tiny_model: Path) -> None:
    """What was kept is read again, not drawn again: the new process counts only what was missing."""
    with Server(tmp_path / "data", tiny_model).start() as server:
        found = server.create(max_output_tokens=1500, seed=5)["id"]
        seen_until(server, found, 3)
        server.kill()
        server.start()
        response = server.ended(found)
        drawn = sum(model["tokens_drawn"] for model in server.get("/v1/service")["models"])
        kept = kept_tokens(server, found)
        assert 0 < kept < 1500
        assert drawn == response["usage"]["output_tokens"] - kept


@pytest.mark.proves("P3", "C-25")
@pytest.mark.parametrize("half", [0, 1])
def test_a_create_answered_and_killed_at_once_is_not_lost(tmp_path: Path, tiny_model: Path, half: int) -> None:
    """Twenty times in two runs: the answer to a create, then SIGKILL. All are there, and all come to an end."""
    with Server(tmp_path / "data", tiny_model, **MANY_CRASHES) as server:
        accepted: list[str] = []
        for n in range(10):
            server.start()
            accepted.append(server.create(max_output_tokens=20 + half, seed=n)["id"])
            server.kill()
        server.start()
        for each in accepted:
            assert server.ended(each)["status"] == "incomplete"
            check_log(server.frames(each))


def test_the_model_process_is_gone_within_a_second_of_its_parent(tmp_path: Path, tiny_model: Path) -> None:
    """No process stays behind to eat the machine, also in the middle of drawing."""
    with Server(tmp_path / "data", tiny_model).start() as server:
        found = server.create(max_output_tokens=1800)["id"]
        seen_until(server, found, 1)
        orphans = server.kill()
        assert len(orphans) >= 2
        assert still_alive(orphans, seconds=1) == []


@pytest.mark.proves("C-10")
def test_a_model_process_that_dies_is_replaced_and_the_text_goes_on(tmp_path: Path, tiny_model: Path) -> None:
    """The service lives on; the text is the undisturbed one."""
    with Server(tmp_path / "data", tiny_model).start() as server:
        expected = server.ended(server.create(max_output_tokens=1500, seed=3)["id"])
        found = server.create(max_output_tokens=1500, seed=3)["id"]
        seen_until(server, found, 2)
        server.engine_child().kill()
        assert text_of(server.ended(found)) == text_of(expected)
