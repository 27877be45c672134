-- name: queue_up
-- Take a place in the queue, if there is one.
UPDATE service_config SET tasks_queued = tasks_queued + 1 WHERE tasks_queued < :most;

-- name: insert_task
-- By position, which costs a submit less than names.
INSERT INTO tasks (
    ident, client_id, model, on_restart, background, stored, exact, next_seq, prompt_tokens, tokens_max, created_at,
    kind, status
) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 'response', 'queued');

-- name: insert_response
INSERT INTO responses (id, request, received, prompt) VALUES (?, ?, ?, ?);

-- name: note_attempt
-- After the step itself, so that attempt and status are those that it led to.
INSERT INTO task_attempts (task_id, at, attempt, status, note)
SELECT id, :at, attempt, status, :note FROM tasks WHERE id = :id;

-- name: move_task
-- A step that may change any column. NULL stands for "as it is", but for the three columns that can become NULL
-- again, which have a flag each.
UPDATE tasks SET
    status = :status,
    next_seq = next_seq + :events,
    attempt = coalesce(:attempt, attempt),
    crashes = coalesce(:crashes, crashes),
    tokens_kept = coalesce(:tokens_kept, tokens_kept),
    tokens_mark = coalesce(:tokens_mark, tokens_mark),
    claimed_at = coalesce(:claimed_at, claimed_at),
    finished_at = coalesce(:finished_at, finished_at),
    exact = coalesce(:exact, exact),
    error = coalesce(:error, error),
    hidden = coalesce(:hidden, hidden),
    boot = iif(:set_boot, :boot, boot),
    fingerprint = iif(:set_fingerprint, :fingerprint, fingerprint),
    purge_at = iif(:set_purge_at, :purge_at, purge_at)
WHERE id = :id AND next_seq = :from_seq AND status IN (SELECT value FROM json_each(:from_status));

-- name: grow_task
-- The step of a running text: more events, the same status. SQLite rewrites the entries of every index whose columns
-- a statement sets, changed or not; this one sets none, which spares the most frequent write most of its log.
UPDATE tasks SET
    next_seq = next_seq + :events,
    tokens_kept = coalesce(:tokens_kept, tokens_kept)
WHERE id = :id AND next_seq = :from_seq AND status = :status;

-- name: task_by_ident
SELECT * FROM task_records
WHERE ident = :ident;

-- name: goes_on
SELECT 1 FROM tasks WHERE ident = :ident AND finished_at IS NULL;

-- name: unfinished
SELECT * FROM task_records
WHERE finished_at IS NULL AND id > :after_id
ORDER BY id LIMIT :limit;

-- name: next_owned
SELECT * FROM task_records
WHERE status IN ('loading', 'running', 'cancelling') AND boot = :boot AND id NOT IN (SELECT value FROM json_each(:live))
    AND (status = 'cancelling' OR model IN (SELECT value FROM json_each(:models)))
ORDER BY id LIMIT 1;

-- name: next_queued
SELECT * FROM task_records
WHERE status = 'queued' AND id NOT IN (SELECT value FROM json_each(:live))
    AND model IN (SELECT value FROM json_each(:models))
ORDER BY background, id LIMIT 1;

-- name: queue_position
SELECT (
    SELECT count(*) FROM tasks AS before
    WHERE before.status = 'queued' AND (before.background, before.id) < (t.background, t.id)
)
FROM tasks AS t WHERE t.id = :id AND t.status = 'queued';

-- name: received
SELECT received FROM responses WHERE id = :id;

-- name: prompt
SELECT prompt FROM responses WHERE id = :id;

-- name: attempts
-- A history begins with the submit, which the task itself tells.
SELECT created_at, 0 AS attempt, 'queued' AS status, 'submitted' AS note FROM tasks WHERE id = :id
UNION ALL
SELECT * FROM (SELECT at, attempt, status, note FROM task_attempts WHERE task_id = :id ORDER BY id);

-- name: finished
SELECT ident, client_id FROM tasks WHERE id = :id AND finished_at IS NOT NULL;

-- name: leave_name
INSERT INTO tombstones (ident, client_id, remembered_until) VALUES (:ident, :client_id, :remembered_until)
ON CONFLICT (ident) DO UPDATE SET client_id = excluded.client_id, remembered_until = excluded.remembered_until;

-- name: expired
SELECT client_id FROM tombstones WHERE ident = :ident;

-- name: forget
DELETE FROM tombstones WHERE ident IN (
    SELECT ident FROM tombstones WHERE remembered_until <= :now ORDER BY remembered_until LIMIT :limit
);

-- name: purge_bodies
-- The five of a purge stand in the order that the references allow.
DELETE FROM event_bodies WHERE task_id = :id;

-- name: purge_events
DELETE FROM task_events WHERE task_id = :id;

-- name: purge_attempts
DELETE FROM task_attempts WHERE task_id = :id;

-- name: purge_response
DELETE FROM responses WHERE id = :id;

-- name: purge_task
DELETE FROM tasks WHERE id = :id;
