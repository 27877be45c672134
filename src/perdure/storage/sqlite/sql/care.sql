-- What the commands share that look after the file: backup, restore, doctor, compact.

-- name: begin
-- Reads the first page, so that what follows is asked of one state.
BEGIN;

-- name: end
-- Nothing was written. Where damage was met, a COMMIT would be one more error, in place of what was found.
ROLLBACK;

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

-- name: outlived
-- The condition stands as in the index, or SQLite would not use it.
SELECT count(*) FROM tasks WHERE finished_at <= :finished_before AND finished_at IS NOT NULL AND purge_at IS NULL;

-- name: compact
VACUUM;
