-- name: insert_event
INSERT INTO task_events (task_id, seq, type, data, tokens) VALUES (?, ?, ?, ?, ?);

-- name: insert_body
INSERT INTO event_bodies (task_id, seq, data, snapshot) VALUES (?, ?, ?, ?);

-- name: events_after
-- An event with its own data has no body: the look-up for it then compares with NULL, which ends it at once.
SELECT e.seq, e.type, CAST(coalesce(e.data, b.data) AS BLOB), CAST(b.snapshot AS BLOB), e.tokens
FROM task_events AS e
LEFT JOIN event_bodies AS b ON b.task_id = e.task_id AND b.seq = iif(e.data IS NULL, e.seq, NULL)
WHERE e.task_id = :task_id AND e.seq > :after
ORDER BY e.seq LIMIT :limit;

-- name: last_snapshot
SELECT CAST(snapshot AS BLOB) FROM event_bodies
WHERE task_id = :task_id AND snapshot IS NOT NULL
ORDER BY seq DESC LIMIT 1;
