-- Retention: how to find the finished tasks that have stood long enough, which names they leave behind, and more of
-- what nobody can delete before its time.

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
