-- name: boot
-- The queue is counted anew: what a foreign hand has done to the rows does not outlive the next start.
UPDATE service_config SET
    boot_id = :boot_id,
    booted_at = :at,
    tasks_queued = (SELECT count(*) FROM tasks WHERE status = 'queued')
RETURNING service_id;

-- name: queued
SELECT tasks_queued FROM service_config WHERE id = 1;

-- name: bury
-- A commit that failed while the log was being forced to the disk has left its pages in the log, whole. Readers never
-- see them, but a crash now would bring them back as if they had been kept, although the caller was told otherwise.
-- The next commit is written over them; this one makes sure that there is one. While the disk refuses and nobody
-- writes, it is tried again about once a second: that is how the end of the trouble is noticed.
UPDATE service_config SET commits_refused = commits_refused + 1;

-- name: keep_client
INSERT INTO clients (name, token_hash, token_prefix, scopes, created_at)
VALUES (:name, :token_hash, :token_prefix, :scopes, :at)
ON CONFLICT (name) DO UPDATE SET
    token_hash = excluded.token_hash,
    token_prefix = excluded.token_prefix,
    scopes = excluded.scopes,
    expires_at = NULL,
    revoked_at = NULL
RETURNING id;

-- name: client_by_token
SELECT id, name, scopes FROM clients
WHERE token_hash = :token_hash AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > :now);

-- name: keep_model
-- The time is that of the first sight of these facts: it alone is no reason to write.
INSERT INTO models (name, digest, size_bytes, context_length, exact, fingerprint, path, created_at)
VALUES (:name, :digest, :size_bytes, :context_length, :exact, :fingerprint, :path, :created_at)
ON CONFLICT (name) DO UPDATE SET
    digest = excluded.digest,
    size_bytes = excluded.size_bytes,
    context_length = excluded.context_length,
    exact = excluded.exact,
    fingerprint = excluded.fingerprint,
    path = excluded.path,
    created_at = excluded.created_at
WHERE (digest, size_bytes, context_length, exact, fingerprint, path) IS NOT (
    excluded.digest, excluded.size_bytes, excluded.context_length, excluded.exact, excluded.fingerprint, excluded.path
);
