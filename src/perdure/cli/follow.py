"""`perdure follow`, and the reading that `perdure ask` does as well."""

import json
from typing import Any, Protocol

from perdure.cli.contact import Folder
from perdure.cli.failures import EXIT_DONE, EXIT_INTERRUPTED, EXIT_NOT_COMPLETED, CommandFailed, Unknown
from perdure.cli.output import Output
from perdure.cli.stream import Event, Events
from perdure.domain import events
from perdure.domain.recovery import OnRestart


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
        self, folder: Folder, response_id: str, *, after: int, as_json: bool, wait_seconds: float | None
    ) -> None:
        self._folder = folder
        self._id = response_id
        self._output = Output()
        self._shown: Shown = Lines(self._output) if as_json else Text(self._output)
        self._events = Events(folder, response_id, after, wait_seconds, self._output.note)
        self._waits = True
        self._background = False
        self._response: dict[str, Any] | None = None

    def run(self) -> int:
        """Read to the end; returns the exit code."""
        try:
            for event in self._events:
                self._take(event)
            self._shown.close()
            return self._conclude(self._response or self._folder.service().get(f"/v1/responses/{self._id}").json())
        except Unknown as gone:
            raise Unknown(f"{gone} {self._ways_back()}") from None
        except KeyboardInterrupt:
            kept = "; the work goes on" if self._background else ""
            self._output.note(f"Left {self._id}{kept}. {self._ways_back()}")
            return EXIT_INTERRUPTED

    def _ways_back(self) -> str:
        follow, cancel = (self._folder.command(f"{word} {self._id}") for word in ("follow", "cancel"))
        return f"{follow} shows it, {cancel} ends it."

    def _take(self, event: Event | None) -> None:
        if event is None:
            if self._waits:
                self._waits = False
                self._tell_what_it_waits_for()
            return
        if event.type in (events.IN_PROGRESS, events.TEXT_DELTA):
            self._waits = False
        self._shown.take(event)
        if response := event.data.get("response"):
            self._background = response["background"]
            self._response = response if event.type in events.TERMINAL_TYPES else None

    def _tell_what_it_waits_for(self) -> None:
        """Nothing has come for a while: say why, as far as the service knows."""
        try:
            service = self._folder.service()
            task = service.get(f"/v1/tasks/{self._id.replace('resp_', 'task_')}").json()
            ready = json.loads(service.get("/readyz").body)
        except (CommandFailed, ValueError):  # it is told once it is back
            return
        place = f", place {task['queue_position']} in the queue" if task["queue_position"] else ""
        reason = f": {ready['reason']}" if ready.get("reason") else ""
        self._output.note(f"{self._id} is {task['status']}{place}{reason}")

    def _conclude(self, response: dict[str, Any]) -> int:
        status = response["status"]
        if status == "completed":
            return EXIT_DONE
        reason = ""
        if error := response["error"]:
            reason = ": " + " ".join(str(error[key]) for key in ("code", "message", "detail") if error.get(key))
        elif details := response["incomplete_details"]:
            reason = f": {details['reason']}, after {response['usage']['output_tokens']} tokens"
        self._output.note(f"{self._id} ended {status}{reason}")
        return EXIT_NOT_COMPLETED


def follow(folder: Folder, response_id: str, *, after: int, as_json: bool, wait_seconds: float | None) -> int:
    """Show a response from an event on, live to its end."""
    return Watch(folder, response_id, after=after, as_json=as_json, wait_seconds=wait_seconds).run()
