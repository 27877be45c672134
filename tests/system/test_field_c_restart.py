"""What the field has seen restarts do to background work, on a real process that is killed or stopped and started."""

import json
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.system.doomed import at_the_claim, at_the_draw, doomed, every_seventh_sync
from tests.system.field import engine_is_free, everything, rows
from tests.system.server import (
    START_SECONDS,
    TERMINAL,
    Server,
    check_log,
    data_of,
    deltas_of,
    freeze,
    text_of,
    thaw,
    until,
)

LONG: dict[str, Any] = {"max_output_tokens": 1500, "seed": 11}
POLICIES = ("fail", "retry", "resume")
CRASHES_MAX = 3
ORPHANS = 50


OWNERLESS = """
SELECT ident, status FROM tasks, service_config
WHERE status IN ('loading', 'running', 'cancelling') AND boot IS NOT boot_id
"""


@dataclass
class Killed:
    """A service that was killed amid its work and has been started again."""

    server: Server
    by_policy: dict[str, str]
    cancelled: dict[str, list[bytes]]
    resumed: str
    first_look: dict[str, dict[str, Any]]
    ownerless: list[tuple[Any, ...]]


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory, tiny_model: Path) -> Generator[Killed]:
    """One response of each policy and one to be cancelled later are under way, others were cancelled; then SIGKILL.

    After the restart the engine's process is frozen, so that what goes on does not end before it was looked at.
    """
    with Server(tmp_path_factory.mktemp("killed") / "data", tiny_model, slots=4).start() as server:
        cancelled = {each: everything(server, each) for each in cancelled_ones(server)}
        by_policy = {policy: server.create(on_restart=policy, **LONG)["id"] for policy in POLICIES}
        resumed = server.create(max_output_tokens=1900, seed=5)["id"]
        for found in (*by_policy.values(), resumed):
            server.holds(found)
        assert {server.task(found)["status"] for found in by_policy.values()} == {"running"}
        server.kill()
        server.start()
        freeze(server.engine_child())
        look = {policy: server.task(found) for policy, found in by_policy.items()}
        yield Killed(server, by_policy, cancelled, resumed, look, rows(server, OWNERLESS))
        thaw(server.engine_child())
        assert server.terminate() == 0


def cancelled_ones(server: Server) -> list[str]:
    """One that was cancelled while it waited, one for each policy while it ran."""
    freeze(child := server.engine_child())
    ran = [server.create(on_restart=policy, **LONG)["id"] for policy in POLICIES]
    blocker = server.create(max_output_tokens=1900)["id"]
    server.reaches(blocker, "running")
    waited = server.create(**LONG)["id"]
    for found in (waited, *ran, blocker):
        if found != waited:
            thaw(child)
        answer = server.http.post(f"/v1/responses/{found}/cancel")
        assert answer.json()["status"] == "cancelled", answer.text
    return [waited, *ran, blocker]


@pytest.mark.proves("C-06")
def test_each_policy_is_carried_out_at_the_first_look(killed: Killed) -> None:
    """Failed with the code that tells of the restart; begun anew as attempt 2; going on. None is without an owner."""
    fail, retry, resume = (killed.first_look[policy] for policy in POLICIES)
    assert (fail["status"], fail["error"]["code"]) == ("failed", "server_restarted")
    assert retry["status"] in ("queued", "loading", "running")
    assert retry["attempt"] == 2
    assert (resume["status"], resume["attempt"]) == ("running", 1)
    assert killed.ownerless == []


@pytest.mark.proves("C-04")
def test_cancelled_is_all_that_a_later_life_knows(killed: Killed) -> None:
    """Object with usage, task, history and events are byte for byte those of the life in which it was cancelled."""
    for found, before in killed.cancelled.items():
        response = json.loads(before[0])
        assert response["status"] == "cancelled"
        assert response["usage"]["output_tokens"] >= 0
        assert everything(killed.server, found) == before


@pytest.mark.proves("C-01", "C-04")
def test_a_late_cancel_of_what_the_restart_failed_changes_nothing(killed: Killed) -> None:
    """It is 200 with the failed object; and so it is for what an earlier life has cancelled."""
    for found in (killed.by_policy["fail"], *killed.cancelled):
        before = everything(killed.server, found)
        for _ in range(2):
            answer = killed.server.http.post(f"/v1/responses/{found}/cancel")
            assert (answer.status_code, answer.content) == (200, before[0])
        assert everything(killed.server, found) == before


@pytest.mark.proves("C-22", "C-28", "C-04")
def test_a_cancel_right_after_a_restart_works_by_id(killed: Killed) -> None:
    """The engine hears of it late: the viewer gets the cancelled event, and the slot is free for others."""
    server = killed.server
    with server.stream(killed.resumed) as frames:
        seen = [next(frames)]
        assert server.client().responses.cancel(killed.resumed).status in ("in_progress", "cancelled")
        thaw(server.engine_child())
        seen += list(frames)
    assert data_of(seen[-2])["type"] == "response.cancelled"
    assert check_log(seen)[-1]["response"] == server.get(f"/v1/responses/{killed.resumed}")
    for found in killed.by_policy.values():
        server.ended(found)
    engine_is_free(server)
    assert server.ended(killed.resumed)["status"] == "cancelled"


@pytest.mark.proves("C-06")
def test_what_goes_on_and_what_began_anew_end_as_undisturbed_ones(killed: Killed) -> None:
    """The same text both ways; the failed one keeps what was shown."""
    server = killed.server
    thaw(server.engine_child())
    like = server.ended(server.create(**LONG)["id"])
    for policy in ("retry", "resume"):
        response = server.ended(killed.by_policy[policy])
        assert text_of(response) == text_of(like)
        assert text_of(response) == deltas_of(check_log(server.frames(killed.by_policy[policy])))
    failed = server.get(f"/v1/responses/{killed.by_policy['fail']}")
    assert text_of(failed)
    assert text_of(like).startswith(text_of(failed))
    assert rows(server, "SELECT count(*) FROM tasks WHERE finished_at IS NULL") == [(0,)]


@pytest.mark.proves("C-10")
@pytest.mark.parametrize(("fate", "policy"), [(at_the_claim, "retry"), (at_the_draw, "resume")])
def test_a_task_that_ends_the_service_each_time_is_given_up(
    tmp_path: Path, tiny_model: Path, fate: Any, policy: str
) -> None:
    """A supervisor starts the service again and again. The attempt is counted by the claim, before the model is
    touched; after three it fails with the code for that, and the healthy work behind it runs."""
    with Server(tmp_path / "data", tiny_model, slots=1, crashes_max=CRASHES_MAX).start() as server:
        freeze(server.engine_child())
        before = server.create(max_output_tokens=5)["id"]
        server.reaches(before, "running")
        poison = server.create(max_output_tokens=13, on_restart=policy)["id"]
        healthy = [server.create(max_output_tokens=5)["id"] for _ in range(3)]
        server.kill()
        crashes = 0
        while died(server, fate, poison):
            crashes += 1
            assert crashes <= CRASHES_MAX
            assert rows(server, "SELECT attempt, boot IS NULL FROM tasks WHERE tokens_max = 13") == [(1, 0)]
        assert crashes == CRASHES_MAX
        assert server.task(poison)["error"]["code"] == "attempts_exhausted"
        assert server.ended(poison)["error"]["code"] == "attempts_exhausted"
        claims = [step["note"] for step in server.task(poison)["history"]].count("claimed")
        assert claims == (CRASHES_MAX if fate is at_the_claim else 1)
        for each in (before, *healthy):
            assert server.ended(each)["status"] == "incomplete"


def died(server: Server, fate: Any, poison: str) -> bool:
    """Start the service; whether it died of the poison, or else the poison has ended."""
    server.spawn(*doomed(fate, 13))
    line = server.first_line()
    if line:
        server.url = line.split()[3]

    def outcome() -> bool | None:
        assert server.process is not None
        if server.process.poll() is not None:
            return True
        try:
            return False if line and server.task(poison)["status"] in TERMINAL else None
        except httpx.TransportError:
            return None  # it is dying

    if until(outcome, "the end of the process or of the task"):
        assert server.wait() == -9
        return True
    return False


@pytest.mark.proves("C-12")
def test_fifty_orphans_are_settled_though_the_disk_refuses_every_seventh_sync(
    tmp_path: Path, tiny_model: Path
) -> None:
    """No caller is let in before all are settled, and no further restart is needed."""
    with Server(tmp_path / "data", tiny_model, slots=4).start() as server:
        freeze(server.engine_child())
        ids = [server.create(max_output_tokens=3, on_restart=POLICIES[n % 3])["id"] for n in range(ORPHANS)]
        server.reaches(ids[3], "running")
        server.kill()
        address = httpx.URL(server.url)
        server.spawn(*doomed(every_seventh_sync), port=int(address.port or 0))
        (told,) = told_before_ready(server, f"{address}/readyz")
        assert told["refused"] >= 2
        failed = {task["response_id"] for task in pages(server) if task["status"] == "failed"}
        assert failed == set(ids[::3])
        for each in set(ids) - failed:
            assert server.ended(each)["status"] == "incomplete"
        assert rows(server, OWNERLESS) == []


def told_before_ready(server: Server, url: str) -> list[dict[str, Any]]:
    """What the log has told of the settling when a probe is first answered with 200; until then nobody is ready."""

    def ready() -> bool | None:
        try:
            status = httpx.get(url, trust_env=False, verify=False).status_code
        except httpx.TransportError:
            return None
        assert status in (200, 503)
        return True if status == 200 else None

    until(ready, "the service to be ready", START_SECONDS)
    return [json.loads(line) for line in server.errors.read_text().splitlines() if '"settled"' in line]


def pages(server: Server) -> list[dict[str, Any]]:
    """All tasks."""
    return server.get("/v1/tasks?limit=100")["data"]


@pytest.mark.proves("C-30")
def test_an_orderly_stop_cancels_none_of_two_that_run_and_three_that_wait(tmp_path: Path, tiny_model: Path) -> None:
    """Between the two lives the rows say what they were; afterwards each has followed its policy, and says why."""
    with Server(tmp_path / "data", tiny_model, slots=2, drain_seconds=0).start() as server:
        policies = ["fail", "resume", "resume", "retry", "resume"]
        freeze(child := server.engine_child())  # so that none of them ends before the stop
        ids = [server.create(max_output_tokens=300, on_restart=policy, seed=1)["id"] for policy in policies]
        for each in ids[:2]:
            server.reaches(each, "running")
        assert server.terminate(child) == 0
        between = rows(server, "SELECT status, boot FROM tasks ORDER BY id")
        assert between == [("running", None)] * 2 + [("queued", None)] * 3
        server.start()
        ended = [server.ended(each) for each in ids]
        assert [each["status"] for each in ended] == ["failed"] + ["incomplete"] * 4
        assert ended[0]["error"]["code"] == "server_restarted"
        assert len({text_of(each) for each in ended[1:]}) == 1
        for each in ids:
            notes = [step["note"] for step in server.task(each)["history"]]
            assert ("left at the stop of the service" in notes) == (each in ids[:2])
            assert "cancelled" not in [step["status"] for step in server.task(each)["history"]]
            check_log(server.frames(each))
