"""Answers of a real server that must be calls, and are cut before there is one."""

import pytest

from tests.system.server import Server, check_log

HELLO = {"role": "user", "content": "Hello"}
FUNCTION = {"name": "note", "parameters": {"type": "object"}}
TOKENS = (1, 2, 5, 9, 13)
"""Limits inside the mark of the first call and a little after it: the tiny model has a token a letter."""


@pytest.mark.parametrize("choice", ["required", {"type": "function", "name": "note"}])
def test_half_a_mark_is_no_message(tiny_server: Server, choice: object) -> None:
    """The response is cut and empty, in every way of reading it; its tokens are counted."""
    asked = {"model": tiny_server.model_name, "input": [HELLO], "tool_choice": choice}
    tools = [{"type": "function", **FUNCTION}]
    for tokens in TOKENS:
        answer = tiny_server.http.post("/v1/responses", json={**asked, "tools": tools, "max_output_tokens": tokens})
        found = answer.json()
        assert (found["status"], found["incomplete_details"]) == ("incomplete", {"reason": "max_output_tokens"})
        assert (found["output"], found["usage"]["output_tokens"]) == ([], tokens)
        events = check_log(tiny_server.frames(found["id"]))
        assert [event["type"] for event in events] == [
            "response.created",
            "response.in_progress",
            "response.incomplete",
        ]


def test_nor_is_it_the_content_of_a_completion(tiny_server: Server) -> None:
    """Which has no calls either."""
    tools = [{"type": "function", "function": FUNCTION}]
    asked = {"model": tiny_server.model_name, "messages": [HELLO], "tools": tools, "tool_choice": "required"}
    for tokens in TOKENS:
        answer = tiny_server.http.post("/v1/chat/completions", json={**asked, "max_tokens": tokens}).json()
        (choice,) = answer["choices"]
        assert (choice["finish_reason"], choice["message"]["content"]) == ("length", "")
        assert "tool_calls" not in choice["message"]
