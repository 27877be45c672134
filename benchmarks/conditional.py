"""Reads by a client who has the answer already (304), against the same reads answered whole.

Two answers: a list of 100 tasks, whose mark is the version of the store, and 1 MB of events of a finished task, whose
mark holds for good. Once over HTTP, where reading the request costs both sides the same, and once under the rule
alone, where a third one, the events of a running task, has the version for its mark too.
"""

import asyncio
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
from tests.system.server import Server

from benchmarks.create_client import NUMBER
from benchmarks.figures import Result, Row, ratio, spread
from benchmarks.filled import BODY, copy, first, live, open_copier
from benchmarks.plan import Plan
from benchmarks.processes import Helper, cpu_seconds
from benchmarks.store_alone import new_tasks
from perdure.storage.sqlite.store import SqliteStore
from perdure.testing.tiny_gguf import write_tiny_model

LISTED, EVENTS = 100, 1_000
AROUND_THE_TEXT = 9
"""Events of a finished task that are no text."""
ENDED_TEXT, RUNNING_TEXT = "word " * 34, "word " * 170
"""A piece of text. A finished log has the whole text four times more; both pages are of a megabyte."""
CONNECTIONS = 4
CLIENT = 1
AIM = "≥ 100"


@dataclass
class Read:
    """One read, and what was measured of it: whole and known, over HTTP and under the rule alone."""

    said: str
    what: str
    limit: int
    path: str = ""
    bytes: int = 0
    http: dict[bool, list[dict[str, float]]] = field(default_factory=lambda: {False: [], True: []})
    alone: dict[bool, list[dict[str, float]]] = field(default_factory=lambda: {False: [], True: []})


async def prepare(path: Path) -> tuple[str, str]:
    """A database with tasks to list, and two of many events: one that has finished, one that runs."""
    await first(path)
    connection = open_copier(path)
    copy(connection, 2, 2 * LISTED)
    connection.close()
    store = await SqliteStore.open(path)
    ended, runs = new_tasks(BODY, CLIENT, 2)
    await live(store, ended, [ENDED_TEXT] * (EVENTS - AROUND_THE_TEXT))
    await live(store, runs, [RUNNING_TEXT] * EVENTS, finish=False)
    await store.close()
    return ended.ident, runs.ident


def request_of(host: str, token: str, path: str, tag: str | None) -> str:
    """A read, as a client with a kept connection sends it. The number is for the load generator."""
    known = "" if tag is None else f"if-none-match: {tag}\r\n"
    return (
        f"GET {path} HTTP/1.1\r\nhost: {host}\r\nauthorization: Bearer {token}\r\n{known}x-number: {NUMBER}\r\n\r\n"
    )


def http_run(server: Server, client: Helper, read: Read, count: int, *, known: bool) -> dict[str, float]:
    """Reads over HTTP; every one is answered as it has to be."""
    answer = server.http.get(read.path)
    tag, read.bytes = answer.headers["etag"], len(answer.content)
    host = server.url.removeprefix("http://")
    request = request_of(host, server.token, read.path, tag if known else None)
    where = {"host": "127.0.0.1", "port": int(host.split(":")[1]), "request": request, "connections": CONNECTIONS}
    assert server.process is not None
    process = psutil.Process(server.process.pid)
    client.ask(**where, total=count // 10 + CONNECTIONS)
    before = cpu_seconds(process)
    found = client.ask(**where, total=count)
    cpu = cpu_seconds(process) - before
    check(found, count, 0 if known else read.bytes, known=known)
    return {"seconds": found["seconds"] / count, "cpu": cpu / count}


def check(found: dict[str, Any], count: int, length: int, *, known: bool) -> None:
    """Fail unless every answer had its status and its length."""
    if found["statuses"] != {"304" if known else "200": count} or found["bytes"] != length:
        raise AssertionError(f"{count} answers of {length} bytes were due, and were {found}")


def measure(plan: Plan) -> Result:
    """Run the rounds: each read whole, then known, over HTTP and under the rule alone."""
    model, folder, alone = plan.folder / "tiny.gguf", plan.folder / "served", plan.folder / "alone.db"
    write_tiny_model(model)
    folder.mkdir(mode=0o700)
    finished, runs = asyncio.run(prepare(alone))
    shutil.copyfile(alone, folder / "perdure.db")
    listed = Read(f"a list of {LISTED} tasks", "list", LISTED, f"/v1/tasks?limit={LISTED}")
    log = Read("events of a finished task", finished, EVENTS, f"/v1/tasks/task_{finished}/events?limit={EVENTS}")
    reads = [listed, log, Read("events of a running task", runs, EVENTS)]
    counts = {True: 1_000, False: 100} if plan.quick else {True: 4_000, False: 400}
    with Server(folder, model) as server, Helper("create_client") as client, Helper("reading") as helper:
        server.start()
        helper.tell(path=str(alone))
        for number in range(plan.rounds(2, 7)):
            plan.note(f"conditional: round {number + 1}")
            for read in reads:
                for known in (False, True) if number % 2 else (True, False):
                    count = counts[known]
                    if read.path:
                        read.http[known].append(http_run(server, client, read, count, known=known))
                    found = helper.ask(what=read.what, limit=read.limit, count=count, known=known)
                    read.bytes = read.bytes or found["bytes"]
                    read.alone[known].append(found)
    return Result([row for read in reads for row in _rows(read)], {read.said: vars(read) for read in reads})


def _rows(read: Read) -> list[Row]:
    rows: list[Row] = []
    for where, runs in (("over HTTP", read.http), ("under the rule alone", read.alone)):
        for name, key in (("time", "seconds"), ("processor time", "cpu")):
            if not runs[True]:
                continue
            whole, known = ([run[key] * 1e6 for run in runs[side]] for side in (False, True))
            rows.append(
                Row(
                    f'{name} of "it still holds" {where}, {read.said}',
                    f"{spread(known).median:,.0f} µs",
                    f"whole, {read.bytes / 1e3:,.0f} kB, {spread(whole).median:,.0f} µs",
                    ratio(whole, known).shown(0),
                    AIM if read.limit == EVENTS else "",
                )
            )
    return rows
