-- name: begin
-- The lock is taken before the version is read, so that two starters cannot both think that it is their turn.
BEGIN IMMEDIATE;

-- name: commit
COMMIT;

-- name: rollback
ROLLBACK;

-- name: keep_history
CREATE TABLE IF NOT EXISTS migrations (
    version INTEGER PRIMARY KEY,
    name TEXT NOT NULL,
    sha256 TEXT NOT NULL
) STRICT;

-- name: note
INSERT INTO migrations (version, name, sha256) VALUES (?, ?, ?);

-- name: history
SELECT version, name, sha256 FROM migrations ORDER BY version;

-- name: objects
SELECT count(*) FROM sqlite_schema;

-- name: schema
-- Not SQLite's own: its statistics, its counters, the indexes of its constraints.
SELECT type, name, sql FROM sqlite_schema WHERE substr(name, 1, 7) <> 'sqlite_' ORDER BY rowid;

-- name: configured
SELECT count(*) FROM service_config;
