"""What the schema itself refuses, whichever program writes: each statement here is one that must fail."""

from contextlib import suppress

import apsw
import pytest

SETUP = """
INSERT INTO clients (id, name, token_hash, token_prefix, scopes, created_at)
VALUES (1, 'owner', zeroblob(32), 'x', '', 1);
INSERT INTO tasks (
    id, ident, client_id, kind, model, status, on_restart, background, stored, exact, next_seq, prompt_tokens,
    tokens_max, created_at, finished_at
) VALUES
    (1, 'open', 1, 'response', 'm', 'running', 'resume', 1, 1, 1, 3, 0, 9, 1, NULL),
    (2, 'done', 1, 'response', 'm', 'completed', 'resume', 1, 1, 1, 3, 0, 9, 1, 9),
    (3, 'bare', 1, 'response', 'm', 'queued', 'resume', 1, 1, 1, 1, 0, 9, 1, NULL);
INSERT INTO responses VALUES (1, '{}', '{}', x''), (2, '{}', '{}', x'');
INSERT INTO task_events (task_id, seq, type, data) VALUES
    (1, 0, 'response.created', NULL), (1, 1, 'response.queued', '{}'),
    (2, 0, 'response.created', NULL), (2, 1, 'response.completed', '{}'),
    (3, 0, 'response.created', '{}');
INSERT INTO event_bodies (task_id, seq, data, snapshot) VALUES (1, 0, '{', '{}'), (2, 0, '{', '{}');
INSERT INTO task_attempts (task_id, at, attempt, status, note) VALUES (1, 1, 1, 'running', 'claimed'),
    (2, 1, 1, 'completed', 'done');
INSERT INTO idempotency_keys (client_id, operation, key_hash, request_digest, task_id, created_at)
VALUES (1, 'create', zeroblob(32), zeroblob(32), 2, 1);
"""
TASK = """
(id, ident, client_id, kind, model, status, on_restart, background, stored, exact, next_seq, prompt_tokens,
 tokens_max, created_at, finished_at)
VALUES ({id}, '{ident}', 1, 'response', 'm', 'failed', 'resume', 1, 1, 1, 3, 0, 9, 1, 9)
"""

REFUSED = {
    "an unknown status": "UPDATE tasks SET status = 'paused' WHERE id = 1",
    "an unknown policy": "UPDATE tasks SET on_restart = 'pray' WHERE id = 1",
    "an end without its time": "UPDATE tasks SET status = 'failed' WHERE id = 1",
    "a time without an end": "UPDATE tasks SET finished_at = 9 WHERE id = 1",
    "another end": "UPDATE tasks SET status = 'cancelled' WHERE id = 2",
    "a way back": "UPDATE tasks SET status = 'queued', finished_at = NULL WHERE id = 2",
    "another time of the end": "UPDATE tasks SET finished_at = 10 WHERE id = 2",
    "numbers for events after the end": "UPDATE tasks SET next_seq = 9 WHERE id = 2",
    "text as a number": "UPDATE tasks SET next_seq = 'many' WHERE id = 1",
    "the end of an unfinished task's row": "DELETE FROM tasks WHERE id = 1",
    "the end of an unfinished response": "DELETE FROM responses WHERE id = 1",
    "the end of an unfinished task's event": "DELETE FROM task_events WHERE task_id = 1 AND seq = 1",
    "the end of an unfinished task's large event": "DELETE FROM event_bodies WHERE task_id = 1",
    "a task that goes before its events": "DELETE FROM tasks WHERE id = 2",
    "a changed event": "UPDATE task_events SET data = '[]' WHERE task_id = 1 AND seq = 1",
    "a changed event of a finished task": "UPDATE task_events SET type = 'x' WHERE task_id = 2 AND seq = 1",
    "a changed snapshot": "UPDATE event_bodies SET snapshot = '[]' WHERE task_id = 1",
    "an event twice": "INSERT INTO task_events VALUES (1, 1, 'x', '{}', NULL)",
    "a number that was not given out": "INSERT INTO task_events VALUES (3, 1, 'x', '{}', NULL)",
    "a second end": "INSERT INTO task_events VALUES (2, 2, 'response.failed', '{}', NULL)",
    "an event after the end": "INSERT INTO task_events VALUES (2, 2, 'x', '{}', NULL)",
    "an event of no task": "INSERT INTO task_events VALUES (9, 0, 'x', '{}', NULL)",
    "half a token": "INSERT INTO task_events VALUES (1, 2, 'x', '{}', x'000000')",
    "a large event without its event": "INSERT INTO event_bodies (task_id, seq, data) VALUES (1, 2, '{}')",
    "a task of nobody": "UPDATE tasks SET client_id = 7 WHERE id = 1",
    "two tasks of one name": "UPDATE tasks SET ident = 'done' WHERE id = 1",
    "a token digest that is none": "UPDATE clients SET token_hash = x'00'",
    "a key used twice": "INSERT INTO idempotency_keys SELECT NULL, 1, 'create', key_hash, key_hash, 1, 1, 1"
    " FROM idempotency_keys",
    "the end of an unfinished task's history": "DELETE FROM task_attempts WHERE task_id = 1",
    "the end of everything": "DELETE FROM tasks",
    "the end of every event": "DELETE FROM task_events",
    "an end without its event": "UPDATE tasks SET status = 'failed', finished_at = 9 WHERE id = 1",
    "an event given to another task": "UPDATE task_events SET task_id = 2, seq = 9 WHERE task_id = 1 AND seq = 1",
    "a body given to another task": "UPDATE event_bodies SET task_id = 2, seq = 1 WHERE task_id = 1",
    "a response given to another task": "UPDATE responses SET id = 3 WHERE id = 1",
    "a changed request": "UPDATE responses SET request = '[]' WHERE id = 1",
    "a history given to another task": "UPDATE task_attempts SET task_id = 2 WHERE task_id = 1",
    "another name": "UPDATE tasks SET ident = 'else' WHERE id = 1",
    "another number": "UPDATE tasks SET id = 9 WHERE id = 3",
    "the end of a client with unfinished tasks": "DELETE FROM clients",
    # REPLACE deletes whatever is in its way, and no trigger for deletes is asked.
    "another task in its place, by number": f"REPLACE INTO tasks {TASK.format(id=1, ident='new')}",
    "another task in its place, by name": f"REPLACE INTO tasks {TASK.format(id='NULL', ident='open')}",
    "another task moved into its place, by number": "UPDATE OR REPLACE tasks SET id = 1 WHERE id = 2",
    "another task moved into its place, by name": "UPDATE OR REPLACE tasks SET ident = 'open' WHERE id = 2",
    "another response in its place": "REPLACE INTO responses VALUES (1, '[]', '[]', x'')",
    "another response moved into its place": "UPDATE OR REPLACE responses SET id = 1 WHERE id = 2",
    "another event in its place": "REPLACE INTO task_events VALUES (1, 1, 'x', '{}', NULL)",
    "another first event": "REPLACE INTO task_events VALUES (1, 0, 'x', '{}', NULL)",
    "another end in its place": "REPLACE INTO task_events VALUES (2, 1, 'response.failed', '{}', NULL)",
    "another body in its place, by number": "REPLACE INTO event_bodies VALUES (1, 1, 1, '{}', NULL)",
    "another body in its place": "REPLACE INTO event_bodies (task_id, seq, data) VALUES (1, 0, '{}')",
    "another line of its history": "REPLACE INTO task_attempts VALUES (1, 2, 1, 1, 'running', 'other')",
    "a name left behind by nobody": "INSERT INTO tombstones VALUES ('x', 7, 1)",
    "a second service": "INSERT INTO service_config (id, service_id) VALUES (2, lower(hex(zeroblob(16))))",
}


def content(database: apsw.Connection) -> dict[str, list[object]]:
    """Every row of every table."""
    tables = database.execute("SELECT name FROM sqlite_schema WHERE type = 'table'").fetchall()
    return {str(name): list(database.execute(f'SELECT * FROM "{name}"')) for (name,) in tables}  # noqa: S608 -- its own names


@pytest.mark.proves("P5", "P7")
@pytest.mark.parametrize("statement", REFUSED.values(), ids=list(REFUSED))
def test_the_schema_refuses(database: apsw.Connection, statement: str) -> None:
    """Direct SQL meets the same rules as the program."""
    database.execute(SETUP)
    before = content(database)
    with pytest.raises(apsw.ConstraintError):
        database.execute(statement)
    assert content(database) == before


KEPT = "SELECT id, ident FROM tasks WHERE finished_at IS NULL"
HUNG = (
    "responses WHERE id",
    "task_events WHERE task_id",
    "event_bodies WHERE task_id",
    "task_attempts WHERE task_id",
)


@pytest.mark.proves("P7")
@pytest.mark.parametrize("statement", REFUSED.values(), ids=list(REFUSED))
def test_a_program_that_enforces_no_references_deletes_nothing_unfinished(
    database: apsw.Connection, statement: str
) -> None:
    """As SQLite's own shell does not: what is unfinished does not stay because something points to it."""
    database.execute(SETUP)
    database.pragma("foreign_keys", "off")
    queries = [KEPT, *(f"SELECT * FROM {table} IN (1, 3)" for table in HUNG)]  # noqa: S608 -- fixed names
    before = [set(database.execute(query)) for query in queries]
    assert all(before)
    with suppress(apsw.ConstraintError):
        database.execute(statement)
    for query, rows in zip(queries, before, strict=True):
        assert rows <= set(database.execute(query)), query


@pytest.mark.proves("P7")
def test_an_unfinished_task_stays_even_if_nothing_hangs_on_it(database: apsw.Connection) -> None:
    """No reference holds it; the rule does."""
    database.execute(SETUP)
    database.execute(
        "INSERT INTO tasks (id, ident, client_id, kind, model, status, on_restart, background, stored, exact,"
        " next_seq, prompt_tokens, tokens_max, created_at) VALUES"
        " (4, 'free', 1, 'response', 'm', 'queued', 'fail', 0, 1, 1, 0, 0, 9, 1)"
    )
    with pytest.raises(apsw.ConstraintError, match="an unfinished task cannot be deleted"):
        database.execute("DELETE FROM tasks WHERE id = 4")


@pytest.mark.proves("P5")
def test_there_is_one_end_whatever_stands_between(database: apsw.Connection) -> None:
    """Uniqueness holds by itself, without the rule that nothing follows an end."""
    database.execute(SETUP)
    database.execute("DROP TRIGGER task_events_follow")
    with pytest.raises(apsw.ConstraintError, match="UNIQUE"):
        database.execute("INSERT INTO task_events VALUES (2, 2, 'response.failed', '{}', NULL)")


@pytest.mark.proves("P4")
def test_a_gap_in_the_journal_is_refused(database: apsw.Connection) -> None:
    """An event needs the one before it."""
    database.execute(SETUP)
    database.execute("UPDATE tasks SET next_seq = 9 WHERE id = 1")
    with pytest.raises(apsw.ConstraintError, match="follows its predecessor"):
        database.execute("INSERT INTO task_events VALUES (1, 3, 'x', '{}', NULL)")
    database.execute("INSERT INTO task_events VALUES (1, 2, 'x', '{}', NULL)")
    database.execute("INSERT INTO task_events VALUES (1, 3, 'x', '{}', NULL)")


def test_a_key_outlives_the_task_that_it_named(database: apsw.Connection) -> None:
    """It is told that there is none any more."""
    database.execute(SETUP)
    for table in ("event_bodies", "task_events"):
        database.execute(f"DELETE FROM {table} WHERE task_id = 2")  # noqa: S608 -- two fixed names
    database.execute("DELETE FROM responses WHERE id = 2")
    database.execute("DELETE FROM task_attempts WHERE task_id = 2")
    database.execute("DELETE FROM tasks WHERE id = 2")
    assert database.execute("SELECT task_id FROM idempotency_keys").fetchall() == [(None,)]


@pytest.mark.proves("P1", "P2")
def test_the_families_of_tables_are_there_and_no_model_file(database: apsw.Connection) -> None:
    """A model is its metadata, its digest and the path to a file that stays outside."""
    rows = database.execute("SELECT name FROM sqlite_schema WHERE type = 'table'").fetchall()
    families = {
        "service_config", "clients", "models", "responses", "tasks", "task_events", "idempotency_keys",
    }  # fmt: skip
    assert families <= {name for (name,) in rows}
    columns = database.execute("SELECT name, type FROM pragma_table_info('models')").fetchall()
    assert "BLOB" not in {kind for _, kind in columns}
    assert {"digest", "path", "size_bytes"} <= {name for name, _ in columns}
