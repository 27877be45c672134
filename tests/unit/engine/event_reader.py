"""A reader of events who trusts nobody: the grammar of a stream as an automaton, and what a stream adds up to.

Nothing here is shared with the program that writes events. The table says which event may follow which; the readings
say what each must hold, given all that came before it.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

Data = dict[str, Any]

RETRIED = "perdure:task.retried"
STOPPED = dict.fromkeys(("response.failed", "response.cancelled"), "ended")
CUT = {**STOPPED, "response.incomplete": "ended"}
ENDED = {**CUT, "response.completed": "ended"}
ADDED = {"response.output_item.added": "item"}

STEPS: dict[str, dict[str, str]] = {
    "nothing": {"response.created": "created"},
    "created": {"response.queued": "waiting"},
    "waiting": {"response.in_progress": "working", **STOPPED},
    "working": {"response.in_progress": "working", **ADDED, **CUT},
    "message": {"response.content_part.added": "text"},
    "text": {"response.output_text.delta": "text", "response.output_text.done": "part"},
    "reasoning": {"response.content_part.added": "thought"},
    "thought": {"response.reasoning_text.delta": "thought", "response.reasoning_text.done": "part"},
    "part": {"response.content_part.done": "closing"},
    "function_call": {
        "response.function_call_arguments.delta": "function_call",
        "response.function_call_arguments.done": "closing",
    },
    "closing": {"response.output_item.done": "between"},
    "between": {**ADDED, RETRIED: "waiting", **ENDED},
    "broken": {RETRIED: "waiting", **CUT},
    "ended": {},
}
"""The state after each event that may come in a state. Three events say themselves where they lead: a response that
is created in the foreground is `waiting`, an item that is added leads to its type, and one that is done and is not
complete leaves the attempt `broken`."""


@dataclass
class EventReader:
    """Reads a stream from its first event. `output` are the finished items of the attempt, `end` is the response of
    the terminal event; `drawn` and `reasoned` count the tokens of the attempt, where they are told."""

    state: str = "nothing"
    count: int = 0
    attempt: int = 1
    output: list[Data] = field(default_factory=list[Data])
    end: Data | None = None
    drawn: int = 0
    reasoned: int = 0
    _item: Data = field(default_factory=dict[str, Any])
    _logprobs: list[Data] = field(default_factory=list[Data])
    _text: str = ""
    _names: set[str] = field(default_factory=set[str])
    _items: int = 0
    _response: Data = field(default_factory=dict[str, Any])

    def read(self, event: bytes, drawn: int = 0) -> None:
        """Take the next event, which keeps so many tokens. Fails where it must not come, or holds what is not so."""
        data = json.loads(event)
        kind = data["type"]
        assert data["sequence_number"] == self.count
        assert kind in STEPS[self.state], (kind, self.state)
        self.count += 1
        self.state = STEPS[self.state][kind]
        READINGS.get(kind, EventReader.lifecycle)(self, data)
        self.drawn = 0 if kind == RETRIED else self.drawn + drawn
        thinks = self.state in ("reasoning", "thought", "part") and self._item["type"] == "reasoning"
        self.reasoned = 0 if kind == RETRIED else self.reasoned + drawn * thinks

    # What events hold.

    def lifecycle(self, data: Data) -> None:
        """A response object, which shows what has been shown before."""
        response = data["response"]
        fixed = {name: response[name] for name in ("id", "created_at", "model", "background", "metadata", "seed")}
        self._response = self._response or fixed
        assert fixed == self._response
        kind = data["type"].removeprefix("response.")
        if kind == "created" and not response["background"]:
            self.state = "waiting"
        status = "queued" if kind == "created" else kind
        assert response["status"] == status
        assert response["output"] == self.output
        assert (response["error"] is not None) == (status == "failed")
        assert (response["incomplete_details"] is not None) == (status == "incomplete")
        assert (response["completed_at"] is not None) == (status == "completed")
        assert (response["usage"] is not None) == (self.state == "ended")
        assert response["perdure"]["attempt"] >= self.attempt  # one that showed nothing has no event of its own
        self.attempt = response["perdure"]["attempt"]
        if self.state == "ended":
            self.end = response

    def retried(self, data: Data) -> None:
        """The text begins anew."""
        assert data["attempt"] > self.attempt
        assert data["reason"]
        self.attempt, self.output = data["attempt"], []

    def added(self, data: Data) -> None:
        """A new item, empty."""
        self._item, self._text, self._logprobs = data["item"], "", []
        assert data["output_index"] == self._items
        self._items += 1
        self.state = self._item["type"]
        names = {self._item["id"], self._item.get("call_id", self._item["id"])}
        assert not names & self._names
        self._names |= names
        rest = {key: value for key, value in self._item.items() if key not in ("id", "call_id", "name")}
        assert rest == {
            "message": {"type": "message", "status": "in_progress", "role": "assistant", "content": []},
            "reasoning": {"type": "reasoning", "status": "in_progress", "content": [], "summary": []},
            "function_call": {"type": "function_call", "status": "in_progress", "arguments": ""},
        }.get(self.state)
        assert bool(self._item.get("name")) == ("call_id" in self._item) == (self.state == "function_call")

    def part(self, data: Data) -> None:
        """A part begins, or is whole."""
        self._place(data, content=True)
        assert data["part"] == self._whole_part()

    def delta(self, data: Data) -> None:
        """More of it."""
        self._place(data, content="arguments" not in data["type"])
        assert data["delta"]
        self._text += data["delta"]
        assert ("logprobs" in data) == ("output_text" in data["type"])
        self._logprobs += data.get("logprobs", [])

    def done(self, data: Data) -> None:
        """All of it."""
        arguments = "arguments" in data["type"]
        self._place(data, content=not arguments)
        assert data["arguments" if arguments else "text"] == self._text
        assert data.get("name") == (self._item["name"] if arguments else None)
        assert data.get("logprobs") == (self._logprobs if "output_text" in data["type"] else None)

    def item_done(self, data: Data) -> None:
        """The item is whole, or stays as it is."""
        item = data["item"]
        assert data["output_index"] == self._items - 1
        assert item["status"] in ("completed", "incomplete")
        own = {"arguments": self._text} if item["type"] == "function_call" else {"content": [self._whole_part()]}
        assert item == {**self._item, "status": item["status"], **own}
        self.output.append(item)
        if item["status"] == "incomplete":
            self.state = "broken"

    # How.

    def _place(self, data: Data, *, content: bool) -> None:
        assert (data["item_id"], data["output_index"]) == (self._item["id"], self._items - 1)
        assert data.get("content_index") == (0 if content else None)

    def _whole_part(self) -> Data:
        if self._item["type"] == "reasoning":
            return {"type": "reasoning_text", "text": self._text}
        return {"type": "output_text", "text": self._text, "annotations": [], "logprobs": self._logprobs}


READINGS: dict[str, Callable[[EventReader, Data], None]] = {
    RETRIED: EventReader.retried,
    "response.output_item.added": EventReader.added,
    "response.content_part.added": EventReader.part,
    "response.content_part.done": EventReader.part,
    "response.output_text.delta": EventReader.delta,
    "response.reasoning_text.delta": EventReader.delta,
    "response.function_call_arguments.delta": EventReader.delta,
    "response.output_text.done": EventReader.done,
    "response.reasoning_text.done": EventReader.done,
    "response.function_call_arguments.done": EventReader.done,
    "response.output_item.done": EventReader.item_done,
}
"""Who reads what; all others carry a response object."""


def read(events: list[tuple[bytes, int]]) -> EventReader:
    """Read a stream, each event with the number of the tokens that it keeps."""
    reader = EventReader()
    for event, drawn in events:
        reader.read(event, drawn)
    return reader
