-- name: begin
BEGIN IMMEDIATE;

-- name: commit
COMMIT;

-- name: rollback
ROLLBACK;

-- name: operation
SAVEPOINT operation;

-- name: keep_operation
RELEASE operation;

-- name: undo_operation
ROLLBACK TO operation;
