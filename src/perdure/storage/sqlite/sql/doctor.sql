-- What `perdure doctor` asks of a database, in one read transaction. Every schema has what is asked for here.

-- name: queue
SELECT tasks_queued, (SELECT count(*) FROM tasks WHERE status = 'queued') FROM service_config;

-- name: unfinished
SELECT status, count(*) FROM tasks WHERE finished_at IS NULL GROUP BY status ORDER BY status;

-- name: finished
SELECT count(*) FROM tasks WHERE finished_at IS NOT NULL;

-- name: journals
-- Tasks whose events are not numbered from 0 to the last one that was given out, or that have not the one end that
-- their status calls for.
SELECT t.ident
FROM tasks AS t
LEFT JOIN (
    SELECT
        task_id, count(*) AS events, max(seq) AS last,
        sum(type IN ('response.completed', 'response.incomplete', 'response.failed', 'response.cancelled')) AS ends
    FROM task_events GROUP BY task_id
) AS e ON e.task_id = t.id
WHERE ifnull(e.events, 0) <> t.next_seq
    OR ifnull(e.last, -1) <> t.next_seq - 1
    OR ifnull(e.ends, 0) <> (t.finished_at IS NOT NULL)
ORDER BY t.id;

-- name: due
-- Those with a time of their own: deleted, or not to be stored.
SELECT count(*) FROM tasks WHERE purge_at IS NOT NULL AND finished_at IS NOT NULL AND purge_at <= :before;

-- name: models
SELECT name, path, size_bytes FROM models ORDER BY name;

-- name: owner
SELECT count(*) FROM clients WHERE token_hash = :token_hash AND revoked_at IS NULL;
