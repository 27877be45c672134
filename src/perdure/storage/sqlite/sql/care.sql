-- What the commands share that look after the file: backup, restore, doctor, compact.

-- name: begin
-- Reads the first page, so that what follows is asked of one state.
BEGIN;

-- name: end
COMMIT;

-- name: objects
SELECT count(*) FROM sqlite_schema;

-- name: contents
-- What a copy must have as well.
SELECT
    (SELECT count(*) FROM tasks),
    (SELECT count(*) FROM tasks WHERE finished_at IS NULL),
    (SELECT count(*) FROM responses),
    (SELECT count(*) FROM task_events),
    (SELECT count(*) FROM clients);

-- name: integrity
PRAGMA integrity_check(3);

-- name: references
PRAGMA foreign_key_check;

-- name: compact
VACUUM;
