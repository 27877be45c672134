"""No method of the official client is forgotten."""

import ast
from pathlib import Path

import openai

HERE = Path(__file__).parent
READ = (*HERE.glob("test_*.py"), HERE.parent / "system" / "test_openai_client.py")
RESOURCES = (
    "responses",
    "responses.input_items",
    "responses.input_tokens",
    "chat.completions",
    "chat.completions.messages",
    "models",
)
NOT_SERVED = {"responses.connect": "opens a WebSocket, which a later version serves"}


def public(client: openai.OpenAI) -> set[str]:
    """Every method that sends a request."""
    found: set[str] = set()
    for resource in RESOURCES:
        kind: object = client
        for name in resource.split("."):
            kind = getattr(kind, name)
        found |= {f"{resource}.{name}" for name in dir(type(kind)) if not name.startswith(("_", "with_"))}
    return found - set(RESOURCES)


def called() -> set[str]:
    """Every method that the tests of a real server call, by its path."""
    calls = (
        ast.unparse(node.func).partition(".")[2]  # without the name of the client
        for path in READ
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call)
    )
    return {call for call in calls if call.rpartition(".")[0] in RESOURCES}


def test_every_method_is_called_or_says_why_not(tiny: openai.OpenAI) -> None:
    """A method that a new version of the client brings needs a test, or a line here."""
    assert public(tiny) - called() == set(NOT_SERVED)
