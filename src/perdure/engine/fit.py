"""Fit: the prompt of a conversation, and what has to go where it is longer than the window.

With `truncation: disabled` nothing goes: a prompt that leaves no room for an answer is refused. With `auto` the
oldest items go until the rest leaves room: a call of a function together with its results, never instructions, never
system and developer messages, never the newest item. A rest that begins with a user is preferred, since some chat
templates take no other; where even the shortest of these is too long, any other will do.
"""

from bisect import bisect_left
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from itertools import accumulate, chain
from typing import NamedTuple

from perdure.domain.errors import InvalidRequest
from perdure.domain.items import ROLES, Item, conversation
from perdure.domain.limits import ANSWER_SHARE
from perdure.domain.model import Encoded, ModelCard
from perdure.domain.request import CreateRequest
from perdure.ports.runtime import PromptTooLong, Runtime

GUESSES_MAX = 8
"""So many cuts are guessed from the lengths of texts; then the middle is taken, which cannot be led astray."""
ITEM_CHARS = 16
"""What a chat template writes around an item, about."""

Unit = list[int]
"""Places of items that go together."""


class Fitted(NamedTuple):
    """A prompt that fits, and the ids of the items that it does not hold."""

    encoded: Encoded
    left_out: tuple[str, ...] = ()


async def fit(runtime: Runtime, card: ModelCard, request: CreateRequest, items: Sequence[Item]) -> Fitted:
    """The prompt. Raises `InvalidRequest` where none fits (code `context_length_exceeded`), or where the model
    refuses the conversation."""
    if request.truncation == "auto":
        return await _Search(runtime, card, request, items).run()
    with _refusing(card, "The input", "Shorten the input, or send `truncation: auto`."):
        return Fitted(_roomy(card, await runtime.encode(card.name, request.prompt(items))))


def room_wanted(window: int, max_output_tokens: int | None) -> int:
    """How many tokens `truncation: auto` keeps free for the answer: as many as it may have, but at most half of the
    window; a fourth of it where nothing is said."""
    return max(1, min(max_output_tokens or window // ANSWER_SHARE, window // 2))


def _roomy(card: ModelCard, encoded: Encoded) -> Encoded:
    """The prompt, if there is room for an answer after it. Raises `PromptTooLong`."""
    if len(encoded.tokens) >= card.context_length:
        raise PromptTooLong(f"{len(encoded.tokens)} tokens")
    return encoded


@contextmanager
def _refusing(card: ModelCard, what: str, remedy: str) -> Generator[None]:
    """Tell the caller of a prompt that is too long."""
    try:
        yield
    except PromptTooLong as error:
        raise InvalidRequest(
            f"{what} is {error.size} long; {card.name} holds {card.context_length} tokens of input and output "
            f"together, of which the answer needs at least one. {remedy}",
            param="input",
            code="context_length_exceeded",
        ) from error


class _Search:
    """Which cut is the first that leaves room. Cut 0 takes nothing away, each later one more units than the one
    before. `gone` is how many characters a cut takes away, about."""

    def __init__(self, runtime: Runtime, card: ModelCard, request: CreateRequest, items: Sequence[Item]) -> None:
        self._runtime = runtime
        self._card = card
        self._request = request
        self._items = items
        self._most = card.context_length - room_wanted(card.context_length, request.max_output_tokens)
        units = _units(items)
        newest = max(units, key=lambda unit: unit[-1], default=[])
        self._units = [unit for unit in units if unit is not newest]
        self._cuts = [0, *_counts(items, self._units, newest)]
        lengths = [sum(_length(items[place]) for place in unit) for unit in self._units]
        gone = list(accumulate(lengths, initial=0))
        self._gone = [gone[count] for count in self._cuts]
        self._chars = 1 + sum(map(_length, items))
        self._found: dict[int, Encoded] = {}
        self._sample: tuple[int, int] | None = None
        self._guesses = 0

    async def run(self) -> Fitted:
        """Look for it; where none leaves as much room as is wanted, the last one will do that leaves any."""
        low, high = 0, len(self._cuts) - 1
        if await self._leaves_room(0):
            high = 0
        while high - low > 1:
            middle = self._guess(low, high)
            if await self._leaves_room(middle):
                high = middle
            else:
                low = middle
        left_out = tuple(self._items[place]["id"] for place in self._away(high))
        what = f"The input without its {len(left_out)} oldest items" if left_out else "The input"
        with _refusing(self._card, what, "Shorten what is left."):
            encoded = self._found.get(high) or await self._encode(high)
            return Fitted(_roomy(self._card, encoded), left_out)

    async def _leaves_room(self, cut: int) -> bool:
        """Whether enough room is left. A rest that a template refuses is no rest: the next one may be taken."""
        try:
            encoded = await self._encode(cut)
        except PromptTooLong:
            return False
        except InvalidRequest:
            if cut == 0:
                raise
            return False
        self._found[cut] = encoded
        self._sample = cut, len(encoded.tokens)
        return len(encoded.tokens) <= self._most

    async def _encode(self, cut: int) -> Encoded:
        away = frozenset(self._away(cut))
        left = [item for place, item in enumerate(self._items) if place not in away]
        return await self._runtime.encode(self._card.name, self._request.prompt(left))

    def _away(self, cut: int) -> list[int]:
        """The places of the items that a cut takes away."""
        return sorted(chain.from_iterable(self._units[: self._cuts[cut]]))

    def _guess(self, low: int, high: int) -> int:
        """A cut between the two: where the lengths of texts say that the border is, from the last one counted."""
        self._guesses += 1
        if self._sample is None or self._guesses > GUESSES_MAX:
            return (low + high) // 2
        cut, tokens = self._sample
        chars_per_token = (self._chars - self._gone[cut]) / max(1, tokens)
        enough = self._gone[cut] + (tokens - self._most) * chars_per_token
        return bisect_left(self._gone, enough, low + 1, high - 1)


def _units(items: Sequence[Item]) -> list[Unit]:
    """What goes or stays together, by its first item. What no model reads is left out, and so is what never goes."""
    units, calls = list[Unit](), dict[str, Unit]()
    for place, item in enumerate(items):
        if not _is_read(item) or _is_rule(item):
            continue
        unit = calls.setdefault(item["call_id"], []) if "call_id" in item else list[int]()
        if not unit:
            units.append(unit)
        unit.append(place)
    return units


def _counts(items: Sequence[Item], units: Sequence[Unit], newest: Unit) -> list[int]:
    """How many units may go at once: so many that the rest begins with a user, and beyond the last of these places
    any number."""
    firsts = [min(unit[0], newest[0]) for unit in units] + newest[:1]
    opening = [count for count, first in enumerate(firsts) if count and items[first].get("role") == "user"]
    return [*opening, *range(opening[-1] + 1 if opening else 1, len(units) + 1)]


def _is_rule(item: Item) -> bool:
    return item["type"] == "message" and ROLES[item["role"]] == "system"


def _is_read(item: Item) -> bool:
    return bool(conversation(None, [item]))


def _length(item: Item) -> int:
    """Of an item in the prompt, in characters, about."""
    return sum(
        ITEM_CHARS + len(message.content) + sum(len(call.name) + len(call.arguments) for call in message.calls)
        for message in conversation(None, [item])
    )
