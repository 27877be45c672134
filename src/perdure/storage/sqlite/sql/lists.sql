-- Pages. Keyset, never OFFSET: page n costs what page 1 costs. They leave the request out.

-- name: place_of
-- Where the page begins. A hidden task still marks its place: it may have been hidden between two pages.
SELECT id FROM tasks WHERE ident = :ident AND client_id = :client_id;

-- name: newest
SELECT * FROM task_lines WHERE hidden = 0 AND client_id = :client_id AND id < :place
ORDER BY id DESC LIMIT :limit;

-- name: oldest
SELECT * FROM task_lines WHERE hidden = 0 AND client_id = :client_id AND id > :place
ORDER BY id LIMIT :limit;

-- name: newest_by_status
SELECT * FROM task_lines WHERE hidden = 0 AND client_id = :client_id AND status = :status AND id < :place
ORDER BY id DESC LIMIT :limit;

-- name: oldest_by_status
SELECT * FROM task_lines WHERE hidden = 0 AND client_id = :client_id AND status = :status AND id > :place
ORDER BY id LIMIT :limit;

-- name: newest_stored
-- Those that are not to be stored are gone a minute after their end, so few stand between two that are.
SELECT * FROM task_lines WHERE hidden = 0 AND stored = 1 AND kind = 'response' AND client_id = :client_id
    AND id < :place
ORDER BY id DESC LIMIT :limit;

-- name: oldest_stored
SELECT * FROM task_lines WHERE hidden = 0 AND stored = 1 AND kind = 'response' AND client_id = :client_id
    AND id > :place
ORDER BY id LIMIT :limit;

-- name: purgeable
SELECT * FROM task_lines WHERE purge_at <= :now AND finished_at IS NOT NULL
ORDER BY purge_at LIMIT :limit;

-- name: outlived
-- The condition stands as in the index, or SQLite would not use it.
SELECT * FROM task_lines WHERE finished_at <= :finished_before AND finished_at IS NOT NULL AND purge_at IS NULL
ORDER BY finished_at LIMIT :limit;

-- name: next_purge_at
SELECT purge_at FROM tasks WHERE purge_at IS NOT NULL AND finished_at IS NOT NULL
ORDER BY purge_at LIMIT 1;
