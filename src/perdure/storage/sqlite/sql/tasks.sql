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
-- The clients of a class take turns by their ids, round and round: first those after the one whose turn was last, then
-- from the first one on. So there are four stretches of the index to look into; each is a seek, however long the queue.
WITH stretches (place, background, after, upto) AS (
    SELECT 0, 0, foreground_turn, 9223372036854775807 FROM service_config
    UNION ALL SELECT 1, 0, 0, foreground_turn FROM service_config
    UNION ALL SELECT 2, 1, background_turn, 9223372036854775807 FROM service_config
    UNION ALL SELECT 3, 1, 0, background_turn FROM service_config
),
firsts (place, id) AS MATERIALIZED (
    SELECT place, (
        SELECT id FROM tasks AS t
        WHERE t.status = 'queued' AND t.background = stretches.background
            AND t.client_id > stretches.after AND t.client_id <= stretches.upto
            AND t.id NOT IN (SELECT value FROM json_each(:live))
            AND t.model IN (SELECT value FROM json_each(:models))
        ORDER BY t.client_id, t.id LIMIT 1
    )
    FROM stretches
)
SELECT * FROM task_records
WHERE id = (SELECT id FROM firsts WHERE id IS NOT NULL ORDER BY place LIMIT 1);

-- name: queue_position
-- The task is taken in the round that has the number of its client's own tasks before it. A client whose turn comes
-- earlier in a round is served once more by then, as far as it has tasks. Before a background task goes every
-- foreground one.
WITH asked (background, client_id, turn, round) AS MATERIALIZED (
    SELECT t.background, t.client_id, iif(t.background, s.background_turn, s.foreground_turn), (
        SELECT count(*) FROM tasks AS own
        WHERE own.status = 'queued' AND own.background = t.background AND own.client_id = t.client_id
            AND own.id < t.id
    )
    FROM tasks AS t CROSS JOIN service_config AS s WHERE t.id = :id AND t.status = 'queued'
),
others (client_id, waiting) AS (
    SELECT t.client_id, count(*) FROM asked CROSS JOIN tasks AS t
    WHERE t.status = 'queued' AND t.background = asked.background AND t.client_id <> asked.client_id
    GROUP BY t.background, t.client_id
)
SELECT iif(background, (SELECT count(*) FROM tasks WHERE status = 'queued' AND background = 0), 0) + round + (
    SELECT coalesce(sum(min(waiting, round + (
        (others.client_id <= turn, others.client_id) < (asked.client_id <= turn, asked.client_id)
    ))), 0)
    FROM others
)
FROM asked;

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
