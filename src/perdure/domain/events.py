"""The events of a task, as they are stored and as a reader gets them.

An event is rendered once, when it is written, and never again: an upgrade must not change bytes that somebody has
seen. The response object inside a lifecycle event is kept apart (`snapshot`), since it is large and is also what a
plain read returns.
"""

import msgspec


class Event(msgspec.Struct, frozen=True):
    """One event. `tokens` are the token ids that its text was made of; they are kept and never sent."""

    seq: int
    type: str
    data: bytes
    snapshot: bytes | None = None
    tokens: tuple[int, ...] = ()

    @property
    def json(self) -> bytes:
        """The event as a JSON object."""
        return self.data if self.snapshot is None else b"%s%s}" % (self.data, self.snapshot)


CREATED = "response.created"
QUEUED = "response.queued"
IN_PROGRESS = "response.in_progress"
ITEM_ADDED = "response.output_item.added"
PART_ADDED = "response.content_part.added"
TEXT_DELTA = "response.output_text.delta"
TEXT_DONE = "response.output_text.done"
PART_DONE = "response.content_part.done"
REASONING_DELTA = "response.reasoning_text.delta"
REASONING_DONE = "response.reasoning_text.done"
ARGUMENTS_DELTA = "response.function_call_arguments.delta"
ARGUMENTS_DONE = "response.function_call_arguments.done"
ITEM_DONE = "response.output_item.done"
RETRIED = "perdure:task.retried"
COMPLETED = "response.completed"
INCOMPLETE = "response.incomplete"
FAILED = "response.failed"
CANCELLED = "response.cancelled"

TERMINAL_TYPES = frozenset({COMPLETED, INCOMPLETE, FAILED, CANCELLED})

_encode = msgspec.json.encode


def plain(seq: int, tokens: tuple[int, ...], kind: str, **fields: object) -> Event:
    """An event whose fields are its own."""
    return Event(seq, kind, _encode({"type": kind, "sequence_number": seq, **fields}), None, tokens)


def lifecycle(seq: int, tokens: tuple[int, ...], kind: str, response: object) -> Event:
    """An event that carries the whole response object."""
    head = b'{"type":%s,"sequence_number":%d,"response":' % (_encode(kind), seq)
    return Event(seq, kind, head, _encode(response), tokens)
