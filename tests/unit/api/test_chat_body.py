"""Every case that the official client's types declare for a chat request has one of four fates, and no other.

A new field, literal, tool or form in the client's package makes this fail until it is put in one of the tables.
"""

from collections.abc import Iterable
from typing import Any, get_type_hints

import jsonschema
import msgspec
import pytest
from openai.types.chat import completion_create_params
from openai.types.responses import response_create_params

from perdure.api import chat_fields, chat_schemas
from perdure.api.chat_body import STOP_MAX_CHARS, ChatAsked, ChatBody
from perdure.api.create_body import CreateBody
from perdure.domain import limits
from perdure.domain.errors import InvalidRequest
from perdure.domain.model import JsonObject, JsonSchema, PlainText, Tool, ToolChoice
from perdure.domain.recovery import OnRestart
from perdure.domain.request import CreateRequest

from .scripted import CARD
from .sdk_cases import Cases, fields_of, labels

CREATE = CreateBody(OnRestart.RESUME, OnRestart.FAIL, lambda: 4711)
READER = ChatBody(CREATE)
BARE: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "hello"}]}
TOOL: dict[str, Any] = {"type": "function", "function": {"name": "x"}}
EXAMPLES: dict[str, Any] = {
    "model": "x",
    "tool_choice[allowed_tools].allowed_tools.tools": [TOOL],
    "response_format[json_schema].json_schema.schema": {"type": "object"},
}
NEEDS: dict[str, dict[str, Any]] = {
    "tool_choice": {"tools": [TOOL]},
    "top_logprobs": {"logprobs": True},
    "stream_options": {"stream": True},
}
"""What a field needs beside it to be of use."""

CLOSED = """
    audio functions function_call moderation prediction[content] tools[custom] tool_choice[custom]
    web_search_options
"""
"""Below these nothing is looked at: the whole is decided."""

SERVED = """
    model frequency_penalty logprobs=True max_completion_tokens max_tokens metadata parallel_tool_calls=False
    presence_penalty prompt_cache_key response_format[json_schema] response_format[json_schema].json_schema
    response_format[json_schema].json_schema.name response_format[json_schema].json_schema.description
    response_format[json_schema].json_schema.schema response_format[json_schema].json_schema.strict=True
    response_format[json_object] safety_identifier seed stop store=True stream=True
    stream_options.include_usage=True temperature tool_choice=none tool_choice=required
    tool_choice[allowed_tools] tool_choice[allowed_tools].allowed_tools
    tool_choice[allowed_tools].allowed_tools.mode=auto tool_choice[allowed_tools].allowed_tools.mode=required
    tool_choice[allowed_tools].allowed_tools.tools tool_choice[function] tool_choice[function].function
    tool_choice[function].function.name tools[function] tools[function].function tools[function].function.name
    tools[function].function.description tools[function].function.parameters
    tools[function].function.strict=True tools[function].function.strict=False top_logprobs top_p user
"""

AS_IF_ABSENT = """
    function_call=none function_call=auto logprobs=False modalities=text n parallel_tool_calls=True
    prompt_cache_options response_format[text] response_format[json_schema].json_schema.strict=False
    service_tier=auto service_tier=default store=False stream=False stream_options
    stream_options.include_obfuscation=False stream_options.include_usage=False tool_choice=auto
    verbosity=medium
"""
"""They ask for what happens anyway."""

REPORTED = {
    "prompt_cache_options.mode": "prompt_cache_options.mode=implicit prompt_cache_options.mode=explicit",
    "prompt_cache_options.ttl": "prompt_cache_options.ttl=30m",
    "prompt_cache_retention": "prompt_cache_retention=in_memory prompt_cache_retention=24h",
    "reasoning_effort": """
    reasoning_effort=none reasoning_effort=minimal reasoning_effort=low reasoning_effort=medium
    reasoning_effort=high reasoning_effort=xhigh reasoning_effort=max
    """,
    "stream_options.include_obfuscation": "stream_options.include_obfuscation=True",
    "tools[0]": "tools[custom]",
    "verbosity": "verbosity=low verbosity=high",
}

REFUSED = {
    "audio": "audio",
    "function_call": "function_call",
    "functions": "functions",
    "logit_bias": "logit_bias",
    "modalities": "modalities=audio",
    "moderation": "moderation",
    "prediction": "prediction[content]",
    "service_tier": "service_tier=flex service_tier=scale service_tier=priority service_tier=fast",
    "tool_choice": "tool_choice[custom]",
    "web_search_options": "web_search_options",
}


REPORTED_AT, REFUSED_AT = labels(REPORTED), labels(REFUSED)


def declared() -> dict[str, list[tuple[dict[str, Any], dict[str, Any]]]]:
    """For every label, but for messages, requests with its value and the same without it."""
    cases = Cases(EXAMPLES, frozenset(CLOSED.split()))
    found: dict[str, list[tuple[dict[str, Any], dict[str, Any]]]] = {}
    for field, hint in fields_of(
        completion_create_params.CompletionCreateParamsNonStreaming,
        completion_create_params.CompletionCreateParamsStreaming,
    ):
        for label, value, rest in cases.of(hint, field) if field != "messages" else ():
            bare = {**BARE, **NEEDS.get(field, {})}
            pair = {**bare, field: value}, bare if rest is None else {**bare, field: rest}
            found.setdefault(label, []).append(pair)
    return found


DECLARED = declared()


def asked(**fields: Any) -> ChatAsked:
    """What the reader makes of a request."""
    return READER.read({**BARE, **fields})


def read(**fields: Any) -> CreateRequest:
    """The request in it."""
    return asked(**fields).request


def refused(**fields: Any) -> InvalidRequest:
    """The error for a request."""
    with pytest.raises(InvalidRequest) as error:
        asked(**fields)
    return error.value


def each(listed: Iterable[str]) -> Any:
    """The pairs of requests of these labels."""
    pairs = [(label, *pair) for label in listed for pair in DECLARED.get(label, [])]
    return pytest.mark.parametrize(("label", "given", "rest"), pairs)


@pytest.mark.proves("A-12")
def test_every_declared_case_has_one_fate() -> None:
    """No case is missing from the tables, none is left over, none stands in two."""
    tables = [set(SERVED.split()), set(AS_IF_ABSENT.split()), REPORTED_AT.keys(), REFUSED_AT.keys()]
    assert set().union(*tables) == DECLARED.keys()
    assert sum(map(len, tables)) == len(DECLARED)


@each(SERVED.split())
def test_what_is_served_changes_the_request(label: str, given: dict[str, Any], rest: dict[str, Any]) -> None:
    """And nothing is named as without effect."""
    assert READER.read(given).request.ignored == ()
    if given != rest and not label.endswith(".mode=auto"):  # a needed member is in both; that mode may be left out
        assert READER.read(given) != READER.read(rest), label


@each(AS_IF_ABSENT.split())
def test_a_default_may_be_spelt_out(label: str, given: dict[str, Any], rest: dict[str, Any]) -> None:
    """Asking for what happens anyway changes nothing, and nothing is named."""
    assert READER.read(given) == READER.read(rest), label
    assert READER.read(given).request.ignored == ()


@pytest.mark.proves("A-06", "A-25")
@each(REPORTED_AT)
def test_what_has_no_effect_is_named(label: str, given: dict[str, Any], rest: dict[str, Any]) -> None:
    """The request runs, and the completion says which path had none."""
    assert READER.read(given).request.ignored == (REPORTED_AT[label],)
    del rest


@each(REFUSED_AT)
def test_what_would_be_left_undone_is_refused_by_name(
    label: str, given: dict[str, Any], rest: dict[str, Any]
) -> None:
    """With the path, and the remedy in the message."""
    del rest
    with pytest.raises(InvalidRequest) as error:
        READER.read(given)
    assert (error.value.param, error.value.error_code) == (REFUSED_AT[label], "unsupported_parameter")


@each([*SERVED.split(), *AS_IF_ABSENT.split(), *REPORTED_AT])
def test_what_is_accepted_is_valid_by_the_description(
    label: str, given: dict[str, Any], rest: dict[str, Any]
) -> None:
    """/openapi.json says so."""
    del rest
    objects = {"components": {"schemas": chat_schemas.components()}}
    schema = {**objects, "$ref": "#/components/schemas/CreateChatCompletion"}
    assert not list(jsonschema.Draft202012Validator(schema).iter_errors(given)), label


def test_null_is_absence_for_every_declared_field() -> None:
    """Clients write out what they do not mean."""
    nulls = dict.fromkeys({label.split("=")[0].split("[")[0].split(".")[0] for label in DECLARED} - {"model"})
    assert asked(**nulls) == asked()


def test_each_field_has_one_fate() -> None:
    """The tables do not overlap, and describe what is described."""
    tables = [chat_fields.SERVED, chat_fields.HINTS, chat_fields.NOT_SERVED.keys(), chat_fields.ELSEWHERE.keys()]
    assert sum(map(len, tables)) == len(set().union(*tables))
    described = chat_schemas.components()["CreateChatCompletion"]["properties"]
    assert described.keys() == chat_fields.SERVED


@pytest.mark.parametrize("field", sorted(chat_fields.ELSEWHERE))
def test_a_field_of_another_interface_is_refused_with_the_right_one(field: str) -> None:
    """The message says where to go."""
    error = refused(**{field: "x"})
    assert (error.param, error.error_code) == (field, "unsupported_parameter")
    assert chat_fields.ELSEWHERE[field] in error.message


@pytest.mark.proves("A-12")
def test_every_field_of_the_responses_interface_is_served_or_told_apart() -> None:
    """None of them is taken for an unknown one, but for a few that only steer a hosted service."""
    hosted = {"access_programs", "context_management", "image", "moderation", "personality"}
    known = chat_fields.SERVED | chat_fields.HINTS | chat_fields.NOT_SERVED.keys() | chat_fields.ELSEWHERE.keys()
    assert set(get_type_hints(response_create_params.ResponseCreateParamsBase)) - hosted <= known


def test_a_bare_request_has_every_default() -> None:
    """What is not said is the documented default: not stored, in the foreground, failed by a restart."""
    request = read()
    assert (request.store, request.background, request.on_restart) == (False, False, OnRestart.FAIL)
    assert (request.temperature, request.top_p, request.seed) == (None, None, 4711)
    assert (request.max_output_tokens, request.stop, request.logprobs) == (None, (), False)
    assert (request.format, request.tools, request.choice, request.ignored) == (PlainText(), (), ToolChoice(), ())
    assert (asked().stream, asked().include_usage) == (False, False)


def test_the_limit_of_tokens_has_two_names() -> None:
    """Either is read; two that say the same are one, and two that differ are refused."""
    assert read(max_tokens=5).max_output_tokens == 5
    assert read(max_completion_tokens=6).max_output_tokens == 6
    assert read(max_completion_tokens=7, max_tokens=7).max_output_tokens == 7
    error = refused(max_completion_tokens=7, max_tokens=8)
    assert (error.param, error.error_code) == ("max_tokens", "invalid_value")
    assert refused(max_tokens=0).param == "max_tokens"
    assert refused(max_completion_tokens=True).param == "max_completion_tokens"


@pytest.mark.parametrize(
    ("value", "read_as"),
    [("a", ("a",)), (["a"], ("a",)), (["a", "b", "a"], ("a", "b")), ([], ()), (["\n\n"], ("\n\n",))],
)
def test_stop_strings(value: object, read_as: tuple[str, ...]) -> None:
    """One or several, each once."""
    assert read(stop=value).stop == read_as


@pytest.mark.parametrize(
    ("value", "param", "code"),
    [
        ("", "stop", "invalid_value"),
        (["a", ""], "stop[1]", "invalid_value"),
        (["a", 5], "stop[1]", "invalid_type"),
        (5, "stop", "invalid_type"),
        (list("abcde"), "stop", "out_of_range"),
        ("x" * (STOP_MAX_CHARS + 1), "stop", "out_of_range"),
    ],
)
def test_stop_strings_that_are_refused(value: object, param: str, code: str) -> None:
    """An empty one would end every text at once."""
    error = refused(stop=value)
    assert (error.param, error.error_code) == (param, code)


def test_likely_tokens_need_probabilities() -> None:
    """A number of them without `logprobs` would have no effect."""
    assert read(logprobs=True, top_logprobs=20).settled(CARD).sampling.top_logprobs == 20
    assert read(logprobs=True).settled(CARD).sampling.top_logprobs == 0
    assert read(top_logprobs=0).settled(CARD).sampling.top_logprobs is None
    assert refused(top_logprobs=1).param == "top_logprobs"
    assert refused(logprobs=True, top_logprobs=21).error_code == "out_of_range"


def test_counts_in_a_stream_need_a_stream() -> None:
    """Without one they are in the answer anyway, and the request is told that it asked for nothing."""
    options = {"include_usage": True}
    assert asked(stream=True, stream_options=options).include_usage
    assert read(stream_options=options).ignored == ("stream_options.include_usage",)
    assert refused(stream_options={"include_usage": 1}).param == "stream_options.include_usage"


SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}}


def test_the_wrapping_of_formats_and_tools_is_taken_off() -> None:
    """What is in it is what a create of a response has without it."""
    wrapped = {"type": "json_schema", "json_schema": {"name": "n", "schema": SCHEMA, "strict": True}}
    assert read(response_format=wrapped).format == JsonSchema("n", SCHEMA, None, True)
    assert read(response_format={"type": "json_object"}).format == JsonObject()
    function = {"name": "f", "description": "d", "parameters": SCHEMA, "strict": True}
    request = read(tools=[{"type": "function", "function": function}])
    assert request.tools == (Tool("f", "d", SCHEMA, True),)


@pytest.mark.parametrize(
    ("value", "shown", "meant"),
    [
        ("none", "none", ToolChoice("none")),
        ("required", "required", ToolChoice("required")),
        (TOOL, {"type": "function", "name": "x"}, ToolChoice("required", ("x",))),
        (
            {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [TOOL]}},
            {"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "x"}]},
            ToolChoice("required", ("x",)),
        ),
    ],
)
def test_a_choice_of_tools(value: object, shown: object, meant: ToolChoice) -> None:
    """The stored response shows it in the words of its own interface."""
    request = read(tool_choice=value, tools=[TOOL])
    assert (request.tool_choice, request.choice) == (shown, meant)


def test_unknown_fields_are_accepted_and_named() -> None:
    """As in a create of a response, and no more of them."""
    assert read(top_k=40, min_p=None).ignored == ("top_k",)
    many = {f"x{n}": 1 for n in range(limits.UNKNOWN_FIELDS_MAX + 1)}
    assert refused(**many).error_code == "out_of_range"


COMMON: dict[str, Any] = {
    "frequency_penalty": 0.5,
    "metadata": {"a": "b"},
    "model": "x",
    "on_restart": "retry",
    "parallel_tool_calls": False,
    "presence_penalty": 0.5,
    "prompt_cache_key": "x",
    "prompt_cache_options": {"mode": "implicit"},
    "safety_identifier": "x",
    "seed": 9,
    "temperature": 0.5,
    "top_p": 0.5,
    "truncation": "auto",
    "user": "x",
}


@pytest.mark.parametrize("field", sorted(chat_fields.SAME))
def test_what_has_one_name_has_one_meaning(field: str) -> None:
    """Each field of that list makes of a chat request what it makes of a create of a response."""
    same = {field: COMMON[field]}
    created = CREATE.read({"model": "m", "input": "hello", "store": False, **same}).request
    assert read(**same) == msgspec.structs.replace(created, places=read().places)
    assert read(**same) != read()
