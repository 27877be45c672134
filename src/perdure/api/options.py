"""Fields whose members mostly steer a hosted service: read strictly, and named where they have no effect here."""

from collections.abc import Mapping
from typing import Any

from perdure.api.values import (
    choice,
    elements,
    flag,
    members,
    out_of_range,
    strangers,
    text,
    unsupported,
)
from perdure.domain import limits

LOGPROBS = "message.output_text.logprobs"
INCLUDABLE = (
    LOGPROBS,
    "reasoning.encrypted_content",
    "message.input_image.image_url",
    "file_search_call.results",
    "web_search_call.results",
    "web_search_call.action.sources",
    "computer_call_output.output.image_url",
    "code_interpreter_call.outputs",
)
REASONING: Mapping[str, tuple[str, ...]] = {
    "effort": ("none", "minimal", "low", "medium", "high", "xhigh", "max"),
    "summary": ("auto", "concise", "detailed"),
    "generate_summary": ("auto", "concise", "detailed"),
    "context": ("auto", "current_turn", "all_turns"),
}
COMPLETION_WINDOWS = ("soonest", "2h", "8h")
IDENTIFIERS: Mapping[str, int] = {
    "safety_identifier": limits.SAFETY_IDENTIFIER_MAX_CHARS,
    "prompt_cache_key": limits.IDENTIFIER_MAX_CHARS,
    "user": limits.IDENTIFIER_MAX_CHARS,
}
"""Names that the response shows again, and how long they may be."""


def include(value: object, ignored: list[str]) -> bool:
    """Whether probabilities of tokens are wanted. Nothing comes of the other values, and they are named."""
    given = [] if value is None else elements(value, "include", "an array of strings")
    if len(given) > limits.INCLUDE_MAX:
        raise out_of_range("include", f"at most {limits.INCLUDE_MAX} values long")
    wanted = [choice(each, f"include[{index}]", INCLUDABLE) for index, each in enumerate(given)]
    ignored.extend(f"include[{index}]" for index, each in enumerate(wanted) if each != LOGPROBS)
    return LOGPROBS in wanted


def reasoning(value: object, ignored: list[str]) -> dict[str, Any] | None:
    """The settings as the response shows them, None where there are none. None of them has an effect."""
    given = {} if value is None else members(value, "reasoning")
    for member, allowed in REASONING.items():
        if given.get(member) is not None:
            choice(given[member], f"reasoning.{member}", allowed)
    if given.get("mode") is not None:
        text(given["mode"], "reasoning.mode", limits.IDENTIFIER_MAX_CHARS)
    ignored.extend(strangers(given, (), "reasoning"))
    shown = {member: given.get(member) for member in ("effort", "summary")}
    return shown if any(shown.values()) else None


def identifiers(body: Mapping[str, Any]) -> dict[str, Any]:
    """Each of `IDENTIFIERS` from a body."""
    return {
        field: None if body.get(field) is None else text(body[field], field, most)
        for field, most in IDENTIFIERS.items()
    }


def stream_options(value: object, ignored: list[str]) -> None:
    """Nothing is padded, so asking for it is named."""
    given = {} if value is None else members(value, "stream_options")
    if given.get("include_obfuscation") is not None:
        flag(given["include_obfuscation"], "stream_options.include_obfuscation")
    ignored.extend(strangers(given, (), "stream_options"))


def background_options(value: object, ignored: list[str]) -> None:
    """Work in the background begins as soon as it can; no other window can be asked for."""
    where = "background_options"
    given = {} if value is None else members(value, where)
    window, related = given.get("completion_window"), given.get("continuation_id")
    if window is not None and choice(window, f"{where}.completion_window", COMPLETION_WINDOWS) != "soonest":
        raise unsupported(
            f"{where}.completion_window", f'`{where}.completion_window` may only be "soonest"; leave it out.'
        )
    if related is not None:
        text(related, f"{where}.continuation_id", limits.IDENTIFIER_MAX_CHARS)
    ignored.extend(strangers(given, ("completion_window",), where))


def prompt_cache_options(value: object, ignored: list[str]) -> None:
    """They change no text, but for the one that asks for none."""
    where = "prompt_cache_options"
    given = {} if value is None else members(value, where)
    if given.get("prewarm") is not None and flag(given["prewarm"], f"{where}.prewarm"):
        raise unsupported(f"{where}.prewarm", f"`{where}.prewarm` is not supported; leave it out, or send false.")
    ignored.extend(strangers(given, (), where))
