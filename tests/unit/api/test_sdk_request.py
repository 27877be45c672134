"""Every case that the official client's types declare for a create has one of four fates, and no other.

A new field, literal, tool or form in the client's package makes this fail until it is put in one of the tables.
"""

from collections.abc import Iterable
from typing import Any, get_type_hints

import jsonschema
import openresponses_types.types as open_responses
import pytest
from openai.types.chat import completion_create_params
from openai.types.responses import response_create_params

from perdure.api import create_schemas, fields
from perdure.api.create_body import Asked, CreateBody
from perdure.domain import limits
from perdure.domain.errors import InvalidRequest
from perdure.domain.recovery import OnRestart

from .sdk_cases import Cases, fields_of, labels

READER = CreateBody(OnRestart.RESUME, OnRestart.FAIL, lambda: 4711)
BARE: dict[str, Any] = {"model": "m", "input": "hello"}
FUNCTION = {"type": "function", "name": "x", "parameters": None, "strict": None}
EXAMPLES = {
    "model": "x",
    "tool_choice[allowed_tools].tools": [{"type": "function", "name": "x"}],
    "input[function_call_output].call_id": "x",
    "input[function_call].arguments": "{}",
}

CLOSED = """
    context_management[x] input[additional_tools] input[apply_patch_call] input[apply_patch_call_output]
    input[code_interpreter_call] input[compaction] input[compaction_trigger] input[computer_call]
    input[computer_call_output] input[configuration_update] input[custom_tool_call]
    input[custom_tool_call_output] input[file_search_call] input[function_call].caller[program]
    input[function_call_output].caller[program] input[function_call_output].output[input_file]
    input[function_call_output].output[input_image]
    input[function_call_output].output[input_text].prompt_cache_breakpoint input[image_generation_call]
    input[local_shell_call] input[local_shell_call_output] input[mcp_approval_request]
    input[mcp_approval_response] input[mcp_call] input[mcp_list_tools] input[message].content[input_file]
    input[message].content[input_image] input[message].content[input_text].prompt_cache_breakpoint
    input[message].content[output_text].annotations[container_file_citation]
    input[message].content[output_text].annotations[file_citation]
    input[message].content[output_text].annotations[file_path]
    input[message].content[output_text].annotations[url_citation] input[message].content[output_text].logprobs
    input[program] input[program_output] input[shell_call] input[shell_call_output] input[tool_search_call]
    input[tool_search_output] input[web_search_call] moderation prompt tool_choice[custom] tool_choice[mcp]
    tools[apply_patch] tools[code_interpreter] tools[computer] tools[computer_use_preview] tools[custom]
    tools[file_search] tools[image_generation] tools[local_shell] tools[mcp] tools[namespace]
    tools[programmatic_tool_calling] tools[shell] tools[tool_search] tools[web_search]
    tools[web_search_2025_08_26] tools[web_search_preview] tools[web_search_preview_2025_03_11]
"""
"""Below these nothing is looked at: the whole is decided."""

SERVED = """
    background=True include=message.output_text.logprobs input input[message] input[message].content
    input[message].content[input_text].text input[message].role=user input[message].role=assistant
    input[message].role=system input[message].role=developer input[message].phase=commentary
    input[message].phase=final_answer input[message].status=incomplete input[message].id
    input[message].content[output_text] input[message].content[output_text].annotations[file_citation]
    input[message].content[output_text].annotations[url_citation]
    input[message].content[output_text].annotations[container_file_citation]
    input[message].content[output_text].annotations[file_path] input[message].content[output_text].text
    input[message].content[refusal] input[message].content[refusal].refusal input[function_call]
    input[function_call].arguments input[function_call].call_id input[function_call].name
    input[function_call].id input[function_call].status=incomplete input[function_call_output]
    input[function_call_output].output input[function_call_output].output[input_text].text
    input[function_call_output].id input[function_call_output].call_id
    input[function_call_output].status=incomplete input[item_reference] input[item_reference].id instructions
    max_output_tokens metadata model parallel_tool_calls=False previous_response_id prompt_cache_key
    safety_identifier store=False temperature text.format[json_schema] text.format[json_schema].name
    text.format[json_schema].schema text.format[json_schema].description text.format[json_schema].strict=True
    text.format[json_object] tool_choice=none tool_choice=required tool_choice[allowed_tools]
    tool_choice[allowed_tools].mode=auto tool_choice[allowed_tools].mode=required
    tool_choice[allowed_tools].tools tool_choice[function] tool_choice[function].name tools[function]
    tools[function].name tools[function].parameters tools[function].strict=True tools[function].strict=False
    tools[function].description top_logprobs top_p truncation=auto user stream=True
"""

AS_IF_ABSENT = """
    access_programs access_programs.cyber=standard background=False background_options
    background_options.completion_window=soonest image image.context_compression=auto
    input[message].content[input_text] input[message].status=in_progress input[message].status=completed
    input[message].content[output_text].logprobs input[function_call].async=False
    input[function_call].status=in_progress input[function_call].status=completed
    input[function_call_output].output[input_text] input[function_call_output].status=in_progress
    input[function_call_output].status=completed parallel_tool_calls=True prompt_cache_options
    prompt_cache_options.prewarm=False reasoning service_tier=auto service_tier=default store=True
    stream_options stream_options.include_obfuscation=False text text.format[text]
    text.format[json_schema].strict=False text.verbosity=medium tool_choice=auto tools[function].async=False
    tools[function].allowed_callers=direct tools[function].defer_loading=False truncation=disabled stream=False
"""
"""They ask for what happens anyway."""

REPORTED = {
    "background_options.continuation_id": """
    background_options.continuation_id
    """,
    "include[0]": """
    include=file_search_call.results include=web_search_call.results include=web_search_call.action.sources
    include=message.input_image.image_url include=computer_call_output.output.image_url
    include=code_interpreter_call.outputs include=reasoning.encrypted_content
    """,
    "input[1].content[0].prompt_cache_breakpoint": """
    input[message].content[input_text].prompt_cache_breakpoint
    """,
    "input[1].content[0]": """
    input[message].content[input_image] input[message].content[input_file]
    """,
    "input[1].async": """
    input[function_call].async=True
    """,
    "input[1].caller": """
    input[function_call].caller[direct] input[function_call].caller[program]
    input[function_call_output].caller[direct] input[function_call_output].caller[program]
    """,
    "input[1].namespace": """
    input[function_call].namespace input[function_call_output].namespace
    """,
    "input[1].output[0].prompt_cache_breakpoint": """
    input[function_call_output].output[input_text].prompt_cache_breakpoint
    """,
    "input[1].output[0]": """
    input[function_call_output].output[input_image] input[function_call_output].output[input_file]
    """,
    "input[1].name": """
    input[function_call_output].name
    """,
    "input[1]": """
    input[reasoning] input[reasoning].id input[reasoning].summary[summary_text]
    input[reasoning].summary[summary_text].text input[reasoning].content[reasoning_text]
    input[reasoning].content[reasoning_text].text input[reasoning].encrypted_content
    input[reasoning].status=in_progress input[reasoning].status=completed input[reasoning].status=incomplete
    """,
    "max_tool_calls": """
    max_tool_calls
    """,
    "prompt_cache_options.comparison_response_id": """
    prompt_cache_options.comparison_response_id
    """,
    "prompt_cache_options.mode": """
    prompt_cache_options.mode=implicit prompt_cache_options.mode=explicit
    """,
    "prompt_cache_options.ttl": """
    prompt_cache_options.ttl=30m prompt_cache_options.ttl=12h
    """,
    "prompt_cache_retention": """
    prompt_cache_retention=in_memory prompt_cache_retention=24h
    """,
    "reasoning.context": """
    reasoning.context=auto reasoning.context=current_turn reasoning.context=all_turns
    """,
    "reasoning.effort": """
    reasoning.effort=none reasoning.effort=minimal reasoning.effort=low reasoning.effort=medium
    reasoning.effort=high reasoning.effort=xhigh reasoning.effort=max
    """,
    "reasoning.generate_summary": """
    reasoning.generate_summary=auto reasoning.generate_summary=concise reasoning.generate_summary=detailed
    """,
    "reasoning.mode": """
    reasoning.mode reasoning.mode=standard reasoning.mode=pro
    """,
    "reasoning.summary": """
    reasoning.summary=auto reasoning.summary=concise reasoning.summary=detailed
    """,
    "stream_options.include_obfuscation": """
    stream_options.include_obfuscation=True
    """,
    "text.verbosity": """
    text.verbosity=low text.verbosity=high
    """,
    "tools[0].async": """
    tools[function].async=True
    """,
    "tools[0].allowed_callers": """
    tools[function].allowed_callers=programmatic
    """,
    "tools[0].defer_loading": """
    tools[function].defer_loading=True
    """,
    "tools[0].output_schema": """
    tools[function].output_schema
    """,
    "tools[0]": """
    tools[file_search] tools[computer] tools[computer_use_preview] tools[web_search]
    tools[web_search_2025_08_26] tools[mcp] tools[code_interpreter] tools[programmatic_tool_calling]
    tools[image_generation] tools[local_shell] tools[shell] tools[custom] tools[namespace] tools[tool_search]
    tools[web_search_preview] tools[web_search_preview_2025_03_11] tools[apply_patch]
    """,
}

REFUSED = {
    "access_programs": """
    access_programs.cyber=daybreak_blue access_programs.cyber=daybreak_red
    """,
    "background_options.completion_window": """
    background_options.completion_window=2h background_options.completion_window=8h
    """,
    "context_management": """
    context_management[x]
    """,
    "conversation": """
    conversation conversation.id
    """,
    "image": """
    image.context_compression=enabled image.context_compression=disabled
    """,
    "input[1].type": """
    input[file_search_call] input[computer_call] input[computer_call_output] input[web_search_call]
    input[tool_search_call] input[tool_search_output] input[additional_tools] input[configuration_update]
    input[compaction] input[image_generation_call] input[code_interpreter_call] input[local_shell_call]
    input[local_shell_call_output] input[shell_call] input[shell_call_output] input[apply_patch_call]
    input[apply_patch_call_output] input[mcp_list_tools] input[mcp_approval_request]
    input[mcp_approval_response] input[mcp_call] input[custom_tool_call_output] input[custom_tool_call]
    input[compaction_trigger] input[program] input[program_output]
    """,
    "moderation": """
    moderation
    """,
    "prompt": """
    prompt
    """,
    "prompt_cache_options.prewarm": """
    prompt_cache_options.prewarm=True
    """,
    "service_tier": """
    service_tier=flex service_tier=scale service_tier=priority service_tier=fast service_tier=ultrafast
    """,
    "tool_choice": """
    tool_choice[file_search] tool_choice[web_search_preview] tool_choice[computer]
    tool_choice[computer_use_preview] tool_choice[computer_use] tool_choice[web_search_preview_2025_03_11]
    tool_choice[image_generation] tool_choice[code_interpreter] tool_choice[mcp] tool_choice[custom]
    tool_choice[programmatic_tool_calling] tool_choice[apply_patch] tool_choice[shell]
    """,
}


REPORTED_AT, REFUSED_AT = labels(REPORTED), labels(REFUSED)


def declared() -> dict[str, list[tuple[dict[str, Any], dict[str, Any]]]]:
    """For every label a request with its value and one without; several forms of one item may share a label."""
    cases = Cases(EXAMPLES, frozenset(CLOSED.split()))
    found: dict[str, list[tuple[dict[str, Any], dict[str, Any]]]] = {}
    for field, hint in fields_of(
        response_create_params.ResponseCreateParamsNonStreaming, response_create_params.ResponseCreateParamsStreaming
    ):
        for label, value, rest in cases.of(hint, field):
            pair = request(field, value), request(field, rest)
            if pair not in found.setdefault(label, []):
                found[label].append(pair)
    return found


def request(field: str, value: Any) -> dict[str, Any]:
    """A request with this value; a choice needs something to choose from, and an item something to answer."""
    bare = {**BARE, "tools": [FUNCTION]} if field == "tool_choice" else BARE
    if value is None:
        return bare
    if field == "input" and isinstance(value, list):
        return {**bare, field: [{"role": "user", "content": "hello"}, *value]}
    return {**bare, field: value}


DECLARED = declared()


def asked(of: dict[str, Any]) -> Asked:
    """What the reader makes of a request."""
    return READER.read(of)


def each(listed: Iterable[str]) -> Any:
    """The pairs of requests of these labels."""
    pairs = [(label, *pair) for label in listed for pair in DECLARED.get(label, [])]
    names = [f"{label}-{number}" for number, (label, *_) in enumerate(pairs)]
    return pytest.mark.parametrize(("label", "given", "rest"), pairs, ids=names)


@pytest.mark.proves("A-12")
def test_every_declared_case_has_one_fate() -> None:
    """No case is missing from the tables, none is left over, none stands in two."""
    tables = [set(SERVED.split()), set(AS_IF_ABSENT.split()), REPORTED_AT.keys(), REFUSED_AT.keys()]
    assert set().union(*tables) == DECLARED.keys()
    assert sum(map(len, tables)) == len(DECLARED)


@each(SERVED.split())
def test_what_is_served_changes_the_request(label: str, given: dict[str, Any], rest: dict[str, Any]) -> None:
    """And nothing is named as without effect."""
    assert asked(given).request.ignored == ()
    if given != rest:  # a needed member is in both
        assert asked(given) != asked(rest), label


@each(AS_IF_ABSENT.split())
def test_a_default_may_be_spelt_out(label: str, given: dict[str, Any], rest: dict[str, Any]) -> None:
    """Asking for what happens anyway changes nothing, and nothing is named."""
    assert asked(given) == asked(rest), label
    assert asked(given).request.ignored == ()


@pytest.mark.proves("A-06", "A-25")
@each(REPORTED_AT)
def test_what_has_no_effect_is_named(label: str, given: dict[str, Any], rest: dict[str, Any]) -> None:
    """The request runs, and the response says which path had none."""
    assert REPORTED_AT[label] in asked(given).request.ignored
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


@pytest.mark.parametrize("field", sorted({label.split("=")[0].split("[")[0].split(".")[0] for label in DECLARED}))
def test_null_is_absence_for_every_declared_field(field: str) -> None:
    """Clients write out what they do not mean."""
    bare = {name: value for name, value in BARE.items() if name != field}
    answers: list[object] = []
    for given in (bare, {**bare, field: None}):
        try:
            answers.append(asked(given))
        except InvalidRequest as error:
            answers.append((error.param, error.error_code))
    assert answers[0] == answers[1]


def test_fields_of_the_open_specification_are_known() -> None:
    """It has a few that the client does not declare."""
    assert set(open_responses.CreateResponseBody.model_fields) <= fields.SERVED | fields.NOT_SERVED.keys()


@pytest.mark.proves("A-12")
def test_every_field_of_the_chat_interface_is_served_or_told_apart() -> None:
    """None of them is taken for an unknown one."""
    chat = set(get_type_hints(completion_create_params.CompletionCreateParamsBase))
    known = fields.SERVED | fields.NOT_SERVED.keys() | fields.HINTS | fields.ELSEWHERE.keys()
    assert chat <= known


def schema() -> jsonschema.Draft202012Validator:
    """The description of a create in /openapi.json."""
    objects = {"components": {"schemas": create_schemas.components()}}
    return jsonschema.Draft202012Validator({**objects, "$ref": "#/components/schemas/CreateResponse"})


@each([*SERVED.split(), *AS_IF_ABSENT.split(), *REPORTED_AT])
def test_what_is_accepted_is_described(label: str, given: dict[str, Any], rest: dict[str, Any]) -> None:
    """/openapi.json allows it."""
    del rest
    assert not list(schema().iter_errors(given)), label


@each(REFUSED_AT)
def test_what_is_refused_is_not_described(label: str, given: dict[str, Any], rest: dict[str, Any]) -> None:
    """/openapi.json does not allow it."""
    del rest
    assert list(schema().iter_errors(given)), label


@pytest.mark.parametrize(
    "beyond",
    [
        {"tools": [{"type": "web_search"}] * (limits.TOOLS_MAX + 1)},
        {"include": ["message.output_text.logprobs"] * (limits.INCLUDE_MAX + 1)},
        {"input": [{"role": "user", "content": "x"}] * (limits.INPUT_ITEMS_MAX + 1)},
        {"metadata": {str(n): "" for n in range(limits.METADATA_PAIRS_MAX + 1)}},
        {"tools": [{**FUNCTION, "name": "x" * (limits.FUNCTION_NAME_MAX_CHARS + 1)}]},
        {"messages": []},
    ],
)
def test_one_beyond_a_bound_is_neither_accepted_nor_described(beyond: dict[str, Any]) -> None:
    """The bounds of /openapi.json are those that are kept."""
    with pytest.raises(InvalidRequest):
        READER.read({**BARE, **beyond})
    assert not schema().is_valid({**BARE, **beyond})
