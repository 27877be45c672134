"""Work that is not to be stored (C-19): everything works while it runs and for a short window, and then nothing is
left: no row, no event, no byte in the database, in its log, or in what the service prints.

The window is three seconds here instead of a minute. The files are read byte by byte while the service serves.
"""

import re
from collections.abc import Generator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import apsw
import pytest

from tests.system.caller import Caller
from tests.system.command import on
from tests.system.doomed import doomed, short_keep
from tests.system.field import rows
from tests.system.server import Server, check_log, data_of, text_of, thaw, until

PROMPT = "Whisper the password xylophone-quartz"
LATER = "Whisper the password tambourine-onyx"
DELETED = "Whisper the password harpsichord-opal"
GONE_SECONDS = 30.0
SCHEMA = {"type": "object", "properties": {"marimba_place": {"type": "string"}}, "additionalProperties": False}
STAYS = "Shout the greeting glockenspiel-jade"


@dataclass
class Traces:
    """Where a text can have been left."""

    server: Server

    def left(self, *words: str) -> list[str]:
        """Which of the words stand in which file."""
        files = [*self.server.data.iterdir(), self.server.errors]
        contents = {file.name: file.read_bytes() for file in files if file.is_file()}
        return [
            f"{word} in {name}" for name, content in contents.items() for word in words if word.encode() in content
        ]

    def gone(self, *words: str) -> None:
        """Return once none is left."""
        with suppress(AssertionError):
            until(lambda: None if self.left(*words) else True, "the words to go", GONE_SECONDS)
        assert self.left(*words) == []


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, tiny_model: Path) -> Generator[Server]:
    """A service whose window is short and whose log tells all."""
    folder = tmp_path_factory.mktemp("ephemeral")
    with Server(folder / "data", tiny_model, log_level="debug").start(*doomed(short_keep)) as server:
        server.ended(server.create(STAYS, max_output_tokens=30)["id"])
        yield server
        assert server.terminate() == 0


def begun(server: Server, prompt: str) -> str:
    """A response whose first viewer has seen some text and left; the engine's process is frozen."""
    caller = Caller(server, input=prompt, background=True, store=False, stream=True, seed=3)
    seen = caller.reads_until(b"response.output_text.delta").decode()
    found = data_of(seen[seen.index("event: response.created") :].split("\n\n")[0])["response"]["id"]
    server.holds(found)
    caller.hangs_up()
    return found


def is_unknown(server: Server, found: str) -> bool:
    """Whether every door says that there is no such response."""
    task = f"/v1/tasks/{found.replace('resp_', 'task_')}"
    paths = (f"/v1/responses/{found}", f"/v1/responses/{found}?stream=true", task, f"{task}/events")
    statuses = {server.http.get(path).status_code for path in paths}
    listed = {each["response_id"] for each in server.get("/v1/tasks?limit=100")["data"]}
    return statuses == {404} and found not in listed


def words_of(response: dict[str, Any]) -> list[str]:
    """Pieces of a text that stand in JSON as they are, too long to be a chance hit."""
    found = re.findall(r'[^\x00-\x1f"\\\x7f-\xa0\ufffd]{6,16}', text_of(response))
    assert found, response
    return found[-3:]


@pytest.mark.proves("C-19")
@pytest.mark.parametrize("ending", ["by itself", "by a cancel"])
def test_it_can_be_polled_resumed_and_cancelled_and_then_nothing_is_left(server: Server, ending: str) -> None:
    """Background, not stored, streamed, all at once."""
    traces = Traces(server)
    found = begun(server, PROMPT)
    polled = server.get(f"/v1/responses/{found}")
    assert (polled["status"], polled["store"], polled["background"]) == ("in_progress", False, True)
    with server.stream(found, after=1) as frames:
        if ending == "by a cancel":
            server.http.post(f"/v1/responses/{found}/cancel")
        thaw(server.engine_child())
        resumed = list(frames)
    last = data_of(resumed[-2])["response"]
    assert last["status"] == ("incomplete" if ending == "by itself" else "cancelled")
    assert [data_of(frame)["sequence_number"] for frame in resumed[:-1]] == list(range(2, len(resumed) + 1))
    words = ["xylophone-quartz", found.removeprefix("resp_"), *(words_of(last) if ending == "by itself" else ())]
    assert traces.left(*words), "the words are not looked for where they are"
    until(lambda: True if is_unknown(server, found) else None, "the response to be unknown")
    traces.gone(*words)
    assert traces.left("glockenspiel-jade")


@pytest.mark.proves("C-19", "A-20")
def test_it_cannot_be_chained_to(server: Server) -> None:
    """Neither while it is there nor later; no item of it can be referred to; nothing is created."""
    found = server.create(LATER, store=False, max_output_tokens=3)["id"]
    item = server.ended(found)["output"][0]["id"]
    before = server.get("/v1/responses")
    for _ in range(2):
        for asked, code in (
            ({"input": "Go on.", "previous_response_id": found}, "previous_response_not_found"),
            ({"input": [{"type": "item_reference", "id": item}]}, "item_not_found"),
        ):
            answer = server.http.post("/v1/responses", json={"model": server.model_name, **asked})
            assert (answer.status_code, answer.json()["error"]["code"]) == (400, code)
        assert server.get("/v1/responses") == before
        until(lambda: True if is_unknown(server, found) else None, "the response to be unknown")


@pytest.mark.proves("C-19")
def test_nothing_of_any_field_is_left_anywhere(server: Server, tmp_path: Path) -> None:
    """Prompt, instructions, metadata, functions, names of the caller, what was written and its ids: in no table,
    file, log, metric or backup. A stored neighbour stands in rows and backup, so these are looked through."""
    traces = Traces(server)
    function = {"type": "function", "name": "marimba_call", "description": "marimba-told", "parameters": SCHEMA}
    response = server.ended(
        server.create(
            "marimba-prompt",
            instructions="marimba-instructions",
            metadata={"marimba-key": "marimba-value"},
            tools=[function],
            tool_choice="none",
            safety_identifier="marimba-identifier",
            prompt_cache_key="marimba-cache",
            user="marimba-user",
            store=False,
            max_output_tokens=300,
            seed=3,
        )["id"]
    )
    words = ["marimba", *words_of(response), response["id"].removeprefix("resp_")]
    assert {each.partition(" in ")[0] for each in traces.left(*words)} == set(words)
    until(lambda: True if is_unknown(server, response["id"]) else None, "the response to be unknown")
    traces.gone(*words)
    made = on(server, "backup", str(tmp_path / "backup"))
    assert made.returncode == 0, made.stderr
    places = {
        "rows": repr(every_row(server)).encode(),
        "metrics": server.http.get("/metrics").content,
        "facts": server.http.get("/v1/service").content,
        "lists": server.http.get("/v1/responses?limit=100").content + server.http.get("/v1/tasks?limit=100").content,
        "backup": (tmp_path / "backup").read_bytes(),
    }
    for place, content in places.items():
        assert [word for word in words if word.encode() in content] == [], place
        assert (b"glockenspiel-jade" in content) == (place in ("rows", "backup")), place


def every_row(server: Server) -> list[Any]:
    """All that stands in any table."""
    tables = [name for (name,) in rows(server, "SELECT name FROM sqlite_schema WHERE type = 'table'")]
    return [rows(server, f"SELECT * FROM {table}") for table in tables]  # noqa: S608 -- the schema's own names


@pytest.mark.proves("C-19")
def test_what_is_deleted_leaves_both_files(server: Server) -> None:
    """Stored, finished, deleted: its words are gone when the caller is told, or shortly after."""
    traces = Traces(server)
    response = server.ended(server.create(DELETED, max_output_tokens=300, seed=3)["id"])
    words = ["harpsichord-opal", *words_of(response)]
    assert traces.left(*words)
    assert server.http.delete(f"/v1/responses/{response['id']}").status_code == 200
    traces.gone(*words)


@pytest.mark.proves("C-19")
def test_a_kill_within_the_window_leaves_nothing_after_the_next_start(server: Server) -> None:
    """What the killed process left in the log goes too, though the new one never wrote it."""
    traces = Traces(server)
    found = server.create(LATER, store=False, max_output_tokens=300, seed=3)["id"]
    words = ["tambourine-onyx", *words_of(server.ended(found))]
    server.kill()
    assert traces.left(*words)
    server.start(*doomed(short_keep))
    until(lambda: True if is_unknown(server, found) else None, "the response to be unknown")
    traces.gone(*words)
    assert traces.left("glockenspiel-jade")


@pytest.mark.proves("C-19")
def test_a_foreign_reader_keeps_the_words_only_while_he_reads(server: Server) -> None:
    """A transaction that another program holds open keeps the log as it was; the commits after it cut it."""
    traces = Traces(server)
    response = server.ended(server.create(DELETED, max_output_tokens=300, seed=3)["id"])
    words = ["harpsichord-opal", *words_of(response)]
    foreign = apsw.Connection(str(server.data / "perdure.db"), flags=apsw.SQLITE_OPEN_READONLY)
    foreign.execute("BEGIN")
    foreign.execute("SELECT count(*) FROM tasks").fetchall()
    assert server.http.delete(f"/v1/responses/{response['id']}").status_code == 200
    assert traces.left(*words)
    foreign.close()
    for _ in range(2):
        check_log(server.frames(server.create(STAYS, max_output_tokens=2)["id"]))
    traces.gone(*words)
