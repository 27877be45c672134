"""What the tests of cases from the field share: how to see all of a response, and how to hold a moment."""

from typing import Any

import apsw
import psutil

from tests.system.server import Server, freeze, until

FREE_SECONDS = 30.0  # the promise is one second; a shared machine may take longer to get round to it


def everything(server: Server, response_id: str) -> list[bytes]:
    """All that can be read of a response: the object, the task with its history, the stream."""
    paths = (f"/v1/responses/{response_id}", f"/v1/tasks/{response_id.replace('resp_', 'task_')}")
    plain = [server.http.get(path).content for path in paths]
    return [*plain, "\n".join(server.frames(response_id)).encode()]


def rows(server: Server, question: str, **given: int | str) -> list[tuple[Any, ...]]:
    """What the database itself says; another process may always look."""
    looking = apsw.Connection(str(server.data / "perdure.db"), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        return looking.execute(question, given).fetchall()
    finally:
        looking.close()


def engine_is_free(server: Server) -> None:
    """Within the time, no slot is used."""

    def free() -> bool | None:
        return None if any(model["slots_used"] for model in server.get("/v1/service")["models"]) else True

    until(free, "the slots", FREE_SECONDS)


def tokens_drawn(server: Server) -> int:
    """How many tokens have been drawn since the service started."""
    return sum(model["tokens_drawn"] for model in server.get("/v1/service")["models"])


def first_text(server: Server, response_id: str) -> None:
    """Return once some text was seen."""
    with server.stream(response_id) as frames:
        next(frame for frame in frames if "output_text.delta" in frame)


def frozen_load(server: Server) -> None:
    """Have the engine's process replaced, and freeze the new one before it has loaded the model."""
    old = server.engine_child()
    old.kill()

    def fresh() -> psutil.Process | None:
        child = server.engine_child()
        return None if child.pid == old.pid or child.status() == psutil.STATUS_ZOMBIE else child

    freeze(until(fresh, "a new engine"))
