"""What callers were told before the power went, and whether it still holds afterwards."""

import random
import threading
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import httpx

from tests.system.server import TERMINAL, Server, check_log, data_of, split_frames

CHANGING = {"status", "output", "usage", "completed_at", "error", "incomplete_details", "perdure"}
"""Fields of the response object that work on it changes; all others stay as they were answered."""
CALLERS = 4
CREATES_A_CALLER = 5


@dataclass
class Promise:
    """What was said of one response. `frames` are those that a reader has got, by their number."""

    fixed: dict[str, Any]
    frames: dict[int, str] = field(default_factory=dict[int, str])
    cancel: str | None = None
    end: str | None = None
    delete_sent: bool = False
    deleted: bool = False

    def saw(self, response: dict[str, Any]) -> None:
        """The object, in any answer."""
        if response["status"] in TERMINAL:
            self.end = response["status"]

    def broken(self, server: Server, ident: str) -> list[str]:
        """Which of it does not hold. Waits for the end of the response."""
        answer = server.http.get(f"/v1/responses/{ident}")
        if self.deleted or (self.delete_sent and answer.status_code == 404):
            return [] if answer.status_code == 404 else ["came back after its delete was answered"]
        if answer.status_code != 200:
            return [f"was accepted and is lost ({answer.status_code})"]
        frames = server.frames(ident)
        check_log(frames)
        response = server.get(f"/v1/responses/{ident}")
        return self._differences(response, dict(enumerate(frames[:-1])))

    def _differences(self, response: dict[str, Any], log: dict[int, str]) -> list[str]:
        found = [f"event {seq} was seen otherwise" for seq, frame in self.frames.items() if log.get(seq) != frame]
        if fixed_of(response) != self.fixed:
            found.append("is not the object that was answered")
        due = "cancelled" if self.cancel == "in_progress" else self.cancel
        if due not in (None, response["status"]):
            found.append(f"its cancel was answered with {self.cancel} and it ended {response['status']}")
        if self.end is not None and response["status"] != self.end:
            found.append(f"was seen {self.end} and is {response['status']}")
        return found


def fixed_of(response: dict[str, Any]) -> dict[str, Any]:
    """What of a response object never changes."""
    kept = {name: value for name, value in response.items() if name not in CHANGING}
    return kept | {"on_restart": response["perdure"]["on_restart"]}


class Crowd:
    """Callers of one life of a server. Each sees a few responses a part of their way, all of them at once.

    `promises` are what they were told, by the id; `creates` the creates that were sent. `enough` is set when they
    have got `signs` signs of life in all, or have nothing left to do.
    """

    def __init__(self, server: Server, seed: str, signs: int) -> None:
        self.promises: dict[str, Promise] = {}
        self.creates = 0
        self.told: Counter[str] = Counter()
        self.enough = threading.Event()
        self.faults: list[Exception] = []
        self.server = server
        self._signs = signs
        self._lock = threading.Lock()
        self._busy = CALLERS
        self._threads = [threading.Thread(target=self._call, args=(f"{seed}-{n}",)) for n in range(CALLERS)]

    def start(self) -> None:
        """Let them call."""
        for thread in self._threads:
            thread.start()

    def join(self) -> None:
        """Wait until each has noticed that nobody answers any more, or has done what he came for."""
        for thread in self._threads:
            thread.join()
        if self.faults:
            raise ExceptionGroup("callers met what nobody should", self.faults)

    def _call(self, seed: str) -> None:
        try:
            self._visit(random.Random(seed))
        except httpx.TransportError:
            pass  # the power has gone
        except Exception as error:  # noqa: BLE001 -- whoever waits for the callers raises it
            self.faults.append(error)
        finally:
            with self._lock:
                self._busy -= 1
                if not self._busy:
                    self.enough.set()

    def _visit(self, chance: random.Random) -> None:
        url, headers = self.server.url, {"Authorization": f"Bearer {self.server.token}"}
        with httpx.Client(base_url=url, headers=headers, timeout=60, verify=False, trust_env=False) as http:
            for _ in range(CREATES_A_CALLER):
                _Visit(self, http, chance).make()

    def sends(self) -> None:
        """A create goes out."""
        with self._lock:
            self.creates += 1

    def was_told(self, what: str) -> None:
        """A sign of life."""
        with self._lock:
            self.told[what] += 1
            if self.told.total() >= self._signs:
                self.enough.set()


class _Visit:
    """One response and what one caller does with it."""

    def __init__(self, crowd: Crowd, http: httpx.Client, chance: random.Random) -> None:
        self._crowd = crowd
        self._http = http
        self._chance = chance

    def make(self) -> None:
        chance = self._chance
        body: dict[str, Any] = {
            "model": self._crowd.server.model_name,
            "input": f"Tell me of {chance.randrange(1000)}.",
            "background": True,
            "max_output_tokens": chance.randrange(1, 60),
            "metadata": {"tag": str(chance.random())},
            "on_restart": chance.choice(("resume", "retry", "fail")),
        }
        ident, promise = self._create(body)
        ways = [self._look, self._follow, self._cancel, self._delete]
        for way in chance.sample(ways, chance.randrange(3)):
            way(ident, promise)
            if promise.deleted:
                return

    def _create(self, body: dict[str, Any]) -> tuple[str, Promise]:
        self._crowd.sends()
        response = self._http.post("/v1/responses", json=body).json()
        promise = self._crowd.promises[response["id"]] = Promise(fixed_of(response))
        self._crowd.was_told("create")
        return response["id"], promise

    def _look(self, ident: str, promise: Promise) -> None:
        promise.saw(self._http.get(f"/v1/responses/{ident}").json())
        self._crowd.was_told("look")

    def _follow(self, ident: str, promise: Promise) -> None:
        left = self._chance.choice((2, 5, 1_000))
        with self._http.stream("GET", f"/v1/responses/{ident}", params={"stream": "true"}) as answer:
            for frame in split_frames(answer):
                if frame == "data: [DONE]":
                    return
                event = data_of(frame)
                promise.frames[event["sequence_number"]] = frame
                promise.saw(event.get("response", {"status": ""}))
                self._crowd.was_told("event")
                left -= 1
                if left == 0:
                    return

    def _cancel(self, ident: str, promise: Promise) -> None:
        response = self._http.post(f"/v1/responses/{ident}/cancel").json()
        promise.cancel = response["status"]
        promise.saw(response)
        self._crowd.was_told("cancel")

    def _delete(self, ident: str, promise: Promise) -> None:
        promise.delete_sent = True
        promise.deleted = self._http.delete(f"/v1/responses/{ident}").json()["deleted"]
        self._crowd.was_told("delete")
