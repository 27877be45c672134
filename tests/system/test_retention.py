"""A response whose retention is over, over HTTP."""

from pathlib import Path

import pytest

from tests.system.server import Server, until

RETENTION_DAYS = 3 / 86_400


@pytest.mark.proves("P6", "B-29")
def test_an_expired_response_answers_with_one_code_at_every_door(tmp_path: Path, tiny_model: Path) -> None:
    """404 and `response_expired`, which clients do not repeat; an unknown id stays `not_found`."""
    with Server(tmp_path / "data", tiny_model, retention_days=RETENTION_DAYS) as server:
        server.start()
        response = server.create(max_output_tokens=4)["id"]
        server.ended(response)

        def gone() -> bool | None:
            server.ended(server.create(max_output_tokens=1)["id"])  # whose end has the next sweep now
            return server.http.get(f"/v1/responses/{response}").is_error or None

        until(gone, "the end of the retention")
        task = response.replace("resp_", "task_")
        answers = [
            server.http.get(f"/v1/responses/{response}"),
            server.http.get(f"/v1/responses/{response}?stream=true"),
            server.http.get(f"/v1/tasks/{task}"),
            server.http.get(f"/v1/tasks/{task}/events"),
            server.http.delete(f"/v1/responses/{response}"),
            server.http.post(f"/v1/responses/{response}/cancel"),
            server.http.post(f"/v1/tasks/{task}/cancel"),
        ]
        for answer in answers:
            assert (answer.status_code, answer.json()["error"]["code"]) == (404, "response_expired"), answer.url
        unknown = server.http.get(f"/v1/responses/resp_{'0' * 26}")
        assert (unknown.status_code, unknown.json()["error"]["code"]) == (404, "not_found")
        assert server.terminate() == 0
