"""Which slot a text gets, and where its beginning has been read already.

The next turn of a chat begins with what the turn before ended with, and many requests begin with the same
instructions. So a free slot keeps its tokens until another text wants the room, and what all slots hold is known.
"""

from collections.abc import Sequence
from typing import NamedTuple


class _Kept(NamedTuple):
    """What the model has read in a free slot; the first `asked` of the tokens were a prompt."""

    tokens: Sequence[int]
    asked: int


class Slots:
    """The slots of one engine."""

    def __init__(self, count: int) -> None:
        self._free = {slot: _Kept((), 0) for slot in range(count)}  # in the order in which they became free
        self._held: dict[int, Sequence[int]] = {}

    @property
    def free(self) -> int:
        """How many slots are free."""
        return len(self._free)

    def take(self, tokens: Sequence[int], read: Sequence[int]) -> tuple[int, int]:
        """A slot for a text that begins with `tokens`, and how many of them are there already: never all, since the
        logits after the last one are wanted. `read` will always be what the slot holds. There must be a free slot.
        """
        common = {slot: _common(kept.tokens, tokens) for slot, kept in self._free.items()}
        slot = max(common, key=lambda slot: self._worth(slot, common[slot]))
        del self._free[slot]
        self._held[slot] = read
        return slot, common[slot]

    def _worth(self, slot: int, common: int) -> tuple[int, bool]:
        """The more is common the better, but a few words that all prompts begin with are no reason to give up a long
        text that may go on. Then an empty slot will do, or else the one that has been free for longest.
        """
        kept = self._free[slot]
        return common if 2 * common >= kept.asked else 0, not kept.tokens

    def longest(self, tokens: Sequence[int]) -> tuple[int, int]:
        """The slot, free or not, that has most of the beginning of `tokens`, and how many; never all."""
        read = self._held | {slot: kept.tokens for slot, kept in self._free.items()}
        common = {slot: _common(there, tokens) for slot, there in read.items()}
        slot = max(common, key=common.__getitem__)
        return slot, common[slot]

    def give_back(self, slot: int, tokens: Sequence[int], *, asked: int) -> None:
        """Free a slot that holds exactly `tokens`, of which the first `asked` were a prompt."""
        del self._held[slot]
        self._free[slot] = _Kept(tokens, min(asked, len(tokens)))


def _common(there: Sequence[int], wanted: Sequence[int]) -> int:
    """With how many tokens both begin, the last one that is wanted not counted."""
    pairs = zip(there, wanted, strict=False)
    return next((n for n, (one, other) in enumerate(pairs) if one != other), min(len(there), len(wanted) - 1))
