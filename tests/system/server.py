"""A real `perdure serve` process for tests, started and ended the way a user and an accident would."""

import json
import os
import queue
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Self, TypeVar

import httpx
import openai
import psutil

from tests.witness import watched

COMMAND = Path(sys.executable).parent / "perdure"
POLL_SECONDS = 0.005
WAIT_SECONDS = 60.0  # a busy machine takes long to get round to things
START_SECONDS = 60.0
STOP_SECONDS = 60.0
T = TypeVar("T")
TERMINAL = {"completed", "incomplete", "failed", "cancelled"}


class Server:
    """One data folder and the process that serves it, if one runs."""

    def __init__(self, data: Path, model: Path | None = None, *others: Path, **settings: Any) -> None:
        self.data = data
        self.model = model
        self.others = others
        self.settings = settings
        self.url = ""
        self.model_name = model.stem if model else "smollm2-135m-instruct"
        self.process: subprocess.Popen[str] | None = None
        self._http: httpx.Client | None = None
        self._clients: list[openai.OpenAI] = []
        self.errors = data.with_name(data.name + ".stderr")

    # Life and death.

    def spawn(self, *prefix: str, port: int = 0) -> None:
        """Start the process without waiting for it to listen. `prefix` goes before the command."""
        options = ["--data", str(self.data), "--port", str(port)]
        for model in (self.model, *self.others):
            options += ["--model", str(model)] if model is not None else []
        env = os.environ | {f"PERDURE_{name.upper()}": str(value) for name, value in self.settings.items()}
        with self.errors.open("a") as stderr:
            self.process = subprocess.Popen(
                [*prefix, str(COMMAND), "serve", *options], stdout=subprocess.PIPE, stderr=stderr, text=True, env=env
            )

    def start(self, *prefix: str) -> "Server":
        """Start and return once the first line says where it listens."""
        self.spawn(*prefix)
        self.listening()
        return self

    def listening(self) -> None:
        """Wait for the line that says where it listens."""
        line = self.first_line()
        assert line.startswith("Perdure listens on "), (line, self.errors.read_text())
        self.url = line.split()[3]

    def first_line(self) -> str:
        """The first line that it prints; empty if it ends without one."""
        assert self.process is not None
        assert self.process.stdout is not None
        stdout, lines = self.process.stdout, queue.Queue[str]()

        def read() -> None:
            for line in stdout:
                lines.put(line)
            lines.put("")

        threading.Thread(target=read, daemon=True).start()
        return lines.get(timeout=START_SECONDS)

    def children(self) -> list[psutil.Process]:
        """The processes that the service started."""
        assert self.process is not None
        return psutil.Process(self.process.pid).children(recursive=True)

    def engine_child(self) -> psutil.Process:
        """The process that draws tokens; waits until there is one."""
        return self._child("engine_child")

    def named_children(self) -> dict[str, psutil.Process]:
        """The children that run now, by the module that each of them runs."""
        found: dict[str, psutil.Process] = {}
        for child in self.children():
            with suppress(psutil.NoSuchProcess, psutil.ZombieProcess):
                words = child.cmdline()
                found[words[words.index("-m") + 1].rpartition(".")[2] if "-m" in words else "unnamed"] = child
        return found

    def _child(self, kind: str) -> psutil.Process:
        def find() -> psutil.Process | None:
            for child in self.children():
                try:
                    if any(kind in part for part in child.cmdline()):
                        return child
                except (psutil.NoSuchProcess, psutil.ZombieProcess):
                    continue
            return None

        return until(find, f"a child {kind}")

    def kill(self) -> list[psutil.Process]:
        """SIGKILL, as an accident does it; returns the processes that it leaves behind."""
        assert self.process is not None
        orphans = self.children()
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(STOP_SECONDS)
        self._close_pipe()
        for orphan in orphans:  # one that a test has frozen could not see that its parent has gone
            thaw(orphan)
        return orphans

    def terminate(self, frozen: psutil.Process | None = None) -> int:
        """SIGTERM; returns the exit code. A child that is `frozen`, to hold its work, goes on after the signal."""
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        if frozen is not None:
            thaw(frozen)
        return self.wait()

    def wait(self) -> int:
        """The exit code, when it comes."""
        assert self.process is not None
        code = self.process.wait(STOP_SECONDS)
        self._close_pipe()
        return code

    def _close_pipe(self) -> None:
        if self._http is not None:
            self._http.close()
            self._http = None
        while self._clients:
            self._clients.pop().close()
        assert self.process is not None
        assert self.process.stdout is not None
        self.process.stdout.close()
        self.process = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        if self.process is not None:
            still_alive(self.kill(), seconds=5)

    # Callers.

    @property
    def token(self) -> str:
        """The owner's token."""
        return self.token_path.read_text().strip()

    @property
    def token_path(self) -> Path:
        """Where the owner's token lies."""
        return self.data / "owner.token"

    def client(self) -> openai.OpenAI:
        """The official client, unchanged; errors reach the test instead of being retried."""
        made = openai.OpenAI(base_url=f"{self.url}/v1", api_key=self.token, max_retries=0, timeout=60)
        self._clients.append(made)
        return watched(made)

    @property
    def http(self) -> httpx.Client:
        """A plain client with the owner's token, one for each life of the process."""
        if self._http is None:
            self._http = self.caller()
        return self._http

    def caller(self) -> httpx.Client:
        """A plain client of one's own, which outlives the process."""
        headers = {"Authorization": f"Bearer {self.token}"}
        return watched(httpx.Client(base_url=self.url, headers=headers, timeout=60, verify=False, trust_env=False))

    def create(self, text: str = "Tell me a story.", **fields: Any) -> dict[str, Any]:
        """Create a background response; returns the object as answered."""
        body = {"model": self.model_name, "input": text, "background": True, **fields}
        answer = self.http.post("/v1/responses", json=body)
        assert answer.status_code == 202, answer.text
        return answer.json()

    def get(self, path: str) -> dict[str, Any]:
        """A JSON answer."""
        answer = self.http.get(path)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def task(self, response_id: str) -> dict[str, Any]:
        """The task of a response."""
        return self.get(f"/v1/tasks/{response_id.replace('resp_', 'task_')}")

    def reaches(self, response_id: str, status: str) -> dict[str, Any]:
        """The task once it stands in `status`; fails when it ends elsewhere."""

        def there() -> dict[str, Any] | None:
            task = self.task(response_id)
            assert task["status"] == status or task["status"] not in TERMINAL, task
            return task if task["status"] == status else None

        return until(there, f"{response_id} to be {status}")

    def holds(self, response_id: str, characters: int = 1) -> psutil.Process:
        """Freeze the process that draws in the middle of a response, when so much of it is kept; returns it.

        It goes in short steps: on a busy machine a text is else at its end before anybody has looked at it.
        """
        child = self.engine_child()

        def held() -> psutil.Process | None:
            freeze(child)
            response = self.get(f"/v1/responses/{response_id}")
            if response["status"] == "in_progress" and len(shown_by(response)) >= characters:
                return child
            thaw(child)
            assert response["status"] not in TERMINAL, f"{response['status']} before it could be held"
            return None

        return until(held, f"{response_id} to have {characters} characters")

    def ended(self, response_id: str) -> dict[str, Any]:
        """The response once it has ended, by following its stream to the end."""
        frames = self.frames(response_id)
        assert frames[-1] == "data: [DONE]", frames[-3:]
        return self.get(f"/v1/responses/{response_id}")

    def frames(self, response_id: str, after: int | None = None) -> list[str]:
        """Every frame of the stream to its end, as it came over the wire."""
        with self.stream(response_id, after) as frames:
            return list(frames)

    @contextmanager
    def stream(
        self, response_id: str, after: int | None = None, client: httpx.Client | None = None
    ) -> Generator[Iterator[str]]:
        """The frames of a stream as they come, comments left out. A thread of its own brings a client of its own."""
        params = {"stream": "true"} | ({} if after is None else {"starting_after": str(after)})
        with (client or self.http).stream("GET", f"/v1/responses/{response_id}", params=params) as answer:
            assert answer.status_code == 200
            yield split_frames(answer)


def split_frames(answer: httpx.Response) -> Iterator[str]:
    """The frames of an answer; a connection that breaks ends them (a frame cut in the middle is dropped)."""
    held = ""
    try:
        for piece in answer.iter_text():
            held += piece
            while "\n\n" in held:
                frame, held = held.split("\n\n", 1)
                if not frame.startswith(":"):
                    yield frame
    except httpx.TransportError:
        return


def until(probe: Callable[[], T | None], what: str, seconds: float = WAIT_SECONDS) -> T:
    """What `probe` finds, asked again and again; fails when it takes too long."""
    deadline = time.monotonic() + seconds
    while (found := probe()) is None:
        assert time.monotonic() < deadline, f"waited {seconds} s for {what}"
        select.select((), (), (), POLL_SECONDS)  # leaves the processor to those who are waited for
    return found


def freeze(process: psutil.Process) -> None:
    """Stop a process in its tracks, so that what it works on stays as it is."""
    process.suspend()


def thaw(process: psutil.Process) -> None:
    """Let it go on."""
    with suppress(psutil.NoSuchProcess):
        process.resume()


def still_alive(processes: list[psutil.Process], seconds: float) -> list[psutil.Process]:
    """Which of the processes still run after so many seconds; one that has ended and was not waited for does not."""
    _, left = psutil.wait_procs(processes, timeout=0)

    def gone() -> bool | None:
        return None if any(map(runs, left)) else True

    with suppress(AssertionError):
        until(gone, "processes to end", seconds)
    return [process for process in left if runs(process)]


def runs(process: psutil.Process) -> bool:
    """Whether a process has not ended."""
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def data_of(frame: str) -> dict[str, Any]:
    """The JSON of a frame."""
    return json.loads(frame.split("data: ", 1)[1])


def check_log(frames: list[str]) -> list[dict[str, Any]]:
    """The events of a whole stream: numbered 0 to n without a gap, one terminal event, at the end."""
    assert frames[-1] == "data: [DONE]"
    events = [data_of(frame) for frame in frames[:-1]]
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    ends = [event["type"] for event in events if event["type"].removeprefix("response.") in TERMINAL]
    assert ends == [events[-1]["type"]], ends
    for frame, event in zip(frames, events, strict=False):
        assert frame.startswith(f"event: {event['type']}\ndata: ")
    return events


def text_of(response: dict[str, Any]) -> str:
    """All text of a response object."""
    return "".join(part["text"] for item in response["output"] for part in item.get("content", ()))


def shown_by(response: dict[str, Any]) -> str:
    """All text and all arguments of a response object."""
    return "".join(item.get("arguments") or text_of({"output": [item]}) for item in response["output"])


def deltas_of(events: list[dict[str, Any]]) -> str:
    """All text that the stream showed, the current attempt's only."""
    text = ""
    for event in events:
        if event["type"] == "perdure:task.retried":
            text = ""
        elif event["type"] == "response.output_text.delta":
            text += event["delta"]
    return text
