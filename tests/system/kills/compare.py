"""A text that was killed on its way against the undisturbed one: everything in which they could differ."""

from collections.abc import Iterator, Sequence
from typing import Any

from tests.system.kills.undisturbed import Expected
from tests.system.server import check_log, deltas_of, text_of

SHOWN = 20  # how much of two long things that differ is told
ALIKE = ("status", "error", "incomplete_details", "usage", "model", "temperature", "top_p", "max_output_tokens")
ONCE = (
    "response.created",
    "response.queued",
    "response.output_item.added",
    "response.content_part.added",
    "response.output_text.done",
    "response.content_part.done",
    "response.output_item.done",
)


class Different(AssertionError):
    """Texts are not the undisturbed ones; one line for each difference."""

    def __init__(self, differences: Sequence[str]) -> None:
        super().__init__("\n".join(differences))
        self.differences = list(differences)


def differences(
    expected: Expected,
    response: dict[str, Any],
    frames: list[str],
    tokens: Sequence[int],
    seen: Sequence[str],
) -> Iterator[str]:
    """Every difference between the undisturbed end and this one: `response` as answered, `frames` the whole replay,
    `tokens` as kept, `seen` what a reader got before and between the kills."""
    for name in ALIKE:
        yield from difference(name, expected.response[name], response[name])
    yield from difference("text", expected.text, text_of(response))
    yield from difference("tokens", expected.tokens, tuple(tokens))
    yield from difference("usage and tokens", len(tokens), response["usage"]["output_tokens"])
    yield from difference("perdure", expected.response["perdure"], response["perdure"])
    yield from difference("frames seen", list(seen), frames[: len(seen)])
    try:
        events = check_log(frames)
    except (AssertionError, ValueError) as error:
        yield f"log: {error}"
        return
    yield from difference("text of the events", expected.text, deltas_of(events))
    yield from difference("last event", response, events[-1]["response"])
    types = [event["type"] for event in events]
    for kind in ONCE:
        yield from difference(f"number of {kind}", 1, types.count(kind))


def difference(what: str, expected: Any, got: Any) -> Iterator[str]:
    """Nothing, or one line that shows where two things begin to differ."""
    if expected == got:
        return
    if isinstance(expected, str | tuple | list) and isinstance(got, str | tuple | list):
        at = next(
            (n for n, (a, b) in enumerate(zip(expected, got, strict=False)) if a != b), min(map(len, (expected, got)))
        )
        near = slice(max(0, at - 10), at + SHOWN)
        where = f"from {at} on (lengths {len(expected)} and {len(got)})"
        yield f"{what} {where}: expected {expected[near]!r}, got {got[near]!r}"
    else:
        yield f"{what}: expected {expected!r}, got {got!r}"
