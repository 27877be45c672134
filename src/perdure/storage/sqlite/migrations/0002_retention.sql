-- Retention: how to find the finished tasks that have stood long enough, which names they leave behind, and more of
-- what nobody can delete before its time. And the queue, in which clients take turns.

-- Finished tasks that only their age removes, the oldest first. Those with a time of their own stand in
-- `tasks_purgeable`: each stands in one of the two.
CREATE INDEX tasks_outlived ON tasks (finished_at) WHERE finished_at IS NOT NULL AND purge_at IS NULL;

-- The name of a task that its age has removed, so that its client, and nobody else, is told so.
CREATE TABLE tombstones (
    ident TEXT NOT NULL PRIMARY KEY CHECK (ident <> ''),
    client_id INTEGER NOT NULL REFERENCES clients (id),
    remembered_until INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX tombstones_by_time ON tombstones (remembered_until);

-- What hangs on an unfinished task stays, its history and its name too.

CREATE TRIGGER task_attempts_stay_while_unfinished BEFORE DELETE ON task_attempts
WHEN (SELECT finished_at FROM tasks WHERE id = OLD.task_id) IS NULL
BEGIN
    SELECT RAISE(ABORT, 'the history of an unfinished task cannot be deleted');
END;

CREATE TRIGGER task_attempts_never_change BEFORE UPDATE ON task_attempts
BEGIN
    SELECT RAISE(ABORT, 'a history is never changed');
END;

CREATE TRIGGER responses_never_change BEFORE UPDATE ON responses
BEGIN
    SELECT RAISE(ABORT, 'a response is never changed');
END;

CREATE TRIGGER tasks_keep_their_names BEFORE UPDATE OF id, ident ON tasks
BEGIN
    SELECT RAISE(ABORT, 'a task keeps its number and its name');
END;

-- Otherwise whoever sets two columns could delete everything.
CREATE TRIGGER tasks_end_with_an_event BEFORE UPDATE OF status ON tasks
WHEN OLD.finished_at IS NULL AND NEW.finished_at IS NOT NULL AND NEW.next_seq = OLD.next_seq
BEGIN
    SELECT RAISE(ABORT, 'an end comes with its event');
END;

-- Asks for the last event instead of the one before: then an event cannot be replaced either.
DROP TRIGGER task_events_follow;
CREATE TRIGGER task_events_follow BEFORE INSERT ON task_events
WHEN NEW.seq <> coalesce((
    SELECT iif(
        type IN ('response.completed', 'response.incomplete', 'response.failed', 'response.cancelled'), -1, seq + 1
    )
    FROM task_events WHERE task_id = NEW.task_id ORDER BY seq DESC LIMIT 1
), 0)
BEGIN
    SELECT RAISE(ABORT, 'an event follows its predecessor, and nothing follows the terminal one');
END;

-- The queue in its order: one client's tasks do not stand before another's, however many they are.
DROP INDEX tasks_queued;
CREATE INDEX tasks_queued ON tasks (background, client_id, id) WHERE status = 'queued';

-- The client whose task was taken last, of each class; the next turn is of the next one by id. It is kept, so that a
-- place in the queue can be told from what is kept, and a restart does not begin with the same client again.
ALTER TABLE service_config ADD COLUMN foreground_turn INTEGER NOT NULL DEFAULT 0 CHECK (foreground_turn >= 0);
ALTER TABLE service_config ADD COLUMN background_turn INTEGER NOT NULL DEFAULT 0 CHECK (background_turn >= 0);

-- A claim is a turn. It writes the row of the service anyway, for the count.
DROP TRIGGER tasks_change_the_queue;
CREATE TRIGGER tasks_change_the_queue AFTER UPDATE OF status ON tasks
WHEN (OLD.status = 'queued') <> (NEW.status = 'queued')
BEGIN
    -- A count that a foreign hand has spoilt must not stop the work.
    UPDATE service_config SET
        tasks_queued = max(0, tasks_queued + iif(NEW.status = 'queued', 1, -1)),
        foreground_turn = iif(NEW.status = 'loading' AND NOT NEW.background, NEW.client_id, foreground_turn),
        background_turn = iif(NEW.status = 'loading' AND NEW.background, NEW.client_id, background_turn);
END;
