"""Output items while they are written: which events open one, fill it and close it."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import msgspec

from perdure.domain import events as ev
from perdure.domain.items import call_id, output_id
from perdure.domain.parts import CallArguments, CallBegin, CallEnd, Logprob, Part, Reasoning, Text
from perdure.domain.response import (
    FunctionCall,
    ItemStatus,
    OutputItem,
    OutputMessage,
    OutputText,
    ReasoningItem,
    ReasoningText,
)

Kind = Literal["message", "function_call", "reasoning"]
Said = tuple[str, dict[str, object]]
"""The type of an event, and its fields."""


@dataclass
class Draft:
    """One item. `name` is the function's, for a call; `text` is what it holds so far."""

    kind: Kind
    ident: str
    output_index: int
    name: str = ""
    text: str = ""
    logprobs: list[Logprob] = field(default_factory=list[Logprob])

    @classmethod
    def of(cls, part: Text | Reasoning | CallBegin, ident: str, output_index: int) -> "Draft":
        """The item that begins with this part."""
        if isinstance(part, CallBegin):
            return cls("function_call", ident, output_index, part.name)
        if isinstance(part, Reasoning):
            return cls("reasoning", ident, output_index, text=part.text)
        return cls("message", ident, output_index, text=part.text, logprobs=list(part.logprobs))

    @classmethod
    def replayed(cls, item: dict[str, Any], ident: str, output_index: int) -> "Draft":
        """The item that an event announced; its text comes with later ones."""
        return cls(item["type"], ident, output_index, item.get("name", ""))

    @property
    def reasons(self) -> bool:
        """Whether it is reasoning."""
        return self.kind == "reasoning"

    def takes(self, part: Part) -> bool:
        """Whether the part belongs to this item."""
        kinds = {"message": Text, "reasoning": Reasoning, "function_call": CallArguments}
        return isinstance(part, kinds[self.kind])

    def add(self, part: Part) -> list[Said]:
        """Fill it with a part that it takes."""
        assert isinstance(part, Text | Reasoning | CallArguments)  # noqa: S101 -- what `takes` has told
        self.text += part.text
        logprobs = part.logprobs if isinstance(part, Text) else ()
        self.logprobs += logprobs
        return [self._delta(part.text, logprobs)]

    def replay(self, data: dict[str, Any]) -> None:
        """Fill it with what an event holds."""
        self.text += data["delta"]
        self.logprobs += msgspec.convert(data.get("logprobs", []), list[Logprob])

    def item(self, status: ItemStatus) -> OutputItem:
        """The item as it stands."""
        name = output_id(self.kind, self.ident, self.output_index)
        if self.kind == "message":
            return OutputMessage(name, status, (OutputText(self.text, logprobs=tuple(self.logprobs)),))
        if self.kind == "reasoning":
            return ReasoningItem(name, status, (ReasoningText(self.text),))
        return FunctionCall(name, status, call_id(self.ident, self.output_index), self.name, self.text)

    # Events.

    def opening(self) -> Iterator[Said]:
        """Announce it, with the text that it begins with."""
        empty = Draft(self.kind, self.ident, self.output_index, self.name).item("in_progress")
        if isinstance(empty, FunctionCall):
            yield ev.ITEM_ADDED, {"output_index": self.output_index, "item": empty}
        else:
            bare = msgspec.structs.replace(empty, content=())
            yield ev.ITEM_ADDED, {"output_index": self.output_index, "item": bare}
            yield ev.PART_ADDED, {**self._place(), "part": empty.content[0]}
        if self.text:
            yield self._delta(self.text, self.logprobs)

    def closing(self, status: ItemStatus) -> Iterator[Said]:
        """Say that nothing more comes."""
        item = self.item(status)
        if isinstance(item, FunctionCall):
            yield ev.ARGUMENTS_DONE, {**self._item_place(), "name": self.name, "arguments": self.text}
        else:
            kind = ev.REASONING_DONE if self.reasons else ev.TEXT_DONE
            more = {} if self.reasons else {"logprobs": self.logprobs}
            yield kind, {**self._place(), "text": self.text, **more}
            yield ev.PART_DONE, {**self._place(), "part": item.content[0]}
        yield ev.ITEM_DONE, {"output_index": self.output_index, "item": item}

    def _delta(self, text: str, logprobs: Sequence[Logprob]) -> Said:
        if self.kind == "function_call":
            return ev.ARGUMENTS_DELTA, {**self._item_place(), "delta": text}
        if self.reasons:
            return ev.REASONING_DELTA, {**self._place(), "delta": text}
        return ev.TEXT_DELTA, {**self._place(), "delta": text, "logprobs": logprobs}

    def _item_place(self) -> dict[str, object]:
        item = output_id(self.kind, self.ident, self.output_index)
        return {"item_id": item, "output_index": self.output_index}

    def _place(self) -> dict[str, object]:
        return {**self._item_place(), "content_index": 0}


def begun(part: Part, ident: str, output_index: int) -> Draft | None:
    """The item that begins with this part; the end of a call begins none."""
    if isinstance(part, CallEnd):
        return None
    assert not isinstance(part, CallArguments)  # noqa: S101 -- a broken invariant of the runtime
    return Draft.of(part, ident, output_index)
