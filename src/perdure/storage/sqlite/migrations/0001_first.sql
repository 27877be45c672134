-- What is kept. Times are integers, microseconds since 1970; booleans are 0 or 1; JSON is text, stored as rendered.
--
-- The schema holds what must never be violated, whichever program writes: an end is reached once and never left, the
-- journal of a task is gapless and only grows, nothing of an unfinished task can be deleted.

-- The service itself: one row, made here, so that every later write to it is an update.
CREATE TABLE service_config (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    service_id TEXT NOT NULL CHECK (length(service_id) = 32),
    boot_id TEXT,
    booted_at INTEGER,
    -- Commits that the disk refused. See `bury` in service.sql for why this is written down.
    commits_refused INTEGER NOT NULL DEFAULT 0,
    -- How many tasks are queued. Each submit asks, and must not count thousands for it. `queue_up` adds one, the
    -- trigger below follows the rest. (A trigger for the insert too would make it three times as dear: SQLite keeps
    -- a journal of its own for a statement whose triggers write.)
    tasks_queued INTEGER NOT NULL DEFAULT 0 CHECK (tasks_queued >= 0)
) STRICT;

INSERT INTO service_config (id, service_id) VALUES (1, lower(hex(randomblob(16))));

CREATE TABLE clients (
    id INTEGER PRIMARY KEY,
    name TEXT NOT NULL UNIQUE CHECK (name <> ''),
    -- SHA-256 of the token. Two clients with one token could not be told apart.
    token_hash BLOB NOT NULL UNIQUE CHECK (length(token_hash) = 32),
    -- The first letters of the token, for people who have to tell tokens apart.
    token_prefix TEXT NOT NULL,
    -- Names separated by one blank, as OAuth writes them.
    scopes TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    expires_at INTEGER,
    revoked_at INTEGER
) STRICT;

-- Metadata and digests only: the files stay outside.
CREATE TABLE models (
    id INTEGER PRIMARY KEY,
    name TEXT NOT NULL UNIQUE CHECK (name <> ''),
    digest TEXT NOT NULL CHECK (length(digest) = 64),
    size_bytes INTEGER NOT NULL CHECK (size_bytes >= 0),
    context_length INTEGER NOT NULL CHECK (context_length > 0),
    exact INTEGER NOT NULL CHECK (exact IN (0, 1)),
    fingerprint TEXT NOT NULL,
    path TEXT NOT NULL,
    created_at INTEGER NOT NULL
) STRICT;

-- AUTOINCREMENT: the number of a purged task must not come back, or a late step meant for the old one would find the
-- new one.
CREATE TABLE tasks (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    ident TEXT NOT NULL UNIQUE CHECK (ident <> ''),
    client_id INTEGER NOT NULL REFERENCES clients (id),
    kind TEXT NOT NULL CHECK (kind IN ('response', 'model_import')),
    model TEXT NOT NULL,
    status TEXT NOT NULL CHECK (status IN (
        'queued', 'loading', 'running', 'cancelling', 'completed', 'incomplete', 'failed', 'cancelled'
    )),
    on_restart TEXT NOT NULL CHECK (on_restart IN ('fail', 'retry', 'resume')),
    background INTEGER NOT NULL CHECK (background IN (0, 1)),
    stored INTEGER NOT NULL CHECK (stored IN (0, 1)),
    exact INTEGER NOT NULL CHECK (exact IN (0, 1)),
    hidden INTEGER NOT NULL DEFAULT 0 CHECK (hidden IN (0, 1)),
    attempt INTEGER NOT NULL DEFAULT 0 CHECK (attempt >= 0),
    crashes INTEGER NOT NULL DEFAULT 0 CHECK (crashes >= 0),
    next_seq INTEGER NOT NULL CHECK (next_seq >= 0),
    tokens_kept INTEGER NOT NULL DEFAULT 0 CHECK (tokens_kept >= 0),
    tokens_mark INTEGER NOT NULL DEFAULT 0 CHECK (tokens_mark >= 0),
    prompt_tokens INTEGER NOT NULL CHECK (prompt_tokens >= 0),
    -- Settled at submit: a later start with another window must not move the end of the text.
    tokens_max INTEGER NOT NULL CHECK (tokens_max > 0),
    created_at INTEGER NOT NULL,
    claimed_at INTEGER,
    finished_at INTEGER,
    boot TEXT,
    fingerprint TEXT,
    error TEXT,
    purge_at INTEGER,
    -- So that `finished_at IS NULL` and "unfinished" are one thing, for the indexes and the guards below.
    CHECK ((finished_at IS NOT NULL) = (status IN ('completed', 'incomplete', 'failed', 'cancelled')))
) STRICT;

-- The start-up scan: a million finished tasks must not cost it anything.
CREATE INDEX tasks_unfinished ON tasks (id) WHERE finished_at IS NULL;
-- The queue in its order.
CREATE INDEX tasks_queued ON tasks (background, id) WHERE status = 'queued';
-- What a process answers for.
CREATE INDEX tasks_owned ON tasks (boot, id) WHERE status IN ('loading', 'running', 'cancelling');
-- A client's list, whole and by status.
CREATE INDEX tasks_listed ON tasks (client_id, id) WHERE hidden = 0;
CREATE INDEX tasks_listed_by_status ON tasks (client_id, status, id) WHERE hidden = 0;
-- What may go, the earliest first.
CREATE INDEX tasks_purgeable ON tasks (purge_at) WHERE purge_at IS NOT NULL AND finished_at IS NOT NULL;

CREATE TRIGGER tasks_change_the_queue AFTER UPDATE OF status ON tasks
WHEN (OLD.status = 'queued') <> (NEW.status = 'queued')
BEGIN
    -- A count that a foreign hand has spoilt must not stop the work.
    UPDATE service_config SET tasks_queued = max(0, tasks_queued + iif(NEW.status = 'queued', 1, -1));
END;

CREATE TRIGGER tasks_end_once BEFORE UPDATE OF status, finished_at, next_seq, attempt, tokens_kept ON tasks
WHEN OLD.finished_at IS NOT NULL AND (
    NEW.status <> OLD.status OR NEW.finished_at IS NOT OLD.finished_at OR NEW.next_seq <> OLD.next_seq
    OR NEW.attempt <> OLD.attempt OR NEW.tokens_kept <> OLD.tokens_kept
)
BEGIN
    SELECT RAISE(ABORT, 'a terminal state is never left');
END;

CREATE TRIGGER tasks_stay_while_unfinished BEFORE DELETE ON tasks
WHEN OLD.finished_at IS NULL
BEGIN
    SELECT RAISE(ABORT, 'an unfinished task cannot be deleted');
END;

-- The response that a task works on; it has the number of its task. Apart, because it is large and never changes.
CREATE TABLE responses (
    id INTEGER PRIMARY KEY REFERENCES tasks (id),
    request TEXT NOT NULL,
    received TEXT NOT NULL,
    -- Token ids, four bytes each, the lowest first.
    prompt BLOB NOT NULL CHECK (length(prompt) % 4 = 0)
) STRICT;

CREATE TRIGGER responses_stay_while_unfinished BEFORE DELETE ON responses
WHEN (SELECT finished_at FROM tasks WHERE id = OLD.id) IS NULL
BEGIN
    SELECT RAISE(ABORT, 'the response of an unfinished task cannot be deleted');
END;

-- A task as the program reads it, and as it stands in a list: there the request is left out, as a hundred of them
-- could be gigabytes.
CREATE VIEW task_lines AS
SELECT
    id, ident, client_id, kind, model, status, on_restart, background, stored, exact, attempt, crashes, next_seq,
    tokens_kept, tokens_mark, prompt_tokens, tokens_max, created_at, claimed_at, finished_at, boot, fingerprint, error, purge_at,
    hidden, x'' AS request
FROM tasks;

CREATE VIEW task_records AS
SELECT
    t.id, t.ident, t.client_id, t.kind, t.model, t.status, t.on_restart, t.background, t.stored, t.exact, t.attempt,
    t.crashes, t.next_seq, t.tokens_kept, t.tokens_mark, t.prompt_tokens, t.tokens_max, t.created_at, t.claimed_at, t.finished_at,
    t.boot, t.fingerprint, t.error, t.purge_at, t.hidden, CAST(r.request AS BLOB) AS request
FROM tasks AS t INNER JOIN responses AS r ON r.id = t.id;

-- The journal. Without a rowid, a task's events lie side by side, which is what replay and purge read; for that the
-- rows must stay below a kilobyte, so large JSON stands in event_bodies and `data` is NULL here.
CREATE TABLE task_events (
    task_id INTEGER NOT NULL REFERENCES tasks (id),
    seq INTEGER NOT NULL CHECK (seq >= 0),
    type TEXT NOT NULL CHECK (type <> ''),
    data TEXT,
    -- Token ids that the event was made of, as in `responses.prompt`.
    tokens BLOB CHECK (length(tokens) % 4 = 0),
    PRIMARY KEY (task_id, seq)
) STRICT, WITHOUT ROWID;

CREATE UNIQUE INDEX task_events_one_end ON task_events (task_id)
WHERE type IN ('response.completed', 'response.incomplete', 'response.failed', 'response.cancelled');

-- The number is taken from the task first (tasks.next_seq), then the event is written.
CREATE TRIGGER task_events_are_counted BEFORE INSERT ON task_events
WHEN NEW.seq >= (SELECT next_seq FROM tasks WHERE id = NEW.task_id)
BEGIN
    SELECT RAISE(ABORT, 'an event has a number that its task has not given out');
END;

CREATE TRIGGER task_events_follow BEFORE INSERT ON task_events
WHEN NEW.seq > 0 AND NOT EXISTS (
    SELECT 1 FROM task_events
    WHERE task_id = NEW.task_id AND seq = NEW.seq - 1
        AND type NOT IN ('response.completed', 'response.incomplete', 'response.failed', 'response.cancelled')
)
BEGIN
    SELECT RAISE(ABORT, 'an event follows its predecessor, and nothing follows the terminal one');
END;

CREATE TRIGGER task_events_never_change BEFORE UPDATE ON task_events
BEGIN
    SELECT RAISE(ABORT, 'an event is never changed');
END;

CREATE TRIGGER task_events_stay_while_unfinished BEFORE DELETE ON task_events
WHEN (SELECT finished_at FROM tasks WHERE id = OLD.task_id) IS NULL
BEGIN
    SELECT RAISE(ABORT, 'events of an unfinished task cannot be deleted');
END;

-- Large JSON of events. `snapshot` is the response object of a lifecycle event, kept once: `data` is what stands
-- before it in the event.
CREATE TABLE event_bodies (
    id INTEGER PRIMARY KEY,
    task_id INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    data TEXT NOT NULL,
    snapshot TEXT,
    UNIQUE (task_id, seq),
    FOREIGN KEY (task_id, seq) REFERENCES task_events (task_id, seq)
) STRICT;

CREATE TRIGGER event_bodies_never_change BEFORE UPDATE ON event_bodies
BEGIN
    SELECT RAISE(ABORT, 'an event is never changed');
END;

CREATE TRIGGER event_bodies_stay_while_unfinished BEFORE DELETE ON event_bodies
WHEN (SELECT finished_at FROM tasks WHERE id = OLD.task_id) IS NULL
BEGIN
    SELECT RAISE(ABORT, 'events of an unfinished task cannot be deleted');
END;

-- The history of a task, for people.
CREATE TABLE task_attempts (
    id INTEGER PRIMARY KEY,
    task_id INTEGER NOT NULL REFERENCES tasks (id),
    at INTEGER NOT NULL,
    attempt INTEGER NOT NULL,
    status TEXT NOT NULL,
    note TEXT NOT NULL
) STRICT;

CREATE INDEX task_attempts_by_task ON task_attempts (task_id, id);

-- One use of a key for one operation of one client. The uniqueness is the only arbiter of who came first.
CREATE TABLE idempotency_keys (
    id INTEGER PRIMARY KEY,
    client_id INTEGER NOT NULL REFERENCES clients (id),
    operation TEXT NOT NULL CHECK (operation <> ''),
    key_hash BLOB NOT NULL CHECK (length(key_hash) = 32),
    request_digest BLOB NOT NULL CHECK (length(request_digest) = 32),
    -- NULL once the response is gone: the key outlives it.
    task_id INTEGER REFERENCES tasks (id) ON DELETE SET NULL,
    created_at INTEGER NOT NULL,
    expires_at INTEGER,
    UNIQUE (client_id, operation, key_hash)
) STRICT;

CREATE INDEX idempotency_keys_by_task ON idempotency_keys (task_id) WHERE task_id IS NOT NULL;
