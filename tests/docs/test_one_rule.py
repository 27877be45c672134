"""The rule of signed reads stands once, and everything that needs it goes through it."""

import ast
import re
from collections.abc import Callable
from typing import Any

import pytest
from litestar.routes import HTTPRoute

from perdure import __version__
from perdure.ambient.names import RandomNames
from perdure.api.app import build_app
from perdure.api.operations import OPERATIONS
from perdure.settings import Settings
from tests.docs.repository import REFERENCE, SOURCE, modules, rows, section


def where(fits: Callable[[ast.AST], bool]) -> set[str]:
    """The modules in which something stands, the tools for tests apart."""
    return {
        name
        for path, module in modules()
        if not (name := path.relative_to(SOURCE).as_posix()).startswith("testing/")
        and any(fits(node) for node in ast.walk(module))
    }


def reads(name: str) -> Callable[[ast.AST], bool]:
    """A member of that name of some object."""
    return lambda node: isinstance(node, ast.Attribute) and node.attr == name


def calls(name: str) -> Callable[[ast.AST], bool]:
    """A call of something that is called so, by itself or on some object."""

    def fits(node: ast.AST) -> bool:
        if not isinstance(node, ast.Call):
            return False
        found = node.func
        return name == (found.attr if isinstance(found, ast.Attribute) else getattr(found, "id", None))

    return fits


def version_of_a_store(node: ast.AST) -> bool:
    """`version` of anything that is called a store, called or handed on."""
    return isinstance(node, ast.Attribute) and node.attr == "version" and ast.unparse(node.value).endswith("store")


def without_arguments(name: str) -> Callable[[ast.AST], bool]:
    """A call with nothing in its brackets."""
    return lambda node: calls(name)(node) and isinstance(node, ast.Call) and not node.args


@pytest.mark.proves("S3")
def test_the_version_of_the_store_is_asked_for_in_the_rule_alone() -> None:
    """Whoever took it elsewhere would have an order of his own. The store asks its probe."""
    assert where(version_of_a_store) == {"engine/signed.py"}
    assert where(without_arguments("version")) == {"engine/signed.py", "storage/sqlite/store.py"}


@pytest.mark.proves("S3")
def test_the_rule_is_made_once_and_used_at_one_door() -> None:
    """The engine has the one `Signer`; over HTTP the conditional reads alone use it."""
    assert where(calls("Signer")) == {"engine/engine.py"}
    assert where(reads("signed")) == {"api/conditional.py"}
    assert where(calls("_signed")) == {"engine/engine.py"}
    assert where(calls("Ask")) == {"api/conditional.py"}


@pytest.mark.proves("S3")
def test_tags_are_read_and_written_at_that_door_alone() -> None:
    """No handler has headers of its own for it."""

    def names_one(node: ast.AST) -> bool:
        return isinstance(node, ast.Constant) and node.value in (b"etag", b"if-none-match", "etag", "if-none-match")

    assert where(names_one) == {"api/conditional.py"}


@pytest.mark.proves("V3")
def test_the_probe_asks_for_the_version_and_for_nothing_else() -> None:
    """On its connection no statement runs but the one."""
    (module,) = (module for path, module in modules() if path == SOURCE / "storage/sqlite/probe.py")
    (probe,) = (node for node in module.body if isinstance(node, ast.ClassDef))
    uses = {
        ast.unparse(node.func) + (f"({ast.unparse(node.args[0])})" if node.args else "")
        for node in ast.walk(probe)
        if isinstance(node, ast.Call) and "_connection" in ast.unparse(node.func)
    }
    assert uses == {"self._connection.pragma('data_version')", "self._connection.close"}
    assert where(lambda node: isinstance(node, ast.Constant) and node.value == "data_version") == {
        "storage/sqlite/probe.py"
    }


@pytest.mark.proves("S6")
def test_the_conditional_reads_are_those_that_are_told() -> None:
    """Route by route."""
    nobody: Any = None
    app = build_app(nobody, Settings(), __version__, RandomNames())
    conditional = {
        "GET " + re.sub(r":\w+}", "}", route.path)
        for route in app.routes
        if isinstance(route, HTTPRoute)
        for handler in route.route_handlers
        if "304" in OPERATIONS.get(str(handler.operation_id), {"responses": {}})["responses"]
    }
    assert set(rows(section(REFERENCE / "conditional-reads.md", "Which reads"))) == conditional
