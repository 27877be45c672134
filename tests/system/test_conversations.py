"""Conversations that the service keeps (A-14 to A-24, B-02, B-04, I-03): over a real socket, and over a restart."""

import re
from contextlib import ExitStack
from typing import Any

import pytest

from tests.system.caller import Caller
from tests.system.server import Server, check_log, data_of, split_frames, thaw

ROUNDS, CHAIN = 200, 4
TURNS = 10


def ask(server: Server, text: str, **fields: Any) -> dict[str, Any]:
    """A foreground response."""
    answer = server.http.post("/v1/responses", json={"model": server.model_name, "input": text, **fields})
    assert answer.status_code == 200, answer.text
    return answer.json()


def items(server: Server, response_id: str) -> list[dict[str, Any]]:
    """What a response answers, from its first item on."""
    page = server.get(f"/v1/responses/{response_id}/input_items?order=asc&limit=100")
    assert not page["has_more"]
    return page["data"]


@pytest.mark.proves("A-20", "I-03")
def test_ten_turns_with_a_restart_in_the_middle(tiny_server: Server) -> None:
    """Each answers all that was said before it; a turn that is sent whole draws the same text."""
    server, turns = tiny_server, list[dict[str, Any]]()
    for turn in range(TURNS):
        if turn == TURNS // 2:
            assert server.terminate() == 0
            server.start()
        previous = {"previous_response_id": turns[-1]["id"]} if turns else {}
        turns.append(ask(server, f"turn {turn}", max_output_tokens=5, seed=turn, **previous))
    answered = items(server, turns[-1]["id"])
    written = [item for turn in turns[:-1] for item in turn["output"]]
    assert answered[1::2] == written
    assert [item["content"][0]["text"] for item in answered[::2]] == [f"turn {turn}" for turn in range(TURNS)]
    for turn, response in enumerate(turns):
        assert items(server, response["id"]) == answered[: 2 * turn + 1]
    whole = [{**item, "id": None} for item in answered]
    again = ask(server, "", max_output_tokens=5, seed=TURNS - 1, input=whole)
    assert again["output"][0]["content"] == turns[-1]["output"][0]["content"]
    assert again["usage"] == turns[-1]["usage"]
    unsaid = [item if item["role"] == "user" else {**item, "content": []} for item in whole]
    less = ask(server, "", max_output_tokens=1, input=unsaid)
    assert less["usage"]["input_tokens"] < again["usage"]["input_tokens"], "the model is not shown what it has said"
    assert server.http.delete(f"/v1/responses/{less['id']}").status_code == 200
    listed = server.get("/v1/responses?limit=100")["data"]
    assert listed[: TURNS + 1] == [again, *turns[::-1]]
    assert server.http.delete(f"/v1/responses/{turns[3]['id']}").status_code == 200
    assert items(server, turns[-1]["id"]) == answered
    assert turns[3]["id"] not in [each["id"] for each in server.get("/v1/responses?limit=100")["data"]]


@pytest.mark.proves("A-21")
def test_an_end_can_be_gone_on_from_at_the_moment_it_arrives(tiny_server: Server) -> None:
    """Two hundred times, each turn sent while the stream of the one before is still open; short chains, since a long
    prompt would be all that is measured."""
    body: dict[str, Any] = {"model": tiny_server.model_name, "input": "x", "stream": True, "max_output_tokens": 1}
    for _ in range(ROUNDS // CHAIN):
        previous: str | None = None
        with ExitStack() as streams:
            for _ in range(CHAIN + 1):
                asked = {**body, "previous_response_id": previous}
                answer = streams.enter_context(tiny_server.http.stream("POST", "/v1/responses", json=asked))
                assert answer.status_code == 200, answer.read()
                last = next(frame for frame in split_frames(answer) if frame.startswith("event: response.incomplete"))
                previous = data_of(last)["response"]["id"]


@pytest.mark.proves("A-23")
def test_a_response_has_one_name_for_life(tiny_server: Server) -> None:
    """In every answer and every event, before and after a restart: short, and fit for a path."""
    server = tiny_server
    created = server.create("Hello", max_output_tokens=3)
    name = created["id"]
    assert re.fullmatch(r"resp_[0-9a-z]{26}", name)
    final = server.ended(name)
    outputs = {item["id"] for item in final["output"]}

    def names() -> set[str]:
        events = check_log(server.frames(name))
        return {
            *(server.get(f"/v1/responses/{name}")["id"] for _ in range(3)),
            *(event["response"]["id"] for event in events if "response" in event),
            server.http.post(f"/v1/responses/{name}/cancel").json()["id"],
            server.task(name)["response_id"],
            server.get("/v1/responses?limit=1")["first_id"],
            server.get("/v1/responses?limit=1")["data"][0]["id"],
        }

    def parts() -> set[str]:
        events = check_log(server.frames(name))
        return {event["item_id"] for event in events if "item_id" in event} | {
            item["id"] for item in server.get(f"/v1/responses/{name}")["output"]
        }

    before = names(), parts(), items(server, name)
    assert before[:2] == ({name}, outputs)
    assert server.terminate() == 0
    server.start()
    assert (names(), parts(), items(server, name)) == before


@pytest.mark.proves("A-14")
@pytest.mark.parametrize("stream", [False, True])
def test_a_text_that_is_cut_says_so(tiny_server: Server, stream: bool) -> None:
    """In the object and in the event that ends the stream, with true counts."""
    body = {"model": tiny_server.model_name, "input": "Hello", "max_output_tokens": 1, "stream": stream}
    answer = tiny_server.http.post("/v1/responses", json=body)
    response = answer.json() if not stream else {}
    if stream:
        last = check_log(answer.text.rstrip("\n").split("\n\n"))[-1]
        assert last["type"] == "response.incomplete"
        response = last["response"]
    assert (response["status"], response["incomplete_details"]) == ("incomplete", {"reason": "max_output_tokens"})
    usage = response["usage"]
    assert usage["output_tokens"] == 1
    assert usage["input_tokens"] > 5
    assert usage["total_tokens"] == usage["input_tokens"] + 1


@pytest.mark.proves("A-17")
def test_no_other_model_answers(tiny_server: Server) -> None:
    """Unknown, in other letters, or missing: refused with the names that there are; nothing is kept or drawn."""
    before = tiny_server.get("/v1/responses")
    drawn = tiny_server.get("/v1/service")["models"]
    for path in ("/v1/responses", "/v1/responses/input_tokens"):
        for model, status in (("no-such-model", 404), (tiny_server.model_name.upper(), 404), (None, 400)):
            answer = tiny_server.http.post(path, json={"model": model, "input": "Hello"})
            error = answer.json()["error"]
            assert (answer.status_code, error["param"]) == (status, "model")
            if status == 404:
                assert error["code"] == "model_not_found"
                assert tiny_server.model_name in error["message"]
    assert tiny_server.get("/v1/responses") == before
    assert tiny_server.get("/v1/service")["models"] == drawn
    assert ask(tiny_server, "Hello", max_output_tokens=1)["model"] == tiny_server.model_name


@pytest.mark.proves("B-02")
def test_a_viewer_resumes_by_cursor_while_it_runs_and_after_its_end(tiny_server: Server) -> None:
    """Everything after his cursor, once; at the end or beyond it a clean end; what is no cursor is refused."""
    server = tiny_server
    caller = Caller(server, input="Once", background=True, stream=True, max_output_tokens=1900, seed=1)
    seen = caller.reads_until(b'"sequence_number":7').decode()
    name = data_of(seen[seen.index("event: response.created") :].split("\n\n")[0])["response"]["id"]
    child = server.holds(name)
    caller.hangs_up()
    with server.stream(name, after=7) as frames:
        thaw(child)
        live = list(frames)
    whole = server.frames(name)
    check_log(whole)
    assert live == whole[8:] == server.frames(name, after=7)
    last = len(whole) - 2
    for after in (last, last + 1, 2**40):
        with server.http.stream("GET", f"/v1/responses/{name}?stream=true&starting_after={after}") as answer:
            assert (answer.status_code, answer.read().replace(b"data: [DONE]\n\n", b"")) == (200, b"")
    for after in ("-1", "x", "1.5", ""):
        answer = server.http.get(f"/v1/responses/{name}?stream=true&starting_after={after}")
        assert (answer.status_code, answer.json()["error"]["param"]) == (400, "starting_after")


@pytest.mark.proves("B-04")
@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("background", [False, True])
def test_every_stored_response_can_be_streamed_again(tiny_server: Server, streamed: bool, background: bool) -> None:
    """However it was created: the same bytes as its own stream, as often as they are asked for, whole or in part."""
    server = tiny_server
    body = {"model": server.model_name, "input": "Hi", "max_output_tokens": 8, "stream": streamed}
    answer = server.http.post("/v1/responses", json={**body, "background": background})
    name = answer.headers["location"].rpartition("/")[2]
    whole = server.frames(name)
    check_log(whole)
    if streamed:
        assert answer.text.rstrip("\n").split("\n\n") == whole
    assert server.frames(name) == whole
    assert server.frames(name, after=4) == whole[5:]


@pytest.mark.proves("A-24")
def test_items_without_ids_are_paged_by_the_ids_that_they_get(tiny_server: Server) -> None:
    """Over the socket, by the official client, in both orders, before and after a restart."""
    server = tiny_server
    sent: Any = [{"role": "user", "content": f"n{n}"} for n in range(25)]
    response = ask(server, "", input=sent, max_output_tokens=1)

    def pages() -> list[list[str]]:
        client = server.client()
        orders: Any = ("asc", "desc")
        return [
            [str(item.id) for item in client.responses.input_items.list(response["id"], order=order, limit=10)]
            for order in orders
        ]

    up, down = before = pages()
    assert up == down[::-1]
    assert len(set(up)) == 25
    assert server.terminate() == 0
    server.start()
    assert pages() == before
