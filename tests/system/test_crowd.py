"""A hundred clients who do everything at once: nobody ever sees a lock."""

import asyncio
import math
from itertools import cycle

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.system.server import Server

CLIENTS = 100
ROUNDS = 2
FOUND = {200, 202}
GONE = 404
WAIT = "perdure_storage_write_wait_seconds"


async def client(server: Server, number: int, seen: list[httpx.Response]) -> None:
    """Create, list, poll, cancel, poll, delete; every second one in another order."""
    headers = {"Authorization": f"Bearer {server.token}"}
    async with httpx.AsyncClient(
        base_url=server.url, headers=headers, timeout=60, verify=False, trust_env=False
    ) as http:
        for round_ in range(ROUNDS):
            body = {"model": server.model_name, "input": f"{number}", "background": True, "max_output_tokens": 20}
            created = await http.post("/v1/responses", json=body)
            seen.append(created)
            path = f"/v1/responses/{created.json()['id']}"
            task = path.replace("responses/resp", "tasks/task")
            calls = [("GET", "/v1/tasks"), ("GET", path), ("POST", f"{path}/cancel"), ("GET", f"{task}/events")]
            ahead = cycle(calls)
            for _ in range((number + round_) % len(calls)):
                next(ahead)
            seen += [await http.request(*next(ahead)) for _ in calls]
            seen.append(await http.delete(path))
            seen.append(await http.get(path))


def waits(server: Server) -> tuple[dict[float, float], float]:
    """The histogram of the waits for a commit, and how many writes were made."""
    families = text_string_to_metric_families(server.http.get("/metrics").text)
    samples = [sample for family in families for sample in family.samples]
    buckets = {float(each.labels["le"]): each.value for each in samples if each.name == f"{WAIT}_bucket"}
    (writes,) = [each.value for each in samples if each.name == "perdure_storage_writes_total"]
    return buckets, writes


def percentile(buckets: dict[float, float], share: float) -> float:
    """The bound under which that share of the writes lies."""
    return min(bound for bound, count in buckets.items() if count >= share * buckets[math.inf])


@pytest.mark.proves("E-07")
def test_a_hundred_clients_at_once_meet_no_lock(tiny_server: Server) -> None:
    """Each call is answered as if he were alone, and the 99th percentile of the wait for a commit can be read."""
    before, _ = waits(tiny_server)
    seen: list[httpx.Response] = []

    async def crowd() -> None:
        await asyncio.gather(*(client(tiny_server, number, seen) for number in range(CLIENTS)))

    asyncio.run(crowd())
    per_round = 7
    assert len(seen) == CLIENTS * ROUNDS * per_round
    for number, answer in enumerate(seen):
        assert answer.status_code in FOUND | {GONE}, (number, answer.text)
        assert "lock" not in answer.text
        assert "busy" not in answer.text
    assert sum(answer.status_code == GONE for answer in seen) == CLIENTS * ROUNDS
    after, writes = waits(tiny_server)
    assert after[math.inf] == writes
    made = {bound: after[bound] - before[bound] for bound in after}
    assert made[math.inf] >= 3 * CLIENTS * ROUNDS
    assert percentile(made, 0.99) < math.inf
    state = tiny_server.get("/v1/service")["storage"]
    assert (state["trouble"], state["writes_refused"]) == (None, 0)
