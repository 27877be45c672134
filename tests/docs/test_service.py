"""docs/reference/service.md has every field that `GET /v1/service` serves, and no other."""

from collections.abc import Iterator
from http import HTTPStatus
from typing import Any

from tests.docs.repository import REFERENCE, codes, rows
from tests.unit.api.harness import application, call

PAGE = (REFERENCE / "service.md").read_text()


def paths(found: Any, path: str) -> Iterator[str]:
    """The path of every field that is no object itself; `[]` stands for any entry of an array."""
    if isinstance(found, dict):
        for name, value in found.items():
            yield from paths(value, f"{path}.{name}" if path else name)
    elif isinstance(found, list):
        for entry in found:
            yield from paths(entry, f"{path}[]")
    else:
        yield path


def test_the_fields_are_those_that_are_served() -> None:
    """In their order, but for the name of the object."""
    served = list(dict.fromkeys(paths(call(application(), "GET", "/v1/service").json(), "")))
    told = list(rows(PAGE))
    assert {"tasks.queued", "models[].starts", "storage.write_waits[].seconds_max"} <= set(served)
    assert sorted(told) == sorted(served)
    assert [path for path in told if path != "object"] == [path for path in served if path != "object"]


def test_a_field_that_a_row_mentions_is_served() -> None:
    """A renamed one is not forgotten in the words of another."""
    last = {path.rpartition(".")[2] for path in rows(PAGE)}
    named = {code for cells in rows(PAGE).values() for code in codes(cells[0]) if code.endswith(("_at", "_pages"))}
    assert named
    assert named <= last


def test_a_read_cannot_be_asked_for_by_head() -> None:
    """As the page on conditional reads says."""
    told = (REFERENCE / "conditional-reads.md").read_text()
    assert f"There is no `HEAD`: it is answered with {HTTPStatus.METHOD_NOT_ALLOWED.value}" in told
    for path in ("/v1/models", "/v1/tasks", "/v1/responses/resp_x"):
        assert call(application(), "HEAD", path).status_code == HTTPStatus.METHOD_NOT_ALLOWED
