"""docs/reference/errors.md has every error code that the source can give, with its status, and no other."""

import ast
from collections.abc import Iterator

from perdure.api.errors import TABLE, answer
from perdure.domain import errors as kinds
from perdure.domain.errors import PerdureError, RefusedToStart
from tests.docs.repository import REFERENCE, modules, rows, section

PAGE = REFERENCE / "errors.md"
KINDS = {
    name: kind for name, kind in vars(kinds).items() if isinstance(kind, type) and issubclass(kind, PerdureError)
}


def status(kind: type[PerdureError]) -> str:
    """The HTTP status of a kind."""
    return str(next(TABLE[base][0] for base in kind.__mro__ if base in TABLE))


def given() -> dict[str, str]:
    """Every code of an answer, with its status: those of the kinds, and those that are named where one is made."""
    found = {kind.code: status(kind) for kind in KINDS.values() if kind is not RefusedToStart}
    for call in calls():
        for keyword in call.keywords:
            if keyword.arg == "code" and isinstance(keyword.value, ast.Constant):
                code = str(keyword.value.value)
                assert found.setdefault(code, status(KINDS[name_of(call)])) == status(KINDS[name_of(call)])
    return found


def calls() -> Iterator[ast.Call]:
    """Every call in the source that makes an error."""
    for _, module in modules():
        for node in ast.walk(module):
            if isinstance(node, ast.Call) and name_of(node) in KINDS.keys() | {"ResponseError"}:
                yield node


def name_of(call: ast.Call) -> str:
    """What is called, without the module that it is reached through."""
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")


def constants() -> dict[str, str]:
    """Every text that the source has given a name."""
    found: dict[str, str] = {}
    for _, module in modules():
        for node in module.body:
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant):
                found |= {each.id: str(node.value.value) for each in node.targets if isinstance(each, ast.Name)}
    return found


def raised_by_runs() -> set[str]:
    """The codes that a run gives to a request that does not fit."""
    run = next(module for path, module in modules() if path.parts[-2:] == ("engine", "run.py"))
    raised = (node for node in ast.walk(run) if isinstance(node, ast.Call) and name_of(node) == "InvalidRequest")
    return {ast.literal_eval(each.value) for call in raised for each in call.keywords if each.arg == "code"}


def in_responses() -> set[str]:
    """Every code of a failed response. One that is taken over from an error of the runtime is that error's."""
    found: set[str] = set()
    for call in (call for call in calls() if name_of(call) == "ResponseError"):
        match call.args[0]:
            case ast.Constant(value=str(code)):
                found.add(code)
            case ast.Name(id=name):
                found.add(constants()[name])
            case ast.Attribute(attr="error_code"):
                found |= {kinds.ModelUnavailable.code, *raised_by_runs()}
            case other:
                raise AssertionError(f"which code is {ast.unparse(other)}?")
    return found


def test_the_codes_of_answers_are_those_of_the_source() -> None:
    """With the status that each is sent with."""
    told = rows(section(PAGE, "Codes of answers"))
    assert {code: cells[0] for code, cells in told.items()} == given()


def test_the_statuses_are_those_that_are_sent() -> None:
    """With the type of each, and whether the official clients repeat it."""
    told = rows(section(PAGE, "Statuses"))
    assert told.keys() == {str(status) for status, _ in TABLE.values()}
    for kind, (status, type_) in TABLE.items():
        name, repeated = told[str(status)]
        assert name == f"`{type_}`"
        headers = dict(answer(kind("Something.")).headers)
        seconds = headers.get(b"retry-after")
        assert repeated.startswith("no" if seconds is None else f"after {seconds.decode()} seconds"), status
        assert (seconds is None) == (headers.get(b"x-should-retry") == b"false")


def test_the_codes_of_failed_responses_are_those_of_the_source() -> None:
    """Each that a `ResponseError` is made with."""
    assert set(rows(section(PAGE, "Codes in failed responses"))) == in_responses()


def test_the_detail_of_a_failed_resume_is_told() -> None:
    """It begins as the document says."""
    told = rows(section(PAGE, "Codes in failed responses"))["server_restarted"]
    assert "snapshot_unusable" in told[0]
    assert any("snapshot_unusable: " in path.read_text() for path, _ in modules())


def test_the_code_of_a_refused_start_is_told() -> None:
    """It has a table of its own."""
    assert set(rows(section(PAGE, "At the start"))) == {RefusedToStart.code}


def test_every_code_has_a_remedy() -> None:
    """The last cell is never empty."""
    for title in ("Codes of answers", "Codes in failed responses", "At the start"):
        for code, cells in rows(section(PAGE, title)).items():
            assert len(cells[-1]) > 5, code
