"""The promise, shown: a server is killed in the middle of a sentence, and the reader never notices a seam.

It serves the bundled model in a folder of its own, asks for a text twice with the same seed, lets the first run in
peace, kills the server under the second one (SIGKILL: no goodbye, no clean-up), starts it again, reads on from the
last event it has seen, and compares. Exits with 1 when anything differs.
"""

import os
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import openai

PROMPT = "Tell me a short story about a lighthouse keeper who finds a letter in a bottle."
TOKENS = 160
KILL_AFTER = 60
SEED = 8


class Server:
    """`perdure serve` on a free port."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.start()

    def start(self) -> None:
        """Start it and wait for the line that says where it listens."""
        command = [str(Path(sys.executable).parent / "perdure"), "serve", "--data", str(self.folder), "--port", "0"]
        with (self.folder / "server.log").open("a") as log:
            self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line.startswith("Perdure listens on "):
            sys.exit(f"The server did not start:\n{(self.folder / 'server.log').read_text()}")
        token = (self.folder / "owner.token").read_text().strip()
        self.client = openai.OpenAI(base_url=f"{line.split()[3]}/v1", api_key=token, max_retries=0)

    def end(self, how: signal.Signals) -> int:
        """Send a signal and wait for the end."""
        self.process.send_signal(how)
        code = self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()
        return code


@dataclass
class Reader:
    """What somebody who follows the stream has seen."""

    numbers: list[int] = field(default_factory=list[int])
    text: str = ""
    pieces: int = 0
    end: str = ""

    def see(self, event: Any) -> None:
        """Take in one event, and show its text."""
        self.numbers.append(event.sequence_number)
        if event.type == "response.output_text.delta":
            self.text += event.delta
            self.pieces += 1
            print(event.delta, end="", flush=True)
        if event.type in ("response.completed", "response.incomplete", "response.failed", "response.cancelled"):
            self.end = event.type


def ask(server: Server) -> str:
    """Start a background response that resumes after a restart; returns its id."""
    response = server.client.responses.create(
        model="smollm2-135m-instruct",
        input=PROMPT,
        background=True,
        max_output_tokens=TOKENS,
        temperature=0.7,
        extra_body={"seed": SEED, "on_restart": "resume"},
    )
    return response.id


def follow(server: Server, response_id: str, reader: Reader, pieces_max: int | None = None) -> None:
    """Read from where the reader is, to the end or until so many pieces of text were seen."""
    cursor: dict[str, Any] = {"starting_after": reader.numbers[-1]} if reader.numbers else {}
    with server.client.responses.retrieve(response_id, stream=True, **cursor) as stream:
        for event in stream:
            reader.see(event)
            if pieces_max is not None and reader.pieces >= pieces_max:
                return


def main() -> int:
    """Show it."""
    with tempfile.TemporaryDirectory(prefix="perdure-demo-") as folder:
        server = Server(Path(folder))
        try:
            return show(server)
        finally:
            if server.process.poll() is None:
                server.end(signal.SIGTERM)


def show(server: Server) -> int:
    """The two runs and the comparison."""
    print("1. The undisturbed run, with the same seed:\n")
    undisturbed = Reader()
    follow(server, ask(server), undisturbed)

    print("\n\n2. The same request again, and the server killed in the middle of a sentence:\n")
    reader, response_id = Reader(), ask(server)
    follow(server, response_id, reader, KILL_AFTER)
    server.end(signal.SIGKILL)
    seen, killed_at = len(reader.numbers), time.monotonic()
    print(
        "\n\n   --- kill -9; the server is gone; starting it again, reading on after event",
        reader.numbers[-1],
        "---\n",
    )
    server.start()
    listening = time.monotonic() - killed_at
    follow(server, response_id, reader)

    final = server.client.responses.retrieve(response_id)
    checks = {
        "same text as the undisturbed run": reader.text == undisturbed.text == final.output_text,
        "events numbered without gap or repeat": reader.numbers == list(range(len(reader.numbers))),
        "one terminal event, the same": reader.end == undisturbed.end != "",
        "the server stops in order": server.end(signal.SIGTERM) == os.EX_OK,
    }
    usage = final.usage
    tokens = usage.output_tokens if usage else 0
    print(f"\n\n   {tokens} tokens, {len(reader.numbers)} events, {len(reader.text)} characters")
    print(f"   killed after event {seen - 1}; the server listened again after {listening:.1f} s")
    for claim, holds in checks.items():
        print(f"   {'yes' if holds else 'NO '}  {claim}")
    return 0 if all(checks.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
