"""Every setting, error code, event, field, route and option is in the reference, and nothing else is."""

import re
from typing import Any, get_args, get_type_hints

import msgspec
import pytest
from litestar.routes import HTTPRoute

from perdure import __version__
from perdure.ambient.names import RandomNames
from perdure.api import fields, input_items
from perdure.api.app import build_app
from perdure.api.input_items import NAME_MAX_CHARS
from perdure.cli.app import build_parser
from perdure.cli.failures import EXIT_DAMAGED
from perdure.domain import events, limits
from perdure.domain.journal import Journal
from perdure.domain.parts import CallArguments, CallBegin, CallEnd, Reasoning, Text
from perdure.domain.recovery import OnRestart
from perdure.domain.request import CreateRequest
from perdure.domain.response import Extension, ResponseError
from perdure.runtime.llamacpp import bundled, defaults
from perdure.runtime.llamacpp.plan import WINDOW_SMALL_TOKENS
from perdure.settings import PREFIX, Settings
from perdure.storage.sqlite.connection import LOG_SIZE_MAX_BYTES
from perdure.storage.sqlite.log import LOG_MAX_PAGES
from perdure.storage.sqlite.whole import CHECKED_MAX_BYTES
from perdure.storage.sqlite.writer import BATCH_MAX_OPERATIONS
from tests.docs.repository import REFERENCE, ROOT, codes, rows, section

SETTINGS = msgspec.structs.fields(Settings)


def bounds(name: str) -> str:
    """The bounds of a setting as the document writes them."""
    hint = get_type_hints(Settings, include_extras=True)[name]
    options = [each for part in (hint, *get_args(hint)) for each in get_args(part)]
    words = [f"`{option}`" for option in (OnRestart if hint is OnRestart else options) if isinstance(option, str)]
    for meta in (each for each in options if isinstance(each, msgspec.Meta)):
        return ", or ".join([_range(meta), *words])
    return ", ".join(words)


def _range(meta: msgspec.Meta) -> str:
    if meta.gt is not None:
        return f"above {meta.gt}, to {meta.le}"
    return f"{meta.ge} to {meta.le}" if meta.le is not None else f"at least {meta.ge}"


def default(field: msgspec.structs.FieldInfo) -> str:
    """The default of a setting as the document writes it."""
    if field.default is None:
        return "not set"
    if isinstance(field.default, bool):
        return f"`{field.default}`".lower()
    return "the user's data folder" if field.default is msgspec.NODEFAULT else f"`{field.default}`"


def test_the_settings_are_those_of_the_program() -> None:
    """By name, and in their order."""
    assert list(rows((REFERENCE / "settings.md").read_text())) == [field.name for field in SETTINGS]


@pytest.mark.parametrize("field", SETTINGS, ids=[field.name for field in SETTINGS])
def test_a_setting_has_its_variable_default_and_bounds(field: msgspec.structs.FieldInfo) -> None:
    """As the program has them."""
    variable, shown, allowed, _ = rows((REFERENCE / "settings.md").read_text())[field.name]
    assert variable == f"`{PREFIX}{field.name.upper()}`"
    assert shown == default(field)
    assert allowed == bounds(field.name)


def journals() -> list[Journal]:
    """Responses that between them have every event: fresh ones, all in the background."""
    request = CreateRequest(
        model="m",
        instructions=None,
        background=True,
        store=True,
        temperature=1.0,
        top_p=1.0,
        max_output_tokens=None,
        metadata={},
        seed=0,
        on_restart=OnRestart.RETRY,
    )
    return [Journal("x", 0, request, 1) for _ in range(4)]


def all_events() -> dict[str, set[str]]:
    """The members of every event that a journal writes, by type."""
    finished, cut, failed, cancelled = journals()
    written = [
        *finished.create(),
        *finished.claim(),
        *finished.write([Text("a"), Reasoning("b"), CallBegin("f"), CallArguments("{}"), CallEnd()], [1]),
        *finished.retry("server_restarted"),
        *finished.claim(),
        *finished.finish(0),
        *cut.cut(),
        *failed.fail(ResponseError("c", "m")),
        *cancelled.cancel(),
    ]
    return {event.type: set(msgspec.json.decode(event.json)) for event in written}


def test_the_events_are_those_of_the_program() -> None:
    """Every constant of the domain has a row, and every row is one."""
    named = {value for name, value in vars(events).items() if name.isupper() and isinstance(value, str)}
    assert set(rows(section(REFERENCE / "events.md", "Types"))) == named == set(all_events())


@pytest.mark.parametrize(("kind", "members"), all_events().items(), ids=list(all_events()))
def test_an_event_has_the_members_that_are_told(kind: str, members: set[str]) -> None:
    """Besides type and number."""
    told = rows(section(REFERENCE / "events.md", "Types"))[kind][0]
    assert {"type", "sequence_number", *codes(told)} == members


FIELDS = {
    "Served": fields.SERVED,
    "Items": vars(input_items)["_READERS"],
    "Refused unless at the default": fields.NOT_SERVED,
    "Without effect": fields.HINTS,
    "Of other interfaces": fields.ELSEWHERE,
}


@pytest.mark.parametrize("title", FIELDS)
def test_the_fields_of_a_create_are_those_of_the_program(title: str) -> None:
    """Each in the table of what becomes of it."""
    assert set(rows(section(REFERENCE / "responses.md", title))) == set(FIELDS[title])


@pytest.mark.parametrize("field", fields.NOT_SERVED)
def test_a_field_that_is_not_served_has_its_default(field: str) -> None:
    """As the error shows it."""
    (shown,) = rows(section(REFERENCE / "responses.md", "Refused unless at the default"))[field]
    assert shown == f"`{fields.NOT_SERVED[field][1]}`"


@pytest.mark.parametrize("field", [name for name, right in fields.ELSEWHERE.items() if "`" in right])
def test_a_field_of_another_interface_names_the_right_one(field: str) -> None:
    """As the error names it."""
    (here,) = rows(section(REFERENCE / "responses.md", "Of other interfaces"))[field]
    assert codes(here) == codes(fields.ELSEWHERE[field])


def test_the_extension_of_a_response_is_that_of_the_program() -> None:
    """Member by member."""
    told = rows(section(REFERENCE / "responses.md", "What a response adds"))
    assert tuple(told) == Extension.__struct_fields__


def routes() -> dict[str, str]:
    """Every route that is served, with its scope."""
    nobody: Any = None
    found: dict[str, str] = {}
    app = build_app(nobody, Settings(), __version__, RandomNames())
    for route in (route for route in app.routes if isinstance(route, HTTPRoute)):
        for handler in route.route_handlers:
            for method in handler.http_methods - {"OPTIONS", "HEAD"}:
                path = re.sub(r":\w+}", "}", route.path)
                found[f"{method} {path}"] = str(handler.opt.get("scope", "open"))
    return found


def test_the_routes_are_those_of_the_program() -> None:
    """With the scope that each needs."""
    told = rows(section(REFERENCE / "responses.md", "Routes"))
    assert {route: cells[0].strip("`") for route, cells in told.items()} == routes()


def commands() -> dict[str, set[str]]:
    """The long options of every command."""
    kinds = [kind for kind in vars(build_parser())["_actions"] if kind.dest == "command"]
    return {
        f"perdure {name}": {option for option in vars(parser)["_option_string_actions"] if option.startswith("--")}
        for name, parser in kinds[0].choices.items()
    }


def test_the_commands_are_those_of_the_program() -> None:
    """Each has a heading."""
    headings = re.findall(r"^## `(.+)`$", (REFERENCE / "command-line.md").read_text(), re.MULTILINE)
    assert headings == list(commands())


@pytest.mark.parametrize("command", commands())
def test_a_command_has_the_options_that_are_told(command: str) -> None:
    """All of them, and `--help` if any are told."""
    told = {option.split()[0] for option in rows(section(REFERENCE / "command-line.md", f"`{command}`"))}
    assert {option for option in told if option.startswith("--")} | {"--help"} == commands()[command]


PHRASES = {
    "explanation/durability.md": [
        f"up to {BATCH_MAX_OPERATIONS} changes",
        f"{LOG_MAX_PAGES:,} pages",
        f"{LOG_SIZE_MAX_BYTES // 2**20} MiB",
        f"`crashes_max` ({limits.CRASHES_MAX})",
        f"goes {limits.EPHEMERAL_KEEP_SECONDS} seconds after its end",
        f"`drain_seconds` ({Settings().drain_seconds:g})",
        f"`stop_work_seconds` ({Settings().stop_work_seconds:g})",
        f"`stop_callers_seconds` ({Settings().stop_callers_seconds:g})",
        f"`stop_models_seconds` ({Settings().stop_models_seconds:g})",
        f"`stop_database_seconds` ({Settings().stop_database_seconds:g})",
    ],
    "reference/command-line.md": [
        f"up to {CHECKED_MAX_BYTES // 2**20} MiB is looked through",
        f"exit code {EXIT_DAMAGED}",
        f"| {EXIT_DAMAGED} |",
    ],
    "reference/events.md": [f"After {limits.KEEPALIVE_SECONDS:g} seconds of silence"],
    "reference/settings.md": [f"narrows to {WINDOW_SMALL_TOKENS:,} tokens"],
    "reference/errors.md": [f"more than {limits.JSON_DEPTH_MAX} levels"],
    "reference/responses.md": [
        f"waits up to {limits.CANCEL_WAIT_SECONDS:g} seconds",
        f"1 to {limits.TASKS_PAGE_MAX}, {limits.TASKS_PAGE_DEFAULT} by default",
        f"1 to {limits.EVENTS_PAGE_MAX:,}, {limits.EVENTS_PAGE_DEFAULT} by default",
        f"| the model's | 0 to {limits.TEMPERATURE_MAX:g}.",
        f"| the model's | 0 to {limits.TOP_P_MAX:g}.",
        f"`temperature` {bundled.RECOMMENDED.temperature} and `top_p` {bundled.RECOMMENDED.top_p};",
        f"{limits.TEMPERATURE_DEFAULT:g} and {limits.TOP_P_DEFAULT:g}, as in OpenAI's API.",
        f"`{defaults.TEMPERATURE_KEY}` and `{defaults.TOP_P_KEY}`",
        f"At least {limits.OUTPUT_TOKENS_MIN}.",
        f"0 to {limits.SEED_MAX}.",
        f"Up to {limits.METADATA_PAIRS_MAX} pairs of strings, names up to {limits.METADATA_KEY_MAX_CHARS}",
        f"values up to {limits.METADATA_VALUE_MAX_CHARS} characters",
        f"up to {limits.UNKNOWN_FIELDS_MAX} of them",
        f"| 0 | -{limits.PENALTY_MAX:g} to {limits.PENALTY_MAX:g}.",
        f"| 0 | 0 to {limits.TOP_LOGPROBS_MAX}:",
        f"Up to {limits.SAFETY_IDENTIFIER_MAX_CHARS} characters.",
        f"Up to {limits.IDENTIFIER_MAX_CHARS} characters.",
        f"1 to {limits.FUNCTION_NAME_MAX_CHARS} letters",
        f"1 to {limits.FORMAT_NAME_MAX_CHARS} letters",
        f"There may be {limits.TOOLS_MAX} tools; a schema may have {limits.SCHEMA_MAX_BYTES:,} bytes.",
        f"by path: {limits.IGNORED_MAX} of them",
        f"a name at most {NAME_MAX_CHARS} characters",
        f"{limits.INPUT_TEXT_MAX_CHARS:,} characters",
        f"{limits.INPUT_ITEMS_MAX:,} entries",
    ],
}


@pytest.mark.parametrize(("page", "phrase"), [(page, each) for page, found in PHRASES.items() for each in found])
def test_a_limit_in_prose_is_that_of_the_program(page: str, phrase: str) -> None:
    """A changed number is not forgotten there."""
    assert phrase in (ROOT / "docs" / page).read_text()
