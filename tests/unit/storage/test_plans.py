"""No statement reads a whole table: a million finished tasks must cost the others nothing."""

import re

import apsw
import pytest

from perdure.storage.sqlite.statements import load

BOUNDED = {
    "next_queued",  # the first entries of four stretches of the queue
    "queue_position",  # one task, one row of the service, and what the queue holds of each client
    "queue_up", "boot", "bury", "sweep",  # one row
    "keep_client",  # the check of what points to a client, which SQLite makes only if its number changes
}  # fmt: skip


@pytest.mark.parametrize("file", ["tasks", "lists", "events", "service"])
def test_every_statement_finds_its_rows_by_an_index(database: apsw.Connection, file: str) -> None:
    """SEARCH, never SCAN and never a sort."""
    for name, sql in load(file).items():
        names = set(re.findall(r":([a-z_]+)", re.sub(r"--.*", "", sql)))
        bindings = dict.fromkeys(names, 0) if names else (0,) * sql.count("?")
        plan = [detail for *_, detail in database.execute(f"EXPLAIN QUERY PLAN {sql}", bindings)]
        slow = [step for step in plan if _is_slow(step)]
        assert not slow or name in BOUNDED, (name, plan)


PAGES = [name for name in load("lists") if name.startswith(("newest", "oldest"))]


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_found_by_all_that_narrows_it(database: apsw.Connection, name: str) -> None:
    """Each equality stands in the index: a filter beside it would read everything between two hits."""
    sql = load("lists")[name]
    names = set(re.findall(r":([a-z_]+)", sql))
    (plan,) = [detail for *_, detail in database.execute(f"EXPLAIN QUERY PLAN {sql}", dict.fromkeys(names, 0))]
    assert set(re.findall(r"(\w+)=\?", plan)) == set(re.findall(r"(\w+) = :", sql)), plan


def _is_slow(step: str) -> bool:
    # json_each reads the handful of values that it is given.
    return (step.startswith("SCAN") and "json_each" not in step) or "TEMP B-TREE" in step
