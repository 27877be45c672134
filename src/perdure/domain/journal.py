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
from perdure.domain.drafts import Draft, begun
from perdure.domain.events import Event
from perdure.domain.parts import Part, Text, joined
from perdure.domain.request import CreateRequest
from perdure.domain.response import (
    IncompleteDetails,
    ItemStatus,
    OutputItem,
    OutputMessage,
    Progress,
    Response,
    ResponseError,
    render,
    usage,
)


@dataclass
class Journal:
    """The state of one response.

    `input_tokens` is the length of the prompt, `created_at` seconds since 1970. `tokens` are the ids of the current
    attempt, in order, `closed` its finished items and `draft` the one that is being written; `output_index` is the
    place of the next item in the output.
    """

    ident: str
    created_at: int
    request: CreateRequest
    input_tokens: int
    exact: bool = True
    attempt: int = 1
    next_seq: int = 0
    output_index: int = 0
    closed: list[OutputItem] = field(default_factory=list[OutputItem])
    draft: Draft | None = None
    tokens: list[int] = field(default_factory=list[int])
    reasoning_tokens: int = 0
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

    def write(self, parts: Iterable[Part], tokens: Sequence[int]) -> list[Event]:
        """More of the answer. Tokens that show nothing are kept with the next event, whichever it is."""
        self.tokens.extend(tokens)
        self._unplaced += tuple(tokens)
        return [event for part in joined(parts) for event in self._write_one(part)]

    def _write_one(self, part: Part) -> list[Event]:
        draft = self.draft
        if draft is not None and draft.takes(part):
            return [self._plain(kind, **fields) for kind, fields in draft.add(part)]
        new = begun(part, self.ident, self.output_index)
        if new is None:
            return self._close("completed")
        tokens, self._unplaced = self._unplaced, ()  # they are what the new item begins with
        closing = self._close("completed")
        self._unplaced = tokens
        return closing + self._open(new)

    def finish(self, at: int) -> list[Event]:
        """The model closed its turn. `at` is in seconds since 1970."""
        opening = [] if self.announced else self._open(Draft.of(Text(""), self.ident, self.output_index))
        closing = opening + self._close("completed")
        return [*closing, self._lifecycle(ev.COMPLETED, "completed", completed_at=at)]

    def cut(self) -> list[Event]:
        """The limit of tokens, or the end of the window, was reached."""
        closing = self._close("incomplete")
        details = IncompleteDetails("max_output_tokens")
        return [*closing, self._lifecycle(ev.INCOMPLETE, "incomplete", incomplete=details)]

    def fail(self, error: ResponseError) -> list[Event]:
        """The response cannot be finished."""
        closing = self._close("incomplete")
        return [*closing, self._lifecycle(ev.FAILED, "failed", error=error)]

    def cancel(self) -> list[Event]:
        """Somebody who may asked for the end."""
        closing = self._close("incomplete")
        return [*closing, self._lifecycle(ev.CANCELLED, "cancelled")]

    def retry(self, reason: str) -> list[Event]:
        """Start the text anew. Shown output is closed and announced as replaced; without any there is no event."""
        self.attempt += 1
        if not self.announced:
            self.tokens, self._unplaced = [], ()
            return []
        closing = self._close("incomplete")
        retried = self._plain(ev.RETRIED, attempt=self.attempt, reason=reason)
        self._start_over()
        return [*closing, retried]

    @property
    def announced(self) -> bool:
        """Whether a reader has been told of output of this attempt."""
        return bool(self.closed) or self.draft is not None

    @property
    def text(self) -> str:
        """The text of the attempt's messages."""
        items = [item for item in self._output("incomplete") if isinstance(item, OutputMessage)]
        return "".join(part.text for item in items for part in item.content)

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
            self._count(event)
        return self

    # How.

    def _replay_one(self, kind: str, data: dict[str, Any]) -> None:
        if kind == ev.ITEM_ADDED:
            self.draft = Draft.replayed(data["item"], self.ident, self.output_index)
            self.output_index += 1
        elif kind == ev.ITEM_DONE:
            assert self.draft is not None  # noqa: S101 -- a broken invariant of the log
            self.closed.append(self.draft.item(data["item"]["status"]))
            self.draft = None
        elif kind == ev.RETRIED:
            self.attempt = data["attempt"]
            self._start_over()
        else:
            assert self.draft is not None  # noqa: S101 -- as above
            self.draft.replay(data)

    def _count(self, event: Event) -> None:
        if self.draft is not None and self.draft.reasons:
            self.reasoning_tokens += len(event.tokens)

    def _start_over(self) -> None:
        self.closed, self.draft, self.tokens, self.reasoning_tokens = [], None, [], 0

    def _output(self, status: ItemStatus) -> tuple[OutputItem, ...]:
        """The items, an unfinished one with this status."""
        return (*self.closed, *([self.draft.item(status)] if self.draft is not None else ()))

    def _progress(self, status: str, **more: Any) -> Progress:
        ended = status not in ("queued", "in_progress")
        counted = usage(self.input_tokens, len(self.tokens), self.reasoning_tokens)
        return Progress(
            status=status,
            attempt=self.attempt,
            exact=self.exact,
            output=self._output("incomplete" if ended else "in_progress"),
            usage=counted if ended else None,
            **more,
        )

    def _open(self, draft: Draft) -> list[Event]:
        self.draft = draft
        self.output_index += 1
        return [self._plain(kind, **fields) for kind, fields in draft.opening()]

    def _close(self, status: ItemStatus) -> list[Event]:
        if self.draft is None:
            return []
        draft = self.draft
        closing = [self._plain(kind, **fields) for kind, fields in draft.closing(status)]
        self.closed.append(draft.item(status))
        self.draft = None
        return closing

    def _plain(self, kind: str, **fields: object) -> Event:
        event = ev.plain(*self._number(), kind, **fields)
        self._count(event)
        return event

    def _lifecycle(self, kind: str, status: str, **more: Any) -> Event:
        seq, tokens = self._number()
        response = render(self.ident, self.created_at, self.request, self._progress(status, **more))
        return ev.lifecycle(seq, tokens, kind, response)

    def _number(self) -> tuple[int, tuple[int, ...]]:
        """The next sequence number, and the tokens that wait for an event to be kept with."""
        numbered = self.next_seq, self._unplaced
        self.next_seq += 1
        self._unplaced = ()
        return numbered


_REPLAYED = frozenset(
    {ev.ITEM_ADDED, ev.TEXT_DELTA, ev.REASONING_DELTA, ev.ARGUMENTS_DELTA, ev.ITEM_DONE, ev.RETRIED}
)
"""The types that change the state. All others only take a number."""
