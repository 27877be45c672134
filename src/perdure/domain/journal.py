"""The journal of one response: which events follow what happens, and what a list of events adds up to.

The event log is the snapshot. A `Journal` is a fold over it: `replay` rebuilds exactly the state that its writer
had (but for `attempt`, which the row keeps: a retry of what nobody saw writes no event), so that a restart, a cancel
or a retry can go on from the rows alone. The verbs (`claim`, `write`, `finish` ...) return the events to be stored,
numbered on from the last one, and advance the state; a journal whose events were refused by the store is thrown away
and replayed.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from perdure.domain import events as ev
from perdure.domain.events import Event
from perdure.domain.request import CreateRequest
from perdure.domain.response import (
    IncompleteDetails,
    ItemStatus,
    OutputMessage,
    OutputText,
    Progress,
    Response,
    ResponseError,
    item_id,
    render,
    usage,
)


@dataclass
class Journal:
    """The state of one response.

    `input_tokens` is the length of the prompt, `created_at` seconds since 1970. `tokens` are the ids of the current
    attempt, in order; `text` the text they stand for; `output_index` the place of its message in the output;
    `announced` whether a reader has been told of that message.
    """

    ident: str
    created_at: int
    request: CreateRequest
    input_tokens: int
    exact: bool = True
    attempt: int = 1
    next_seq: int = 0
    output_index: int = 0
    announced: bool = False
    item_open: bool = False
    text: str = ""
    tokens: list[int] = field(default_factory=list[int])
    _unplaced: tuple[int, ...] = ()

    # What happens to a response, in the order of its life.

    def create(self) -> list[Event]:
        """Events of the submit: event 0, and for background work the place in the queue."""
        response = msgspec.Raw(msgspec.json.encode(self.response("queued")))  # one and the same in both
        kinds = (ev.CREATED, ev.QUEUED) if self.request.background else (ev.CREATED,)
        return [ev.lifecycle(*self._number(), kind, response) for kind in kinds]

    def claim(self) -> list[Event]:
        """A worker takes the task."""
        return [self._lifecycle(ev.IN_PROGRESS, "in_progress")]

    def write(self, text: str, tokens: Sequence[int]) -> list[Event]:
        """New text. Tokens that show none are kept with the next event, whichever it is."""
        self.tokens.extend(tokens)
        if not text:
            self._unplaced += tuple(tokens)
            return []
        opening = self._open_item()
        self._unplaced += tuple(tokens)
        self.text += text
        return [*opening, self._plain(ev.TEXT_DELTA, **self._place(), delta=text, logprobs=[])]

    def finish(self, at: int) -> list[Event]:
        """The model closed its turn. `at` is in seconds since 1970."""
        closing = [*self._open_item(), *self._close_item("completed")]
        return [*closing, self._lifecycle(ev.COMPLETED, "completed", completed_at=at)]

    def cut(self) -> list[Event]:
        """The limit of tokens, or the end of the window, was reached."""
        closing = self._close_item("incomplete")
        details = IncompleteDetails("max_output_tokens")
        return [*closing, self._lifecycle(ev.INCOMPLETE, "incomplete", incomplete=details)]

    def fail(self, error: ResponseError) -> list[Event]:
        """The response cannot be finished."""
        closing = self._close_item("incomplete")
        return [*closing, self._lifecycle(ev.FAILED, "failed", error=error)]

    def cancel(self) -> list[Event]:
        """Somebody who may asked for the end."""
        closing = self._close_item("incomplete")
        return [*closing, self._lifecycle(ev.CANCELLED, "cancelled")]

    def retry(self, reason: str) -> list[Event]:
        """Start the text anew. Shown output is closed and announced as replaced; without any there is no event."""
        self.attempt += 1
        if not self.announced:
            self.tokens, self._unplaced = [], ()
            return []
        closing = self._close_item("incomplete")
        retried = self._plain(ev.RETRIED, attempt=self.attempt, reason=reason)
        self._start_over()
        return [*closing, retried]

    # What it adds up to.

    def response(self, status: str) -> Response:
        """The response object for a reader who comes by while it is worked on."""
        return render(self.ident, self.created_at, self.request, self._progress(status))

    def replay(self, log: Iterable[Event]) -> "Journal":
        """Add stored events, in order, and return the journal itself."""
        for event in log:
            if event.seq != self.next_seq:
                raise AssertionError(f"the log of {self.ident} has {event.seq} where {self.next_seq} belongs")
            self.next_seq += 1
            self.tokens.extend(event.tokens)
            if event.type in _REPLAYED:
                self._replay_one(event.type, msgspec.json.decode(event.data))
        return self

    # How.

    def _replay_one(self, kind: str, data: dict[str, Any]) -> None:
        if kind == ev.ITEM_ADDED:
            self.announced = self.item_open = True
        elif kind == ev.TEXT_DELTA:
            self.text += data["delta"]
        elif kind == ev.ITEM_DONE:
            self.item_open = False
        elif kind == ev.RETRIED:
            self.attempt = data["attempt"]
            self._start_over()
        else:
            raise AssertionError(f"nobody knows how to replay {kind}")

    def _start_over(self) -> None:
        self.output_index += 1
        self.announced = False
        self.text = ""
        self.tokens = []

    def _progress(self, status: str, **more: Any) -> Progress:
        ended = status not in ("queued", "in_progress")
        return Progress(
            status=status,
            attempt=self.attempt,
            exact=self.exact,
            output=(self._item(_ITEM_STATUS.get(status, "incomplete")),) if self.announced else (),
            usage=usage(self.input_tokens, len(self.tokens)) if ended else None,
            **more,
        )

    def _item(self, status: ItemStatus) -> OutputMessage:
        return OutputMessage(item_id(self.ident, self.output_index), status, (OutputText(self.text),))

    def _place(self) -> dict[str, object]:
        item = item_id(self.ident, self.output_index)
        return {"item_id": item, "output_index": self.output_index, "content_index": 0}

    def _open_item(self) -> list[Event]:
        if self.item_open:
            return []
        self.announced = self.item_open = True
        item = OutputMessage(item_id(self.ident, self.output_index), "in_progress")
        return [
            self._plain(ev.ITEM_ADDED, output_index=self.output_index, item=item),
            self._plain(ev.PART_ADDED, **self._place(), part=OutputText("")),
        ]

    def _close_item(self, status: ItemStatus) -> list[Event]:
        if not self.item_open:
            return []
        self.item_open = False
        return [
            self._plain(ev.TEXT_DONE, **self._place(), text=self.text, logprobs=[]),
            self._plain(ev.PART_DONE, **self._place(), part=OutputText(self.text)),
            self._plain(ev.ITEM_DONE, output_index=self.output_index, item=self._item(status)),
        ]

    def _plain(self, kind: str, **fields: object) -> Event:
        return ev.plain(*self._number(), kind, **fields)

    def _lifecycle(self, kind: str, status: str, **more: Any) -> Event:
        response = render(self.ident, self.created_at, self.request, self._progress(status, **more))
        return ev.lifecycle(*self._number(), kind, response)

    def _number(self) -> tuple[int, tuple[int, ...]]:
        """The next sequence number, and the tokens that wait for an event to be kept with."""
        numbered = self.next_seq, self._unplaced
        self.next_seq += 1
        self._unplaced = ()
        return numbered


_REPLAYED = frozenset({ev.ITEM_ADDED, ev.TEXT_DELTA, ev.ITEM_DONE, ev.RETRIED})
"""The types that change the state, each with a branch in `_replay_one`. All others only take a number."""
_ITEM_STATUS: dict[str, ItemStatus] = {"completed": "completed", "in_progress": "in_progress"}
