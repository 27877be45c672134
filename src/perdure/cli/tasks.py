"""`perdure tasks` and `perdure cancel`."""

import json
import os
import sys
import time
from collections.abc import Iterable, Sequence
from typing import Any
from urllib.parse import urlencode

from perdure.cli.contact import Folder, Service
from perdure.cli.failures import EXIT_DONE, Away, CommandFailed, NoService, OutputFailed, Unknown
from perdure.cli.output import Output, note, place, visible
from perdure.domain import limits

_HEAD = ("id", "created", "status", "model")


def tasks(folder: Folder, *, status: str | None, limit: int, as_json: bool) -> int:
    """List the newest tasks."""
    found = _listed(folder.service(), status, limit)
    output = Output()
    if as_json:
        output.json(json.dumps(found, ensure_ascii=False, separators=(",", ":")).encode())
        return EXIT_DONE
    if found["data"]:
        rows = [_HEAD, *(_row(task) for task in found["data"])]
        if len({row[-1] for row in rows[1:]}) == 1:  # the same model in every row
            rows = [row[:-1] for row in rows]
        output.text(_table(rows, _columns() if output.terminal else None))
    if found["has_more"]:
        output.note(f"There are older ones; --limit shows more than {limit}.")
    elif not found["data"]:
        output.note("There are no tasks" + (f" that are {status}." if status else "."))
    return EXIT_DONE


def cancel(folder: Folder, idents: Sequence[str], *, as_json: bool) -> int:
    """End tasks; one that has ended stays as it is. The exit code is the greatest of those that each would have."""
    if len(idents) == 1:
        return _cancelled(folder, idents[0], as_json, "")
    code = EXIT_DONE
    for ident in idents:
        name = f"resp_{ident}"
        try:
            code = max(code, _cancelled(folder, ident, as_json, f"{name}  "))
        except OutputFailed:
            raise
        except CommandFailed as failure:
            note(f"{name}: {failure}")
            code = max(code, failure.exit_code)
            if isinstance(failure, NoService):  # the rest would say the same
                break
    return code


def _cancelled(folder: Folder, ident: str, as_json: bool, before: str) -> int:
    try:
        answer = folder.service().post(f"/v1/tasks/task_{ident}/cancel")
        task = answer.json()
    except Away as lost:
        raise Unknown(f"{lost} Whether the cancel arrived is not known; to send it again does no harm.") from None
    if as_json:
        Output().json(answer.body)
    else:
        Output().text(f"{before}{task['status']}\n")
    return EXIT_DONE


def _listed(service: Service, status: str | None, limit: int) -> dict[str, Any]:
    """The newest tasks as one list object, gathered from as many pages as it takes."""
    data: list[dict[str, Any]] = []
    query = {} if status is None else {"status": status}
    while True:
        query["limit"] = str(min(limit - len(data), limits.TASKS_PAGE_MAX))
        page = service.get(f"/v1/tasks?{urlencode(query)}").json()
        data += page["data"]
        if not page["has_more"] or len(data) >= limit:
            first, last = (data[0]["id"], data[-1]["id"]) if data else (None, None)
            return page | {"data": data, "first_id": first, "last_id": last}
        query["after"] = page["last_id"]


def _row(task: dict[str, Any]) -> tuple[str, ...]:
    cells = (
        task["response_id"] or task["id"],
        time.strftime("%Y-%m-%d %H:%M", time.localtime(task["created_at"])),
        _standing(task),
        task["model"],
    )
    return tuple(visible(str(cell)) for cell in cells)


def _standing(task: dict[str, Any]) -> str:
    """The status, and what is not as it mostly is."""
    told = task["status"]
    if error := task["error"]:
        told += f": {error['code']}"
    if task["queue_position"] is not None:
        told += f", {place(task['queue_position'])}"
    if task["attempt"] > 1:
        told += f", attempt {task['attempt']}"
    return told


def _columns() -> int | None:
    try:
        return os.get_terminal_size(sys.stdout.fileno()).columns or None  # some say 0
    except OSError:
        return None


def _table(rows: Sequence[Sequence[str]], columns: int | None) -> str:
    """Aligned, each line cut where the terminal ends."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "".join(_line(row, widths)[:columns].rstrip() + "\n" for row in rows)


def _line(cells: Iterable[str], widths: Iterable[int]) -> str:
    return "  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True))
