"""The fields of a create request: which are served, and what becomes of the others.

Nothing is ignored in silence. A field that this API knows is refused unless it asks for what happens anyway; a hint
without a meaning here, and a field that nobody knows, is accepted and named in the response (`perdure.ignored`); a
field of another endpoint is refused with the name of the right one. `null` stands for absence everywhere.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from perdure.api.values import flag, members, out_of_range, unsupported

UNKNOWN_FIELDS_MAX = 64
UNKNOWN_NAME_MAX_CHARS = 64

SERVED = frozenset(
    {
        "model",
        "input",
        "instructions",
        "background",
        "store",
        "stream",
        "temperature",
        "top_p",
        "max_output_tokens",
        "metadata",
        "seed",
        "on_restart",
    }
)

HINTS = frozenset(
    {
        "user",
        "safety_identifier",
        "prompt_cache_key",
        "prompt_cache_retention",
        "prompt_cache_options",
        "client_metadata",
    }
)
"""They steer a hosted service and change no text."""


def _one_of(*defaults: object) -> Callable[[object], bool]:
    """Equal to one of `defaults`, in type too: `False` is not 0."""
    return lambda value: any(type(value) is type(default) and value == default for default in defaults)


def _object_of(**fields: Callable[[object], bool]) -> Callable[[object], bool]:
    """An object whose every member is null, or known and at its default."""

    def check(value: object) -> bool:
        return isinstance(value, dict) and all(
            given is None or (name in fields and fields[name](given)) for name, given in value.items()
        )

    return check


_NULL = _one_of()
_NO_LIST = _one_of([])
_NO_OBJECT = _one_of({})

NOT_SERVED: Mapping[str, tuple[Callable[[object], bool], str]] = {
    "access_programs": (_NO_LIST, "null"),
    "background_options": (_object_of(completion_window=_one_of("soonest")), '{"completion_window": "soonest"}'),
    "context_management": (_NO_LIST, "[]"),
    "conversation": (_NULL, "null"),
    "frequency_penalty": (_one_of(0, 0.0), "0"),
    "image": (_NO_OBJECT, "null"),
    "include": (_NO_LIST, "[]"),
    "max_tool_calls": (_NULL, "null"),
    "moderation": (_NO_OBJECT, "null"),
    "presence_penalty": (_one_of(0, 0.0), "0"),
    "previous_response_id": (_NULL, "null"),
    "prompt": (_NULL, "null"),
    "reasoning": (_object_of(), "{}"),
    "service_tier": (_one_of("auto", "default"), '"auto" or "default"'),
    "text": (
        _object_of(format=_one_of({"type": "text"}), verbosity=_one_of("medium")),
        '{"format": {"type": "text"}}',
    ),
    "tools": (_NO_LIST, "[]"),
    "top_logprobs": (_one_of(0), "0"),
    "truncation": (_one_of("disabled"), '"disabled"'),
}
"""Fields of this API that are not served yet: the test for a value that asks for nothing else, and that value."""

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
}
"""Fields of other endpoints and other servers, and what stands for them here."""


def sort_out(body: dict[str, Any]) -> tuple[str, ...]:
    """The names of fields without effect. Raises `InvalidRequest` for those that may not be left without one."""
    if body.keys() <= SERVED:
        return ()
    ignored: list[str] = []
    for field, value in body.items():
        if field not in SERVED and value is not None:
            ignored.extend(_ignored(field, value))
    if len(ignored) > UNKNOWN_FIELDS_MAX:
        raise out_of_range("body", f"without so many unknown fields (at most {UNKNOWN_FIELDS_MAX})")
    return tuple(sorted(ignored))


def _ignored(field: str, value: object) -> Iterable[str]:
    if field in _TOLERANT:
        return _TOLERANT[field](value)
    if field in ELSEWHERE or (field == "prompt" and isinstance(value, str)):
        right = ELSEWHERE.get(field, "here text is `input`")
        raise unsupported(field, f"`{field}` belongs to another API; {right}.")
    if field in NOT_SERVED:
        is_default, shown = NOT_SERVED[field]
        if not is_default(value):
            raise unsupported(field, f"`{field}` is not supported yet; leave it out, or send {shown}.")
        return ()
    if len(field) > UNKNOWN_NAME_MAX_CHARS:
        raise out_of_range(
            field[:UNKNOWN_NAME_MAX_CHARS], f"a shorter name (at most {UNKNOWN_NAME_MAX_CHARS} characters)"
        )
    return (field,)


def _parallel_tool_calls(value: object) -> Iterable[str]:
    """Without tools both values mean the same; the response shows the default."""
    return () if flag(value, "parallel_tool_calls") else ("parallel_tool_calls",)


def _tool_choice(value: object) -> Iterable[str]:
    if value not in ("auto", "none"):
        raise unsupported(
            "tool_choice", '`tool_choice` is not supported yet; leave it out, or send "auto" or "none".'
        )
    return () if value == "auto" else ("tool_choice",)


def _stream_options(value: object) -> Iterable[str]:
    options = members(value, "stream_options")
    return [
        f"stream_options.{name[:UNKNOWN_NAME_MAX_CHARS]}" for name in options if options[name] not in (None, False)
    ]


_TOLERANT: Mapping[str, Callable[[object], Iterable[str]]] = {
    "parallel_tool_calls": _parallel_tool_calls,
    "tool_choice": _tool_choice,
    "stream_options": _stream_options,
}
