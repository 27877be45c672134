"""What a chat reads, through the whole service."""

import pytest

from tests.system.server import Server
from tests.system.test_conversations import ask

TURNS = 4


def counted(server: Server) -> dict[str, int]:
    (model,) = server.get("/v1/service")["models"]
    return model


@pytest.mark.parametrize("chained", [True, False])
def test_a_turn_does_not_read_the_conversation_again(tiny_server: Server, chained: bool) -> None:
    """Whether it names the response before or sends everything: the whole prompt before is reused. The usage tells
    nothing of that, since a text that is taken up again must show the same.
    """
    turns = [ask(tiny_server, "What is new?", max_output_tokens=20)]
    said = [{"role": "user", "content": "What is new?"}]
    for turn in range(TURNS):
        said.append({"role": "assistant", "content": turns[-1]["output"][0]["content"][0]["text"]})
        said.append({"role": "user", "content": f"And what about {turn}?"})
        how = {"input": said[-1:], "previous_response_id": turns[-1]["id"]} if chained else {"input": said}
        before = counted(tiny_server)
        turns.append(ask(tiny_server, "", max_output_tokens=20, seed=turn, **how))
        after, usage = counted(tiny_server), turns[-1]["usage"]
        read, reused = (after[name] - before[name] for name in ("tokens_read", "tokens_reused"))
        assert read + reused == usage["input_tokens"]
        assert reused >= turns[-2]["usage"]["input_tokens"]
        assert usage["input_tokens_details"]["cached_tokens"] == 0
