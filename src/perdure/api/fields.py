"""The fields of a create request: which are served, and what becomes of the others.

Nothing is ignored in silence. A field that this API knows is refused unless it asks for what happens anyway; a hint
without a meaning here, and a field that nobody knows, is accepted and named in the response (`perdure.ignored`); a
field of another endpoint is refused with the name of the right one. `null` stands for absence everywhere.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from perdure.api.values import out_of_range, unsupported
from perdure.domain.limits import UNKNOWN_FIELDS_MAX, UNKNOWN_NAME_MAX_CHARS

SERVED = frozenset(
    {
        "background",
        "background_options",
        "frequency_penalty",
        "include",
        "input",
        "instructions",
        "max_output_tokens",
        "max_tool_calls",
        "metadata",
        "model",
        "on_restart",
        "parallel_tool_calls",
        "presence_penalty",
        "previous_response_id",
        "prompt_cache_key",
        "prompt_cache_options",
        "reasoning",
        "safety_identifier",
        "seed",
        "store",
        "stream",
        "stream_options",
        "temperature",
        "text",
        "tool_choice",
        "tools",
        "top_logprobs",
        "top_p",
        "truncation",
        "user",
    }
)
"""Read by `create_body`, which also names what of them has no effect."""

HINTS = frozenset({"prompt_cache_retention", "client_metadata"})
"""They steer a hosted service and change no text."""


NotServed = Mapping[str, tuple[Callable[[object], bool], str]]
"""The test for a value that asks for nothing else than what happens anyway, and that value."""


def one_of(*defaults: object) -> Callable[[object], bool]:
    """Equal to one of `defaults`, in type too: `False` is not 0."""
    return lambda value: any(type(value) is type(default) and value == default for default in defaults)


def object_of(**fields: Callable[[object], bool]) -> Callable[[object], bool]:
    """An object whose every member is null, or known and at its default."""

    def check(value: object) -> bool:
        return isinstance(value, dict) and all(
            given is None or (name in fields and fields[name](given)) for name, given in value.items()
        )

    return check


NOT_SERVED: NotServed = {
    "access_programs": (object_of(cyber=one_of("standard")), '{"cyber": "standard"}'),
    "context_management": (one_of([]), "[]"),
    "conversation": (one_of(), "null"),
    "image": (object_of(context_compression=one_of("auto")), '{"context_compression": "auto"}'),
    "moderation": (one_of({}), "null"),
    "personality": (one_of(), "null"),
    "prompt": (one_of(), "null"),
    "service_tier": (one_of("auto", "default"), '"auto" or "default"'),
}
"""Fields of this API that are not served: the test for a value that asks for nothing else, and that value."""

ELSEWHERE: Mapping[str, str] = {
    "messages": "here it is `input`",
    "max_tokens": "here it is `max_output_tokens`",
    "max_completion_tokens": "here it is `max_output_tokens`",
    "max_new_tokens": "here it is `max_output_tokens`",
    "num_predict": "here it is `max_output_tokens`",
    "response_format": "here it is `text.format`",
    "functions": "here they are `tools`",
    "function_call": "here it is `tool_choice`",
    "reasoning_effort": "here it is `reasoning.effort`",
    "verbosity": "here it is `text.verbosity`",
    "logprobs": "here it is `top_logprobs`",
    "system": "here it is `instructions`",
    "n": "here each request makes one response",
    "stop": "the Responses API has no stop strings",
    "stop_sequences": "the Responses API has no stop strings",
    "logit_bias": "the Responses API has no such field",
    "options": "here each option is a field of its own",
    "audio": "the Responses API has no such field",
    "modalities": "here every answer is text",
    "prediction": "the Responses API has no such field",
    "web_search_options": "here a search would be one of the `tools`",
}
"""Fields of other endpoints and other servers, and what stands for them here."""


def sort_out(
    body: dict[str, Any],
    served: Collection[str] = SERVED,
    not_served: NotServed = NOT_SERVED,
    elsewhere: Mapping[str, str] = ELSEWHERE,
) -> list[str]:
    """The names of fields without effect. Raises `InvalidRequest` for those that may not be left without one."""
    if body.keys() <= set(served):
        return []
    ignored: list[str] = []
    for field, value in body.items():
        if field not in served and value is not None:
            ignored.extend(_ignored(field, value, not_served, elsewhere))
    if len(ignored) > UNKNOWN_FIELDS_MAX:
        raise out_of_range("body", f"without so many unknown fields (at most {UNKNOWN_FIELDS_MAX})")
    return sorted(ignored)


def _ignored(field: str, value: object, not_served: NotServed, elsewhere: Mapping[str, str]) -> Iterable[str]:
    if field in elsewhere or (field == "prompt" and isinstance(value, str)):
        right = elsewhere.get(field, "here text is `input`")
        raise unsupported(field, f"`{field}` belongs to another API; {right}.")
    if field in not_served:
        is_default, shown = not_served[field]
        if not is_default(value):
            raise unsupported(field, f"`{field}` is not supported; leave it out, or send {shown}.")
        return ()
    if len(field) > UNKNOWN_NAME_MAX_CHARS:
        raise out_of_range(
            field[:UNKNOWN_NAME_MAX_CHARS], f"a shorter name (at most {UNKNOWN_NAME_MAX_CHARS} characters)"
        )
    return (field,)
