"""`perdure tasks` and `perdure cancel`."""

import json
import time
from collections.abc import Iterable, Sequence
from typing import Any
from urllib.parse import urlencode

from perdure.cli.contact import Folder, Service
from perdure.cli.failures import EXIT_DONE, Away, Unknown
from perdure.cli.output import Output, visible
from perdure.domain import limits

_HEAD = ("id", "status", "queue", "created", "background", "on_restart", "attempt", "model", "error")


def tasks(folder: Folder, *, status: str | None, limit: int, as_json: bool) -> int:
    """List the newest tasks."""
    found = _listed(folder.service(), status, limit)
    output = Output()
    if as_json:
        output.json(json.dumps(found, ensure_ascii=False, separators=(",", ":")).encode())
        return EXIT_DONE
    if found["data"]:
        output.text(_table([_HEAD, *(_row(task) for task in found["data"])]))
    if found["has_more"]:
        output.note(f"There are older ones; --limit shows more than {limit}.")
    elif not found["data"]:
        output.note("There are no tasks" + (f" that are {status}." if status else "."))
    return EXIT_DONE


def cancel(folder: Folder, ident: str, *, as_json: bool) -> int:
    """End a task; one that has ended stays as it is."""
    try:
        answer = folder.service().post(f"/v1/tasks/task_{ident}/cancel")
        task = answer.json()
    except Away as lost:
        raise Unknown(f"{lost} Whether the cancel arrived is not known; to send it again does no harm.") from None
    if as_json:
        Output().json(answer.body)
    else:
        Output().text(f"{task['status']}\n")
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
    place, error = task["queue_position"], task["error"]
    cells = (
        task["response_id"] or task["id"],
        task["status"],
        "-" if place is None else place,
        time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(task["created_at"])),
        "yes" if task["background"] else "no",
        task["on_restart"],
        task["attempt"],
        task["model"],
        error["code"] if error else "-",
    )
    return tuple(visible(str(cell)) for cell in cells)


def _table(rows: Sequence[Sequence[str]]) -> str:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "".join(_line(row, widths) for row in rows)


def _line(cells: Iterable[str], widths: Iterable[int]) -> str:
    return "  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)).rstrip() + "\n"
