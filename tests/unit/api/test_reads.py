"""What a client reads of its work besides the response: what it answered, its own responses, a count of tokens."""

from typing import Any

import pytest
from litestar import Litestar
from openai import AsyncOpenAI

from .harness import HELLO, application, call, create, error_of
from .scripted import MODEL, OTHER_TOKEN, ScriptedService
from .test_official_client import with_client

FIRST = f"resp_{0:026d}"
ITEMS = f"/v1/responses/{FIRST}/input_items"
TEN = [{"role": "user", "content": f"number {n}"} for n in range(10)]


def pages(app: Litestar, path: str, query: str) -> list[list[dict[str, Any]]]:
    """Every page, by the id of the last one."""
    found, after = list[list[dict[str, Any]]](), ""
    while True:
        page = call(app, "GET", f"{path}?{query}{after}").json()
        assert page["object"] == "list"
        assert (page["first_id"], page["last_id"]) == (page["data"][0]["id"], page["data"][-1]["id"])
        found.append(page["data"])
        if not page["has_more"]:
            return found
        after = f"&after={page['last_id']}"


@pytest.mark.parametrize("order", ["asc", "desc"])
def test_pages_of_input_items_cover_each_once(order: str) -> None:
    """In both orders; the last page is the one that has no more, also when it is full."""
    app = application()
    create(app, input=TEN)
    for limit, sizes in ((3, [3, 3, 3, 1]), (5, [5, 5]), (100, [10])):
        found = pages(app, ITEMS, f"order={order}&limit={limit}")
        assert [len(page) for page in found] == sizes
        said = [item["content"][0]["text"] for page in found for item in page]
        assert said == [f"number {n}" for n in (range(10) if order == "asc" else range(9, -1, -1))]


def test_input_items_are_twenty_and_the_newest_first_where_nothing_is_asked() -> None:
    """As OpenAI's API has it."""
    app = application()
    create(app, input=[{"role": "user", "content": f"number {n}"} for n in range(25)])
    page = call(app, "GET", ITEMS).json()
    assert [item["content"][0]["text"] for item in page["data"]] == [f"number {n}" for n in range(24, 4, -1)]
    assert page["has_more"]


BAD = [
    ("limit=0", "limit", "invalid_value"),
    ("limit=101", "limit", "invalid_value"),
    ("order=up", "order", "invalid_value"),
    ("status=completed", "status", "unknown_parameter"),
    ("before=x", "before", "unknown_parameter"),
]


@pytest.mark.parametrize(
    ("path", "query", "param", "code"),
    [
        *((path, *bad) for path in (ITEMS, "/v1/responses") for bad in BAD),
        (ITEMS, "include=all", "include", "invalid_value"),
        ("/v1/responses", "include=reasoning.encrypted_content", "include", "unknown_parameter"),
    ],
)
def test_a_bad_page_is_refused_by_name(path: str, query: str, param: str, code: str) -> None:
    """Nothing is guessed."""
    app = application()
    create(app)
    answer = call(app, "GET", f"{path}?{query}")
    error = error_of(answer)
    assert (answer.status_code, error["param"], error["code"]) == (400, param, code)


@pytest.mark.parametrize("path", [f"{ITEMS}?after=msg_x", "/v1/responses?after=resp_x", "/v1/responses?after=x"])
def test_a_cursor_of_nothing_is_not_found(path: str) -> None:
    """An empty page would say that there is no more."""
    app = application()
    create(app)
    answer = call(app, "GET", path)
    assert (answer.status_code, error_of(answer)["param"]) == (404, "after")


def test_a_list_has_the_clients_own_stored_responses() -> None:
    """Whole, as each of them is read alone."""
    app = application()
    names = [create(app).json()["id"] for _ in range(3)]
    create(app, store=False)
    call(app, "POST", "/v1/responses", json=HELLO, who=OTHER_TOKEN)
    page = call(app, "GET", "/v1/responses").json()
    assert [each["id"] for each in page["data"]] == names[::-1]
    assert page["data"] == [call(app, "GET", f"/v1/responses/{name}").json() for name in names[::-1]]
    assert [len(page) for page in pages(app, "/v1/responses", "limit=2&order=asc")] == [2, 1]


def test_tokens_are_counted_and_nothing_is_kept() -> None:
    """What cannot be created cannot be counted either."""
    service = ScriptedService()
    app = application(service)
    answer = call(app, "POST", "/v1/responses/input_tokens", json={**HELLO, "instructions": "Brief."})
    assert (answer.status_code, answer.json()) == (200, {"object": "response.input_tokens", "input_tokens": 16})
    assert service.kept == {}
    for body, status in (({"model": MODEL}, 400), ({**HELLO, "model": "x"}, 404), ({**HELLO, "input": 5}, 400)):
        refused = call(app, "POST", "/v1/responses/input_tokens", json=body)
        assert (refused.status_code, bool(error_of(refused)["param"])) == (status, True)
    large = call(app, "POST", "/v1/responses/input_tokens", content=b"{" + b" " * 17_000_000)
    assert large.status_code in (413, 415)


def test_the_official_client_reads_them_all() -> None:
    """With every parameter that it has."""
    everything: Any = ["reasoning.encrypted_content", "message.output_text.logprobs"]

    async def test(client: AsyncOpenAI, _: ScriptedService) -> None:
        response = await client.responses.create(**HELLO, metadata={"a": "b"})
        again = await client.responses.retrieve(response.id, include=everything, include_obfuscation=False)
        assert again == response
        stream = await client.responses.retrieve(response.id, stream=True, include=everything, starting_after=2)
        numbers = [event.sequence_number async for event in stream]
        assert numbers == list(range(3, 3 + len(numbers)))
        items = [item async for item in client.responses.input_items.list(response.id, include=everything, limit=1)]
        assert [item.id for item in items] == [f"msg_{0:026d}_in0"]
        count = await client.responses.input_tokens.count(model=MODEL, input="Say hello.")
        assert (count.object, count.input_tokens) == ("response.input_tokens", 10)

    with_client(test)
