"""`perdure follow`, and the reading that `perdure ask` does as well."""

import dataclasses
import json
from typing import Any, Protocol

from perdure.cli.contact import Folder
from perdure.cli.failures import EXIT_DONE, EXIT_NOT_COMPLETED, CommandFailed, OutputFailed, Unknown
from perdure.cli.output import Output, counted, place
from perdure.cli.signals import listen
from perdure.cli.stream import Event, Events
from perdure.domain import events
from perdure.domain.lifecycle import TERMINAL
from perdure.domain.recovery import OnRestart

PARTING_SECONDS = 1.0  # nobody who leaves waits longer


class Shown(Protocol):
    """A way to show events."""

    def take(self, event: Event) -> None:
        """Show an event."""
        ...

    def close(self) -> None:
        """The last one was there."""
        ...


class Lines:
    """Each event as a line of JSON."""

    def __init__(self, output: Output) -> None:
        self._output = output

    def take(self, event: Event) -> None:
        """Write its line."""
        self._output.json(event.line)

    def close(self) -> None:
        """Nothing is left to write."""


class Text:
    """The text alone.

    With `retry` a restart makes void what was written so far. A terminal is told so, and the text starts anew below.
    A file or a program cannot be told: there the text is held until it is whole.
    """

    def __init__(self, output: Output) -> None:
        self._output = output
        self._held: list[str] | None = None

    def take(self, event: Event) -> None:
        """Write what text it brings."""
        if event.type == events.CREATED and not self._output.terminal:
            retry = event.data["response"]["perdure"]["on_restart"] == OnRestart.RETRY
            self._held = [] if retry else None
        elif event.type == events.TEXT_DELTA and self._held is None:
            self._output.text(event.data["delta"])
        elif event.type == events.TEXT_DELTA and self._held is not None:
            self._held.append(event.data["delta"])
        elif event.type == events.RETRIED:
            self._start_anew(event)

    def close(self) -> None:
        """Write what was held, and end the line."""
        for piece in self._held or ():
            self._output.text(piece)
        self._output.fresh_line()

    def _start_anew(self, event: Event) -> None:
        if self._held is not None:
            self._held.clear()
        else:
            self._output.fresh_line()
            self._output.note(
                f"The service was restarted and the text starts anew (attempt {event.data['attempt']}); "
                "what was written so far is void."
            )


class Watch:
    """Somebody who reads a response to its end."""

    def __init__(
        self,
        folder: Folder,
        response_id: str,
        *,
        after: int,
        as_json: bool,
        wait_seconds: float | None,
        background: bool = False,
    ) -> None:
        self._folder = folder
        self._id = response_id
        self._after = after
        self._output = Output()
        self._shown: Shown = Lines(self._output) if as_json else Text(self._output)
        self._events = Events(folder, response_id, after, wait_seconds, self._output.note)
        self._begun = False
        self._told = ""  # why nothing comes
        self._background = background
        self._response: dict[str, Any] | None = None

    def run(self) -> int:
        """Read to the end; returns the exit code."""
        try:
            for event in self._events:
                self._take(event)
            self._shown.close()
            return self._conclude(self._response or self._ended_before())
        except Unknown as gone:
            raise Unknown(f"{gone} {ways_back(self._folder, self._id)}") from None
        except OutputFailed as failed:
            raise Unknown(f"{failed} {self._left()}") from None
        except (KeyboardInterrupt, BrokenPipeError):
            self._output.note(self._left())
            raise

    def _left(self) -> str:
        if self._response or self._ended_meanwhile():
            return f"Left {self._id}, which has ended. {self._folder.command(f'follow {self._id}')} shows it."
        return left(self._folder, self._id, kept=self._background, away=self._events.away)

    def _ended_meanwhile(self) -> bool:
        """Whether it has, as far as the service tells that at once: reading lags behind, above all a `follow`."""
        try:
            service = dataclasses.replace(self._folder.service(), answer_seconds=PARTING_SECONDS)
            task = service.get(f"/v1/tasks/{self._id.replace('resp_', 'task_')}").json()
        except CommandFailed:
            return False
        return task["status"] in TERMINAL

    def _ended_before(self) -> dict[str, Any]:
        if self._after >= 0:
            self._output.note(f"There is nothing after event {self._after} of {self._id}.")
        return self._folder.service().get(f"/v1/responses/{self._id}").json()

    def _take(self, event: Event | None) -> None:
        if event is None:
            self._tell_what_it_waits_for()
            return
        if event.type in (events.IN_PROGRESS, events.TEXT_DELTA):
            self._begun, self._told = True, ""
        if response := event.data.get("response"):
            self._background = response["background"]
            self._response = response if event.type in events.TERMINAL_TYPES else None
        self._shown.take(event)

    def _tell_what_it_waits_for(self) -> None:
        """Nothing has come for a while: say why, as far as the service knows, and again when the reason is another.

        A text that is being written may be slow, which needs no word; it is held where the service is not ready.
        """
        try:
            service = self._folder.service()
            reason = json.loads(service.get("/readyz").body).get("reason")
            if self._begun and not reason:
                return
            task = service.get(f"/v1/tasks/{self._id.replace('resp_', 'task_')}").json()
        except (CommandFailed, ValueError):  # it is told once it is back
            return
        waits = "" if task["queue_position"] is None else f", {place(task['queue_position'])} in the queue"
        because = f": {reason}" if reason else ""
        if (why := task["status"] + because) != self._told:
            self._told = why
            self._output.note(f"{self._id} is {task['status']}{waits}{because}")

    def _conclude(self, response: dict[str, Any]) -> int:
        if response["status"] == "completed":
            return EXIT_DONE
        self._output.note(f"{self._id} ended {response['status']}{_reason(response)}")
        return EXIT_NOT_COMPLETED


def _reason(response: dict[str, Any]) -> str:
    """Why a response did not complete."""
    if error := response["error"]:
        told = " ".join(str(error[key]) for key in ("message", "detail") if error.get(key))
        return f": {error['code']}: {told}"
    if not (details := response["incomplete_details"]):
        return ""
    usage, most = response["usage"], response["max_output_tokens"]
    written = usage["output_tokens"]
    if most is not None and written >= most:
        return f": {details['reason']}, after {counted(written, 'token')}"
    return (
        f": the model's window is full, with {counted(usage['input_tokens'], 'token')} of input and {written:,} of "
        "answer. A shorter question leaves more room, as does a service with a larger PERDURE_WINDOW_TOKENS."
    )


def left(folder: Folder, response_id: str, *, kept: bool, away: bool = False) -> str:
    """The line for somebody who leaves before the end."""
    goes_on = "; the work goes on" + (" when the service is back" if away else "") if kept else ""
    return f"Left {response_id}{goes_on}. {ways_back(folder, response_id)}"


def ways_back(folder: Folder, response_id: str) -> str:
    """How to see more of it, and how to end it."""
    follow, cancel = (folder.command(f"{word} {response_id}") for word in ("follow", "cancel"))
    return f"{follow} shows it, {cancel} ends it."


def follow(folder: Folder, response_id: str, *, after: int, as_json: bool, wait_seconds: float | None) -> int:
    """Show a response from an event on, live to its end."""
    listen()
    return Watch(folder, response_id, after=after, as_json=as_json, wait_seconds=wait_seconds).run()
