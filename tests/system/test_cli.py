"""`perdure ask`, `follow`, `tasks` and `cancel` on real services: through kills, at terminals and at pipes."""

import json
import os
import signal
import socket
import subprocess
import threading
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from perdure import __version__
from tests.system.command import CALLED, Command, on, ran
from tests.system.server import COMMAND, Server, freeze, text_of, thaw, until

LONG = ["--max-output-tokens", "2000", "--seed", "5"]  # lasts until it is interrupted, on a busy machine too
SHORT = ["--max-output-tokens", "200", "--seed", "5"]
CONTROLS = [code for code in (*range(0x20), *range(0x7F, 0xA0)) if code not in (9, 10)]
HEAVY = ("litestar", "uvicorn", "numpy", "pydantic", "apsw")


def text_in(server: Server, response_id: str) -> bytes:
    """A finished text as a command writes it: ending with a line end."""
    text = text_of(server.get(f"/v1/responses/{response_id}"))
    return (text if text.endswith("\n") else text + "\n").encode()


def newest(server: Server) -> dict[str, Any]:
    """The task that was created last."""
    return server.get("/v1/tasks?limit=1")["data"][0]


def running(server: Server) -> str:
    """The response that is being written, once there is one and some of its text is kept."""

    def find() -> str | None:
        for task in server.get("/v1/tasks?status=running")["data"]:
            if server.get(f"/v1/tasks/{task['id']}/events")["last_seq"] > 5:  # some of its text
                return task["response_id"]
        return None

    return until(find, "a response that is being written")


def at_terminal(text: bytes) -> bytes:
    """A text as a terminal gets it."""
    shown = text.decode().translate({code: f"\\x{code:02x}" for code in CONTROLS})
    return shown.encode()


@pytest.fixture
def server(tmp_path: Path, tiny_model: Path) -> Generator[Server]:
    """A server that a test may kill."""
    with Server(tmp_path / "data", tiny_model).start() as server:
        yield server


@contextmanager
def squatter(url: str) -> Generator[socket.socket]:
    """Somebody who listens where a service did before it was killed."""
    address = urlsplit(url)
    with socket.socket() as listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((address.hostname, address.port))
        listening.listen()
        listening.setblocking(False)
        yield listening


def nobody_came(listening: socket.socket) -> bool:
    """Whether no connection was made there."""
    try:
        listening.accept()
    except BlockingIOError:
        return True
    return False


# Asking.


def test_an_answer_is_shown_while_it_is_written(tiny_server: Server) -> None:
    """Text has arrived although the model cannot go on; then the rest follows."""
    server = tiny_server
    on(server, "ask", "Wake up.", "--max-output-tokens", "1")
    with Command(server, "ask", "Tell me a story.", *LONG) as ask:
        ask.reads(50)
        thaw(server.holds(newest(server)["response_id"]))
        assert ask.ended() == 4
        task = newest(server)
        assert ask.output == text_in(server, task["response_id"])
        assert (
            ask.said() == f"perdure: {task['response_id']} ended incomplete: max_output_tokens, after 2,000 tokens\n"
        )


@pytest.mark.real_model
def test_a_completed_answer_is_exit_code_0_and_says_nothing_else(real_server: Server) -> None:
    """Only then."""
    got = on(real_server, "ask", "Say hello.", "--temperature", "0")
    assert got.returncode == 0
    assert got.stdout == text_in(real_server, newest(real_server)["response_id"])
    assert len(got.stdout) > 5
    assert got.stderr == b""


def test_the_options_reach_the_request(tiny_server: Server) -> None:
    """Each one; what is not given has its default."""
    options = ["--instructions", "Be brief.", "--max-output-tokens", "7", "--temperature", "0.5", "--seed", "11"]
    on(tiny_server, "ask", "Hello.", *options, "--on-restart", "retry", "--model", "tiny")
    kept = tiny_server.get(f"/v1/responses/{newest(tiny_server)['response_id']}")
    wanted = {"instructions": "Be brief.", "max_output_tokens": 7, "temperature": 0.5, "seed": 11, "model": "tiny"}
    assert kept.items() >= wanted.items()
    assert kept["background"]
    assert kept["perdure"]["on_restart"] == "retry"
    on(tiny_server, "ask", "Hello.", "--background")
    kept = tiny_server.get(f"/v1/responses/{newest(tiny_server)['response_id']}")
    assert (kept["temperature"], kept["max_output_tokens"], kept["instructions"]) == (1.0, None, None)


def test_the_question_may_come_from_standard_input(tiny_server: Server) -> None:
    """Without the line end that `echo` adds: the prompt is as long as that of the same words as an argument."""
    counts: list[int] = []
    for words, given in ((["Grüße"], b""), (["-"], "Grüße\n".encode()), (["-"], "Grüße\n\n".encode())):
        on(tiny_server, "ask", *words, "--max-output-tokens", "1", given=given)
        kept = tiny_server.get(f"/v1/responses/{newest(tiny_server)['response_id']}")
        counts.append(kept["usage"]["input_tokens"])
    assert counts == [counts[0], counts[0], counts[0] + 1]


def test_ask_in_the_background_prints_the_id_and_leaves(tiny_server: Server) -> None:
    """At once: the model cannot even begin. `follow` shows the answer, under the name of the task too."""
    server = tiny_server
    on(server, "ask", "Wake up.", "--max-output-tokens", "1")
    freeze(child := server.engine_child())
    try:
        got = on(server, "ask", "Tell me a story.", "--background", *SHORT)
    finally:
        thaw(child)
    assert (got.returncode, got.stderr) == (0, b"")
    name = got.stdout.decode().rstrip("\n")
    assert name == newest(server)["response_id"]
    for ident in (name, name.replace("resp_", "task_")):
        shown = on(server, "follow", ident)
        assert shown.stdout == text_in(server, name)
        assert shown.returncode == 4
    accepted = json.loads(on(server, "ask", "Hello.", "--background", "--json").stdout)
    assert accepted["object"] == "response"
    assert accepted["id"] == newest(server)["response_id"]


def test_events_are_lines_of_json_in_the_bytes_that_are_stored(tiny_server: Server) -> None:
    """As a stream sends them; `--after` begins behind the one that it names."""
    got = on(tiny_server, "ask", "Tell me a story.", "--json", *SHORT)
    name = newest(tiny_server)["response_id"]
    stored = [frame.split("data: ", 1)[1] for frame in tiny_server.frames(name)[:-1]]
    lines = got.stdout.decode().split("\n")
    assert lines == [*stored, ""]
    later = on(tiny_server, "follow", name, "--json", "--after", "9").stdout.decode().split("\n")
    assert later == lines[10:]
    beyond = on(tiny_server, "follow", name, "--json", "--after", str(len(stored)))
    assert (beyond.stdout, beyond.returncode) == (b"", 4)
    assert beyond.stderr.decode().startswith(f"perdure: There is nothing after event {len(stored)} of {name}.\n")


# Kills and restarts.


@pytest.mark.parametrize("as_json", [False, True], ids=["text", "json"])
@pytest.mark.parametrize("command", ["ask", "follow"])
def test_a_kill_of_the_service_leaves_no_seam(server: Server, command: str, as_json: bool) -> None:
    """It comes back at another address; who listens at the old one meanwhile is not talked to."""
    calm = on(server, "ask", "Tell me a story.", *LONG).stdout
    words = ["ask", "Tell me a story.", *LONG]
    if command == "follow":
        name = server.create(max_output_tokens=2000, seed=5)["id"]
        server.holds(name, 50)
        words = ["follow", name]
    with Command(server, *words, *(["--json"] if as_json else [])) as reader:
        reader.reads(2000 if as_json else 10)
        name = newest(server)["response_id"]
        server.holds(name)
        server.kill()
        with squatter(server.url) as listening:
            reader.says("The service is away")
            server.start()
            assert reader.ended() == 4
            assert nobody_came(listening)
        assert "The service is back." in reader.said()
    assert text_in(server, name) == calm
    if not as_json:
        assert reader.output == calm
        return
    events = [json.loads(line) for line in reader.output.splitlines()]
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    assert events[-1]["type"] == "response.incomplete"
    assert "".join(event.get("delta", "") for event in events).encode() == calm.removesuffix(b"\n")


def test_an_orderly_stop_is_waited_out_as_well(tmp_path: Path, tiny_model: Path) -> None:
    """The stream ends without a word then, and so does the file that tells the address."""
    with Server(tmp_path / "data", tiny_model, drain_seconds=0).start() as server:
        calm = on(server, "ask", "Tell me a story.", *LONG).stdout
        with Command(server, "ask", "Tell me a story.", *LONG) as ask:
            ask.reads(50)
            child = server.holds(newest(server)["response_id"])
            assert server.terminate(child) == 0
            ask.says("The service is away")
            server.start()
            assert ask.ended() == 4
        assert ask.output == calm


def test_one_who_does_not_want_to_wait_is_told_the_way_back(server: Server) -> None:
    """The exit code says that the end is not known."""
    with Command(server, "ask", "Tell me a story.", "--wait", "0.3", *LONG) as ask:
        ask.reads(50)
        name = newest(server)["response_id"]
        server.holds(name)
        server.kill()
        assert ask.ended() == 5
    last = ask.said().splitlines()[-1]
    assert "did not come back within 0.3 s" in last
    assert f"`{CALLED} follow {name} --data {server.data}` shows it" in last


def test_one_who_leaves_while_the_service_is_away_is_told_when_the_work_goes_on(server: Server) -> None:
    """Not now."""
    with Command(server, "ask", "Tell me a story.", *LONG) as ask:
        ask.reads(50)
        name = newest(server)["response_id"]
        server.holds(name)
        server.kill()
        ask.says("The service is away")
        ask.interrupt()
        assert ask.ended() == 130
    said = ask.said().splitlines()[-1]
    assert said.startswith(f"perdure: Left {name}; the work goes on when the service is back. `{CALLED} follow")


@pytest.mark.parametrize("terminal", [True, False], ids=["terminal", "pipe"])
def test_a_text_that_starts_anew_is_not_taken_for_one(server: Server, terminal: bool) -> None:
    """A terminal is told, and it starts on a new line; a pipe gets the text that counts and no other."""
    on(server, "ask", "Wake up.", "--max-output-tokens", "1")
    words = ["ask", "Tell me a story.", *LONG, "--on-restart", "retry"]
    with Command(server, *words, terminal=terminal) as ask:
        if terminal:
            ask.reads(50)
        name = running(server)
        server.holds(name)
        server.kill()
        ask.says("The service is away")
        server.start()
        assert ask.ended() == 4
    text = text_in(server, name)
    if not terminal:
        assert ask.output == text
        return
    void, _, shown = ask.output.rpartition(at_terminal(text))
    assert shown == b""
    assert void.endswith(b"\n")
    assert len(void) > 50
    assert "the text starts anew (attempt 2); what was written so far is void" in ask.said()


def test_a_response_that_a_restart_fails_says_so(server: Server) -> None:
    """The error that the service gave it, and exit code 4."""
    with Command(server, "ask", "Tell me a story.", "--on-restart", "fail", *LONG) as ask:
        ask.reads(50)
        server.holds(newest(server)["response_id"])
        server.kill()
        server.start()
        assert ask.ended() == 4
    assert "ended failed: server_restarted: The " in ask.said().splitlines()[-1]


# Leaving.


LEFT = [("ask", signal.SIGINT), ("follow", signal.SIGINT), ("ask", signal.SIGTERM), ("ask", signal.SIGHUP)]


@pytest.mark.parametrize(("command", "number"), LEFT, ids=[f"{command}-{number.name}" for command, number in LEFT])
def test_a_signal_ends_the_reading_and_not_the_work(tiny_server: Server, command: str, number: int) -> None:
    """It tells how to come back, and the way works."""
    server = tiny_server
    on(server, "ask", "Wake up.", "--max-output-tokens", "1")
    words = ["ask", "Tell me a story.", *LONG]
    if command == "follow":
        words = ["follow", on(server, *words, "--background").stdout.decode().strip()]
    with Command(server, *words) as reader:
        reader.reads(50)
        freeze(child := server.engine_child())
        try:
            reader.interrupt(number)
            assert reader.ended() == 128 + number
            name = newest(server)["response_id"]
            assert reader.said().startswith(f"perdure: Left {name}; the work goes on. `{CALLED} follow {name}")
            assert server.task(name)["status"] == "running"
        finally:
            thaw(child)
    assert on(server, "follow", name).stdout == text_in(server, name)
    assert server.task(name)["status"] == "incomplete"


def test_a_reader_of_the_output_who_leaves_ends_it(tiny_server: Server) -> None:
    """As `| head -c 20` does; a line says that the work goes on, and it does."""
    with Command(tiny_server, "ask", "Tell me a story.", *LONG) as ask:
        ask.reads(20)
        ask.stops_reading()
        assert ask.process.wait(60) == 141
        name = newest(tiny_server)["response_id"]
        assert ask.said() in parted(tiny_server, name)
    assert tiny_server.ended(name)["status"] == "incomplete"


def left(server: Server, name: str) -> str:
    """The line for somebody who leaves a response that is being written."""
    follow, cancel = (f"`{CALLED} {word} {name} --data {server.data}`" for word in ("follow", "cancel"))
    return f"perdure: Left {name}; the work goes on. {follow} shows it, {cancel} ends it.\n"


def parted(server: Server, name: str) -> list[str]:
    """The same where it may have been written to its end meanwhile."""
    ended = f"perdure: Left {name}, which has ended. `{CALLED} follow {name} --data {server.data}` shows it.\n"
    return [left(server, name), ended]


ASKS = [[], ["--background"], ["--json"], ["--background", "--json"]]


@pytest.mark.parametrize("options", ASKS, ids=" ".join)
def test_an_accepted_question_is_named_although_the_output_cannot_be_written(
    tiny_server: Server, options: list[str]
) -> None:
    """Whoever took it for refused would ask twice."""
    with Path("/dev/full").open("wb") as full:
        got = on(tiny_server, "ask", "Tell me a story.", *LONG, *options, stdout=full)
    name = newest(tiny_server)["response_id"]
    failed, _, told = got.stderr.decode().partition("device. ")
    assert failed == "perdure: The output cannot be written: No space left on "
    assert f"perdure: {told}" in parted(tiny_server, name)
    assert got.returncode == 5
    on(tiny_server, "cancel", name)


def test_leaving_an_answer_that_has_ended_does_not_say_that_it_goes_on(tiny_server: Server) -> None:
    """Only the writing failed: at its last event, and long before."""
    name = tiny_server.ended(tiny_server.create(max_output_tokens=1)["id"])["id"]
    last = len(tiny_server.frames(name)) - 2  # the last frame is no event
    for after in (last - 1, 0):
        with Path("/dev/full").open("wb") as full:
            got = on(tiny_server, "follow", name, "--json", "--after", str(after), stdout=full)
        assert f"Left {name}, which has ended. `{CALLED} follow {name} --data" in got.stderr.decode()
        assert got.returncode == 5


def test_an_accepted_question_is_named_although_nobody_reads_the_output(tiny_server: Server) -> None:
    """The pipe is closed before the id is written."""
    with Command(tiny_server, "ask", "Hello.", "--background", "--max-output-tokens", "1") as ask:
        ask.stops_reading()
        assert ask.process.wait(60) == 141
        assert ask.said() == left(tiny_server, newest(tiny_server)["response_id"])


@pytest.mark.parametrize("words", [["tasks"], ["tasks", "--json"]], ids=" ".join)
def test_output_that_cannot_be_written_is_one_line(tiny_server: Server, words: list[str]) -> None:
    """A full disk."""
    tiny_server.create(background=True, max_output_tokens=1)
    with Path("/dev/full").open("wb") as full:
        got = on(tiny_server, *words, stdout=full)
    assert got.returncode == 1
    assert got.stderr == b"perdure: The output cannot be written: No space left on device.\n"


# Terminals.


def test_a_model_cannot_steer_the_terminal(tiny_server: Server) -> None:
    """Its control characters are shown, at a terminal; a pipe gets what it wrote."""
    piped = on(tiny_server, "ask", "Tell me a story.", *SHORT).stdout
    with Command(tiny_server, "ask", "Tell me a story.", *SHORT, terminal=True) as ask:
        assert ask.ended() == 4
    assert [char for char in piped.decode() if ord(char) in CONTROLS]
    assert ask.output == at_terminal(piped)
    with Command(tiny_server, "follow", newest(tiny_server)["id"], "--json", terminal=True) as follow:
        follow.ended()
    shown = [json.loads(line).get("delta", "") for line in follow.output.splitlines()]
    assert "".join(shown).encode() == piped.removesuffix(b"\n")
    for output in (ask.output, follow.output):
        assert [char for char in output.decode() if ord(char) in CONTROLS] == []


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_a_terminal_that_lacks_characters_shows_escapes(tiny_server: Server, encoding: str) -> None:
    """It does not end the text."""
    whole = on(tiny_server, "ask", "Tell me a story.", *SHORT).stdout.decode()
    got = on(tiny_server, "ask", "Tell me a story.", *SHORT, PYTHONIOENCODING=encoding)
    assert got.stdout == whole.encode(encoding, "backslashreplace")
    assert got.returncode == 4


# Tasks and cancel.


def test_tasks_are_a_table_or_the_list_object(tiny_server: Server) -> None:
    """The newest first, in as many pages as it takes."""
    on(tiny_server, "ask", "Hello.", "--max-output-tokens", "1")
    lines = on(tiny_server, "tasks", "--limit", "3").stdout.decode().splitlines()
    first = newest(tiny_server)
    assert lines[0].split() == ["id", "created", "status"]
    cells = lines[1].split()
    assert (cells[0], *cells[3:]) == (first["response_id"], "incomplete")
    for name in ("created", "status"):  # aligned
        assert {line[lines[0].index(name) - 1] for line in lines} == {" "}
    assert max(map(len, lines)) <= 80
    for _ in range(110):
        tiny_server.create(max_output_tokens=1)
    listed = json.loads(on(tiny_server, "tasks", "--json", "--limit", "105").stdout)
    pages = [tiny_server.get("/v1/tasks?limit=100")]
    pages.append(tiny_server.get(f"/v1/tasks?limit=5&after={pages[0]['last_id']}"))
    data = [task["id"] for page in pages for task in page["data"]]
    assert [task["id"] for task in listed["data"]] == data
    assert (listed["first_id"], listed["last_id"]) == (data[0], data[-1])
    assert listed.keys() == pages[0].keys()
    assert listed["has_more"]


def test_tasks_of_one_status(tiny_server: Server) -> None:
    """And a word where there are none."""
    tiny_server.ended(tiny_server.create(max_output_tokens=1)["id"])
    listed = json.loads(on(tiny_server, "tasks", "--json", "--status", "incomplete", "--limit", "2").stdout)
    assert {task["status"] for task in listed["data"]} == {"incomplete"}
    none = on(tiny_server, "tasks", "--status", "failed")
    assert (none.stdout, none.stderr) == (b"", b"perdure: There are no tasks that are failed.\n")
    assert json.loads(on(tiny_server, "tasks", "--status", "failed", "--json").stdout)["data"] == []


def test_cancel_ends_a_response_and_its_readers_are_told(tiny_server: Server) -> None:
    """By either name."""
    with Command(tiny_server, "ask", "Tell me a story.", *LONG) as ask:
        ask.reads(50)
        name = running(tiny_server)
        child = tiny_server.engine_child()
        freeze(child)  # or it may be done before the other command has started
        got = on(tiny_server, "cancel", name.replace("resp_", "task_"))
        thaw(child)
        assert got.stdout in (b"cancelled\n", b"cancelling\n")
        assert got.returncode == 0
        assert ask.ended() == 4
        assert ask.said() == f"perdure: {name} ended cancelled\n"
    again = on(tiny_server, "cancel", name, "--json")
    assert json.loads(again.stdout)["status"] == "cancelled"


def test_cancel_takes_several_ids(tiny_server: Server) -> None:
    """Each has its line and does not hinder the next; the exit code is that of the worst."""
    first, second = (tiny_server.ended(tiny_server.create(max_output_tokens=1)["id"])["id"] for _ in range(2))
    got = on(tiny_server, "cancel", first, "resp_nobody", second.replace("resp_", "task_"))
    assert got.stdout.decode() == f"{first}  incomplete\n{second}  incomplete\n"
    assert got.stderr.startswith(b"perdure: resp_nobody: There is nothing of this id")
    assert got.returncode == 1
    got = on(tiny_server, "cancel", first, second, "--json")
    assert [json.loads(line)["response_id"] for line in got.stdout.splitlines()] == [first, second]
    assert (got.stderr, got.returncode) == (b"", 0)


def test_cancel_of_several_says_once_that_no_service_runs(tmp_path: Path) -> None:
    """It would be the same for each."""
    got = ran("cancel", "resp_a", "resp_b", "--data", str(tmp_path))
    assert got.stderr.startswith(b"perdure: resp_a: No service runs")
    assert (got.stderr.count(b"\n"), got.returncode) == (1, 1)


# Errors.

USAGE = {
    "serve --prot 8": "perdure serve: there is no option --prot (did you mean --port?)",
    "ask --temp 1 x": "perdure ask: there is no option --temp (did you mean --temperature?)",
    "serve --por 8": "perdure serve: there is no option --por (did you mean --port?)",
    "serve --port x": "perdure serve: argument --port: 'x' is not a whole number",
    "serve --model=": "perdure serve: argument --model: the value is empty",
    "srve": "perdure: argument COMMAND: invalid choice: 'srve'",
    "ask": "perdure ask: the following arguments are required: TEXT",
    "ask --foo": "perdure ask: there is no option --foo; put `--` before a text that begins with a dash",
    "ask --prompt=x": "perdure ask: there is no option --prompt; put `--` before",
    "ask -- x --seed 5": "perdure ask: '--seed' is out of place; put options before `--`",
    "--json tasks": f"perdure tasks: '--json' is out of place; it goes after `{CALLED} tasks`",
    "follow --foo": "perdure follow: there is no option --foo; ",
    "cancel": "perdure cancel: the following arguments are required: ID",
    "ask two words": "perdure ask: 'words' is one argument too many",
    "ask x --temperature nan": "perdure ask: argument --temperature: 'nan' is not a number",
    "ask x --wait -1": "perdure ask: argument --wait: '-1' is less than 0",
    "ask x --on-restart never": "perdure ask: argument --on-restart: invalid choice: 'never'",
    "follow nothing": "perdure follow: argument ID: 'nothing' is not like resp_",
    "follow resp_x --after -1": "perdure follow: argument --after: '-1' is less than 0",
    "tasks --limit 0": "perdure tasks: argument --limit: '0' is less than 1",
    "tasks --status done": "perdure tasks: argument --status: invalid choice: 'done'",
}


@pytest.mark.parametrize("line", USAGE)
def test_a_command_line_that_is_not_understood(line: str) -> None:
    """One line that names what is wrong and where the remedy stands; exit code 2."""
    got = ran(*line.split())
    assert got.returncode == 2
    said = got.stderr.decode()
    assert said.startswith(USAGE[line])
    assert said.endswith("--help` lists what there is.\n")
    assert said.count("\n") == 1
    assert got.stdout == b""


def test_a_text_that_is_not_utf8_is_refused(tiny_server: Server) -> None:
    """As an argument and on standard input."""
    got = ran("ask", b"\xff")
    assert (got.returncode, got.stdout) == (2, b"")
    assert b"argument TEXT: the text is not UTF-8" in got.stderr
    got = on(tiny_server, "ask", "-", given=b"ab\xff")
    assert (got.returncode, got.stderr) == (1, b"perdure: Standard input is not UTF-8 (at byte 2).\n")


REFUSED = {
    "ask x --temperature 3": "`temperature` must be a number from 0 to 2.",
    "ask x --seed -1": "`seed` must be an integer from 0 to 9223372036854775807.",
    "ask x --max-output-tokens 0": "`max_output_tokens` must be",
    "ask x --model large": "There is no model large here; --model takes: tiny.",
    "follow resp_nobody": "There is nothing of this id that this token may see.",
    "cancel task_nobody": "There is nothing of this id that this token may see.",
}


@pytest.mark.parametrize("line", REFUSED)
def test_what_the_service_refuses_is_one_line(tiny_server: Server, line: str) -> None:
    """Its message, and exit code 1; nothing was created."""
    before = tiny_server.get("/v1/tasks?limit=1")["data"]
    got = on(tiny_server, *line.split())
    assert got.returncode == 1
    assert got.stderr.decode().startswith(f"perdure: {REFUSED[line]}")
    assert got.stderr.count(b"\n") == 1
    assert got.stdout == b""
    assert tiny_server.get("/v1/tasks?limit=1")["data"] == before


def test_without_arguments_there_is_help() -> None:
    """And the exit code of a command line that says nothing."""
    assert (ran().returncode, ran().stderr) == (2, ran("--help").stdout)
    assert ran("--help").returncode == 0
    for words in (["version"], ["--version"]):
        assert ran(*words).stdout.decode() == f"{__version__}\n"


HELPED = ["serve", "ask", "follow", "tasks", "cancel", "version"]
COMMANDS = [
    ["ask", "Hello."],
    ["ask", "--background", "Hello."],
    ["follow", "resp_x"],
    ["tasks"],
    ["cancel", "resp_x"],
]


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_where_no_service_runs_a_line_says_so(tmp_path: Path, words: list[str]) -> None:
    """Which folder was looked at, and how to start one there."""
    folder = tmp_path / "a folder"
    folder.mkdir()
    got = ran(*words, "--data", str(folder))
    assert (got.returncode, got.stdout) == (1, b"")
    assert got.stderr.decode() == (
        f"perdure: No service runs on the data folder {folder}. Start one with `{CALLED} serve --data '{folder}'`, "
        "or name the folder of one that runs with --data.\n"
    )
    again = ran(*words, PERDURE_DATA=str(folder))
    assert f"Start one with `{CALLED} serve`, or".encode() in again.stderr


def test_a_wrong_data_folder_is_named_so(tmp_path: Path) -> None:
    """One that is not there is not made; that of the user need not be there yet."""
    folder, file = tmp_path / "none", tmp_path / "file"
    file.touch()
    got = ran("tasks", "--data", str(folder))
    assert (got.returncode, got.stdout) == (1, b"")
    assert got.stderr.decode() == (
        f"perdure: There is no folder {folder}. `{CALLED} serve --data {folder}` makes it and serves it, or name the "
        "folder of one that runs with --data.\n"
    )
    assert not folder.exists()
    assert f"There is no folder {folder}. ".encode() in ran("tasks", PERDURE_DATA=str(folder)).stderr
    assert b"No service runs on the data folder" in ran("tasks", XDG_DATA_HOME=str(folder)).stderr
    got = ran("tasks", "--data", str(file))
    assert got.stderr.decode() == f"perdure: {file} is not a folder; name the folder of the service with --data.\n"
    assert got.returncode == 1


def test_a_setting_that_is_no_number_is_told_in_plain_words(tmp_path: Path) -> None:
    """Not in those of the library. A command that needs only the folder goes on, and the service does not start."""
    wrong: dict[str, Any] = {"PERDURE_PORT": "abc", "PERDURE_DRAIN_SECONDS": "x", "PERDURE_RETENTION": "9"}
    told = [
        b"PERDURE_RETENTION is no setting (did you mean PERDURE_RETENTION_DAYS?)",
        b"PERDURE_PORT is 'abc': must be a whole number from 0 to 65535",
        b"PERDURE_DRAIN_SECONDS is 'x': must be a number of seconds from 0 to 3600",
    ]
    folder = str(tmp_path)
    got = ran("serve", "--data", folder, **wrong)
    assert (got.returncode, got.stderr) == (1, b"perdure: The settings cannot be used: %b.\n" % b"; ".join(told))
    got = ran("doctor", "--data", folder, **wrong)
    assert got.stderr.splitlines() == [b"perdure: %b; it has no effect here." % each for each in told]
    assert got.stdout
    got = ran("doctor", PERDURE_DATA_DIR=folder)
    assert (got.returncode, got.stdout) == (1, b"")
    assert b"PERDURE_DATA_DIR is no setting (did you mean PERDURE_DATA?)" in got.stderr


def test_a_path_is_told_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In commands to try as well, which may be typed in another folder; `~` is the user's home."""
    hint = f"Start one with `{CALLED} serve --data {tmp_path}`".encode()
    monkeypatch.chdir(tmp_path.parent)
    for given in ("~", tmp_path.name):
        assert hint in ran("tasks", "--data", given, HOME=str(tmp_path)).stderr
    assert f"data folder {tmp_path}.".encode() in ran("tasks", PERDURE_DATA="~", HOME=str(tmp_path)).stderr


@pytest.mark.parametrize("words", [["--help"], *([each, "--help"] for each in HELPED)], ids=" ".join)
def test_help_can_be_shown_in_ascii(words: list[str]) -> None:
    """What the terminal lacks is escaped; there is no traceback."""
    got = ran(*words, PYTHONUTF8="0", PYTHONIOENCODING="ascii")
    assert (got.returncode, got.stderr) == (0, b"")
    assert got.stdout.decode("ascii").startswith(f"usage: {CALLED}")


def test_a_hint_names_the_command_as_it_was_called(tmp_path: Path) -> None:
    """As it was typed, for the shell; by its plain name where the shell finds this very file."""
    moved = tmp_path / "a b" / "perdure"
    moved.parent.mkdir()
    moved.symlink_to(COMMAND)
    hints: list[bytes] = []
    for path in (str(COMMAND.parent), str(moved.parent), "/usr/bin"):
        env = os.environ | {"PATH": path}
        got = subprocess.run(
            ["a b/perdure", "tasks", "--data", str(tmp_path)], cwd=tmp_path, env=env, capture_output=True, check=False
        )
        hints.append(got.stderr.partition(b"`")[2].partition(b" serve")[0])
    assert hints == [b"perdure", b"perdure", b"'a b/perdure'"]


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_after_a_kill_nobody_is_told_the_token(server: Server, words: list[str]) -> None:
    """Whoever listens at the address that was left behind; a line says that accepted work is kept."""
    assert server.process is not None
    pid = server.process.pid
    server.kill()
    with squatter(server.url) as listening:
        got = on(server, *words)
        assert nobody_came(listening)
    assert (got.returncode, got.stdout) == (1, b"")
    assert f"is not running: its process {pid} is gone without an orderly stop" in got.stderr.decode()
    assert f"goes on at the next `{CALLED} serve --data {server.data}`" in got.stderr.decode()


def test_the_process_of_another_program_is_not_the_service(server: Server) -> None:
    """Its number may be used again; nor is a file that is damaged taken for an answer."""
    server.kill()
    left = server.data / "server.json"
    facts = json.loads(left.read_text())
    for pid in (os.getpid(), 1, 0, -1, 2**40):
        left.write_text(json.dumps(facts | {"pid": pid}))
        with squatter(server.url) as listening:
            assert b"is not running: its process" in on(server, "tasks").stderr
            assert nobody_came(listening)
    for damaged in ("", "[]", "{}", '{"pid": "x", "address": "y"}', '{"pid": 1, "address": "http://x:99999"}'):
        left.write_text(damaged)
        assert on(server, "tasks").stderr.startswith(f"perdure: {left} is damaged".encode())


def test_a_service_that_does_not_answer_at_its_address(tiny_server: Server, tmp_path: Path) -> None:
    """As when it is being stopped: the line says where it was looked for."""
    facts = json.loads((tiny_server.data / "server.json").read_text())
    (tmp_path / "server.json").write_text(json.dumps(facts | {"address": "http://127.0.0.1:9"}))
    (tmp_path / "owner.token").write_text("x")
    (tmp_path / "perdure.lock").symlink_to(tiny_server.data / "perdure.lock")
    got = ran("ask", "Hello.", "--data", str(tmp_path))
    assert got.returncode == 1
    assert b"does not answer at 127.0.0.1, port 9: Connection refused" in got.stderr


def test_a_question_whose_answer_was_lost_is_not_asked_twice(tiny_server: Server, tmp_path: Path) -> None:
    """It was accepted, the answer did not arrive: the line says where to look, and there is one response."""
    facts = json.loads((tiny_server.data / "server.json").read_text())
    before = {task["id"] for task in tiny_server.get("/v1/tasks?limit=100")["data"]}
    (tmp_path / "perdure.lock").symlink_to(tiny_server.data / "perdure.lock")
    with swallowing(tiny_server.url) as (url, requests):
        (tmp_path / "server.json").write_text(json.dumps(facts | {"address": url}))
        (tmp_path / "owner.token").write_text(tiny_server.token)
        got = ran("ask", "Hello.", "--model", "tiny", "--max-output-tokens", "1", "--data", str(tmp_path))
    assert (got.returncode, got.stdout) == (5, b"")
    assert len(requests) == 1
    assert "Whether the question was accepted is not known, so it was not sent again" in got.stderr.decode()
    assert f"`{CALLED} tasks --data {tmp_path}` shows it" in got.stderr.decode()
    assert len({task["id"] for task in tiny_server.get("/v1/tasks?limit=100")["data"]} - before) == 1


@contextmanager
def swallowing(url: str) -> Generator[tuple[str, list[bytes]]]:
    """A line to a service on which questions arrive and answers get lost."""
    address, requests = urlsplit(url), list[bytes]()

    def carry() -> None:
        while True:
            try:
                caller, _ = listening.accept()
            except OSError:
                return
            with caller, socket.create_connection((str(address.hostname), int(address.port or 0))) as service:
                request = caller.recv(65536)
                while not request.endswith(b"}"):
                    request += caller.recv(65536)
                requests.append(request)
                service.sendall(request)
                service.recv(1)

    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=carry)
        thread.start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}", requests
        listening.shutdown(socket.SHUT_RDWR)
    thread.join(10)


# What a start costs.


def test_a_command_does_not_load_the_service(tiny_server: Server) -> None:
    """None of its libraries, for a question of a line."""
    for words in (["tasks"], ["ask", "Hello.", "--max-output-tokens", "1"], ["follow", newest(tiny_server)["id"]]):
        loaded = on(tiny_server, *words, PYTHONPROFILEIMPORTTIME="1").stderr.decode()
        assert "perdure.cli.contact" in loaded
        assert [name for name in HEAVY if name in loaded] == []


def test_a_service_does_not_load_pydantic(tmp_path: Path, tiny_model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Although it is installed here and the framework would."""
    monkeypatch.setenv("PYTHONPROFILEIMPORTTIME", "1")
    with Server(tmp_path / "data", tiny_model).start() as server:
        loaded = server.errors.read_text()
    names = {line.rpartition("|")[2].strip() for line in loaded.splitlines()}
    assert "litestar.app" in names
    assert [name for name in names if name.startswith(("pydantic.", "pydantic_core"))] == []
