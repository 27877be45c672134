"""The door to where work is kept.

What every store promises, whichever database is behind it:

* A call that writes returns after the change would survive a power cut, and not before. When it raises, nothing of it
  was kept.
* Events and status change together or not at all (P4). The status moves by compare-and-set, so of two who want to
  move a task one meets `StaleTask` and nothing of his was kept.
* A caller who is cancelled while he waits neither undoes his own write nor anybody else's.
* A write that was refused stays refused. (Where the disk refuses everything from then on, a crash may bring back the
  last one that was refused at its very end; the first write that succeeds again closes that gap.)
* `StorageFull` and `StorageFailed` end with the disk's trouble: the store needs no restart, and reads go on. It tells
  of the trouble itself, once, and of its end. `StorageDamaged` does not end: from then on nothing is written.

Times are integers, microseconds since 1970. `ident` is the outside name of a response and its task without prefix.
"""

from collections.abc import Collection, Sequence
from typing import Protocol

import msgspec
from msgspec import UNSET, UnsetType

from perdure.domain.events import Event
from perdure.domain.lifecycle import Status
from perdure.domain.model import ModelCard
from perdure.domain.principal import Principal, Scope
from perdure.domain.recovery import OnRestart


class NewTask(msgspec.Struct, frozen=True):
    """A response and its task, about to be accepted.

    `request` is the JSON of the validated request, `received` the JSON array of the items that it answers, in normal
    form (`domain.items`), `prompt` the token
    ids to read, `tokens_max` how many may be drawn after them. `events` start at number 0.
    """

    ident: str
    client_id: int
    model: str
    on_restart: OnRestart
    background: bool
    stored: bool
    exact: bool
    created_at: int
    request: bytes
    received: bytes
    prompt: tuple[int, ...]
    tokens_max: int
    events: tuple[Event, ...]


class TaskRecord(msgspec.Struct, frozen=True):
    """A task as it is kept.

    `id` orders tasks by their submit. `next_seq` is the number that the next event gets. `boot` names the process
    that answers for the task, None when nobody does. `attempt` counts starts of the text (0: none yet), `crashes`
    the starts since the last committed token that ended in a crash; `tokens_kept` are the committed tokens of the
    current attempt and `tokens_mark` the most that any start began with. `tokens_max` is where the text is cut,
    settled at submit. `claimed_at` is 0 for a resumed task that nobody has taken up yet. `fingerprint` is the
    runtime's, of the first start of this attempt. `purge_at` is when the rows may go, `hidden` whether readers still
    find them.
    """

    id: int
    ident: str
    client_id: int
    kind: str
    model: str
    status: Status
    on_restart: OnRestart
    background: bool
    stored: bool
    exact: bool
    attempt: int
    crashes: int
    next_seq: int
    tokens_kept: int
    tokens_mark: int
    prompt_tokens: int
    tokens_max: int
    created_at: int
    claimed_at: int | None
    finished_at: int | None
    boot: str | None
    fingerprint: str | None
    error: str | None
    purge_at: int | None
    hidden: bool
    request: bytes


class Change(msgspec.Struct, frozen=True):
    """One step of one task: its new events and its new status.

    It is made only if the task is in one of `from_status` and its next event number is `from_seq`. Fields left UNSET
    stay as they are. `note` is kept with the attempt that the change belongs to (why it began or ended), for people.
    """

    task_id: int
    from_status: frozenset[Status]
    from_seq: int
    status: Status
    at: int
    events: tuple[Event, ...] = ()
    boot: str | UnsetType | None = UNSET
    attempt: int | UnsetType = UNSET
    crashes: int | UnsetType = UNSET
    tokens_kept: int | UnsetType = UNSET
    tokens_mark: int | UnsetType = UNSET
    claimed_at: int | UnsetType = UNSET
    finished_at: int | UnsetType = UNSET
    fingerprint: str | UnsetType | None = UNSET
    exact: bool | UnsetType = UNSET
    error: str | UnsetType = UNSET
    purge_at: int | UnsetType | None = UNSET
    hidden: bool | UnsetType = UNSET
    note: str | UnsetType = UNSET


class Attempt(msgspec.Struct, frozen=True):
    """A line of a task's history: when something began or ended it, and why."""

    at: int
    attempt: int
    status: Status
    note: str


class EventsPage(msgspec.Struct, frozen=True):
    """Some events of a task, in order, and whether the log went on after them when it was read."""

    events: tuple[Event, ...]
    more: bool


class WalCondition(msgspec.Struct, frozen=True):
    """How the write-ahead log of a store stands that has one.

    `state` is `ok`; `held` while a reader keeps more of it than `limit_pages` from being copied into the database; or
    `growing` while all of it is copied each time and it grows beyond `limit_pages` all the same. `pages` and
    `checkpointed_pages` are of the last checkpoint that measured, which was at `last_checkpoint_at` (microseconds
    since 1970); all are None before the first. `size_bytes` is the file's. `checkpoints` counts those of the minute.
    """

    state: str
    pages: int | None
    checkpointed_pages: int | None
    limit_pages: int | None
    size_bytes: int
    size_limit_bytes: int
    last_checkpoint_at: int | None
    checkpoints: int
    checkpoints_failed: int
    checkpoints_unmeasured: int


class Condition(msgspec.Struct, frozen=True):
    """How a store stands. `engine` names the database and its version. `trouble` is the code of the error that
    writes meet now (`storage_full`, `storage_failed`, `storage_damaged`), None while they work; `reason` says the
    same to people. `commits` and `writes` count what was made since the start; its own writes count as commits
    only. `write_waits` is how long writes waited for their commit: pairs of an upper bound in seconds and how many
    writes waited at most so long, the last one without a bound (infinity); `write_wait_seconds_sum` is their sum."""

    engine: str
    trouble: str | None
    reason: str | None
    commits: int
    writes: int
    writes_refused: int
    write_waits: tuple[tuple[float, int], ...]
    write_wait_seconds_sum: float
    wal: WalCondition | None


class StaleTask(Exception):
    """The task has moved on, or is gone: read it again and decide again. Nothing was written."""


class Store(Protocol):
    """Everything that is kept."""

    # Tasks.

    async def submit(self, new: NewTask, queue_max: int) -> None:
        """Keep a new task, queued, with its events, in one transaction.

        Raises `QueueFull` when `queue_max` tasks are queued already.
        """
        ...

    async def apply(self, change: Change) -> None:
        """Make one step. Raises `StaleTask`."""
        ...

    async def purge(self, task_ids: Sequence[int], remembered_until: int | None = None) -> None:
        """Remove tasks in a terminal state with everything that hangs on them, all in one transaction; one that is
        in no such state, or is gone, stays as it is. Within a second nothing of their texts is left in the database
        file and its log; while a reader (a backup, a doctor, a foreign program) holds the log, within a minute after
        it has left.

        With `remembered_until` each leaves its name behind until then, so that its client can be told that it has
        expired (see `expired`)."""
        ...

    async def expired(self, ident: str) -> int | None:
        """The client of a task whose name was left behind by `purge`, None for every other name."""
        ...

    async def forget(self, now: int, limit: int) -> int:
        """Remove at most `limit` names left behind whose time is not after `now`; returns how many."""
        ...

    async def task(self, ident: str) -> TaskRecord | None:
        """The task of that name, hidden or not."""
        ...

    async def ended(self, ident: str) -> bool:
        """Whether no event of this task can come any more: it stands in a terminal state, or is gone. Followers ask
        at every wake-up, so it costs little, however large the request is."""
        ...

    async def unfinished(self, after_id: int, limit: int) -> Sequence[TaskRecord]:
        """Tasks in no terminal state, by id, for the start-up scan."""
        ...

    async def next_runnable(self, boot: str, live: Collection[int], models: Collection[str]) -> TaskRecord | None:
        """What a free slot should take: first what `boot` answers for (loading, running, cancelling) and is not
        `live`, the oldest first; then the queue, foreground before background. In each of the two the clients take
        turns by their ids, round and round, beginning after the client whose task was the last of its kind to go
        from queued to loading; a turn is the client's oldest task. Whose turn it was outlives a restart.
        `live` ones are left out of both, and so are tasks of other models than `models`, which wait; only what is
        being cancelled needs no model."""
        ...

    async def queue_position(self, task_id: int) -> int | None:
        """How many queued tasks `next_runnable` gives before this one if nothing else is submitted and each model can
        be asked; None when it is not queued."""
        ...

    async def tasks(
        self, client_id: int, *, status: Status | None, limit: int, after: str | None, ascending: bool
    ) -> Sequence[TaskRecord]:
        """A page of a client's own tasks, hidden ones left out, by id. `after` is the ident before the page; one that
        is not the client's raises `NotFound` (param `after`). A page carries no `request` (it is left empty): a
        hundred of them could be gigabytes."""
        ...

    async def responses(
        self, client_id: int, *, limit: int, after: str | None, ascending: bool
    ) -> Sequence[TaskRecord]:
        """The same of those of its responses that are to stay (`stored`), in every state."""
        ...

    async def purgeable(self, now: int, limit: int) -> Sequence[TaskRecord]:
        """Tasks in a terminal state whose `purge_at` is not after `now`, the earliest first, `request` left empty."""
        ...

    async def outlived(self, finished_before: int, limit: int) -> Sequence[TaskRecord]:
        """Tasks in a terminal state without a `purge_at` of their own that ended at or before `finished_before`, the
        earliest first, `request` left empty."""
        ...

    async def next_purge_at(self) -> int | None:
        """The earliest `purge_at` of a task in a terminal state."""
        ...

    async def attempts(self, task_id: int) -> Sequence[Attempt]:
        """The history of a task, in order."""
        ...

    # What hangs on a task.

    async def events(self, task_id: int, after: int, limit: int) -> EventsPage:
        """Events with numbers above `after`, in order: at most `limit`, and no more than `EVENTS_PAGE_MAX_BYTES` of
        JSON where there are two or more of them."""
        ...

    async def snapshot(self, task_id: int) -> bytes | None:
        """The response object of the last lifecycle event, as rendered."""
        ...

    async def received(self, task_id: int) -> bytes:
        """The items that the response answers, as they were kept; empty once the task is gone."""
        ...

    async def prompt(self, task_id: int) -> tuple[int, ...]:
        """The token ids to read."""
        ...

    # Clients, models, the service itself.

    async def add_client(
        self, name: str, token_hash: bytes, token_prefix: str, scopes: frozenset[Scope], at: int
    ) -> int:
        """Keep a client; returns its id. `token_hash` is the SHA-256 of the token. A name in use gets the new token
        and scopes (the old token ends to work)."""
        ...

    async def principal(self, token_hash: bytes, now: int) -> Principal | None:
        """The client of a token that is neither revoked nor, at `now`, expired."""
        ...

    async def keep_model(self, card: ModelCard, path: str) -> None:
        """Keep what is known of a model; the file itself stays outside. Unchanged facts write nothing."""
        ...

    async def boot(self, boot_id: str, at: int) -> str:
        """Note that a process began to serve; returns the lasting id of this service (made at the first boot)."""
        ...

    async def queued(self) -> int:
        """How many tasks wait for a slot."""
        ...

    async def version(self) -> str:
        """A mark of everything that is kept: it changes with each commit and with nothing else, and no mark ever
        comes back. Only equal or unequal means anything (V1, V2). Raises `StorageFailed` or `Unavailable` when it
        cannot be told; that is no version."""
        ...

    def condition(self) -> Condition:
        """How the store stands, from memory."""
        ...

    async def close(self) -> None:
        """Finish what was handed over, then close; the last connection to close is the writing one."""
        ...
