"""Cancels and deletes over HTTP against texts that end, against each other, and against the end of the process.

Several callers at once. What they were told is put in one order of moments, and each response's history is checked
against the model of one that does one thing at a time.
"""

import random
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from perdure.domain.recovery import OnRestart
from perdure.testing.linearizability import UNKNOWN, History, Operation, linearized
from tests.system.server import Server, check_log, freeze, thaw
from tests.unit.engine.histories import DONE, ENDS, NOT_FOUND, Call, response

CALLERS = 6
WAVE = 12
TOKENS_MAX = 40
ROUTES = {Call.CANCEL_AND_SHOW: ("POST", "/cancel"), Call.DELETE: ("DELETE", ""), Call.RESPONSE: ("GET", "")}
CANCEL, DELETE, LOOK = Call.CANCEL_AND_SHOW, Call.DELETE, Call.RESPONSE


class Callers:
    """Those who call one life of the service, and what they note; `finals` are finished responses as seen."""

    def __init__(self, server: Server, history: History[Call], finals: defaultdict[str, list[Any]]) -> None:
        self._server = server
        self._history = history
        self._finals = finals
        self._http = httpx.Client(
            base_url=f"{server.url}/v1/responses",
            headers={"Authorization": f"Bearer {server.token}"},
            timeout=60,
            trust_env=False,
        )

    def create(self, tokens: int) -> str:
        """Have a response accepted."""
        noted = self._history.begin(Call.CREATE)
        ident = str(self._server.create(max_output_tokens=tokens, seed=tokens)["id"])
        self._history.file(noted, ident)
        self._history.end(noted, DONE)
        return ident

    def call(self, asked: tuple[Call, str]) -> object:
        """Make a call; what the caller learnt from its answer."""
        call, ident = asked
        method, suffix = ROUTES[call]
        noted = self._history.begin(call, ident)
        try:
            answer = self._http.request(method, f"/{ident}{suffix}")
        except httpx.TransportError:
            self._history.end(noted)
            return UNKNOWN
        told = self._read(call, ident, answer)
        if call is CANCEL and told == NOT_FOUND:
            self._history.end(noted)  # it may have been made, and the response deleted before it was shown
        else:
            self._history.end(noted, told)
        return told

    def close(self) -> None:
        """Hang up."""
        self._http.close()

    def _read(self, call: Call, ident: str, answer: httpx.Response) -> str:
        if answer.status_code == 404:
            return NOT_FOUND
        assert answer.status_code == 200, answer.text
        if call is Call.DELETE:
            return DONE
        seen = answer.json()
        if seen["status"] in ENDS:
            self._finals[ident].append(seen)
        return str(seen["status"])


class Race:
    """Waves of responses, the callers of one life of the service after the other, and what they were told."""

    def __init__(self, server: Server, seed: int) -> None:
        self.server = server
        self.chance = random.Random(seed)
        self.history = History[Call]()
        self.finals: defaultdict[str, list[Any]] = defaultdict(list)
        self.cancels: dict[str, list[object]] = defaultdict(list)
        self.callers = Callers(server, self.history, self.finals)
        self.restarted: Operation[Call] | None = None
        self._child: psutil.Process | None = None

    def wave(self) -> list[str]:
        """Some responses of different lengths, none of them done before the calls begin."""
        self._child = self.server.engine_child()
        freeze(self._child)
        return [self.callers.create(self.chance.randrange(1, TOKENS_MAX)) for _ in range(WAVE)]

    def calls(self, wanted: Mapping[str, Sequence[Call]]) -> list[tuple[Call, str]]:
        """Calls for each response, in some order in which those for one come close together."""
        places = [
            (number + self.chance.random() * 4, kind, ident)
            for number, (ident, kinds) in enumerate(wanted.items())
            for kind in kinds
        ]
        return [(kind, ident) for _, kind, ident in sorted(places)]

    def cancel_queued(self, ident: str) -> None:
        """Cancel one for which no slot is free: there is always a cancel that comes in time."""
        self.cancels[ident].append(self.callers.call((CANCEL, ident)))

    def made(self, calls: Sequence[tuple[Call, str]], kill_after: int | None = None) -> None:
        """Make the calls, several at once. The process may be killed after so many of them."""
        if self._child is not None:
            thaw(self._child)
        with ThreadPoolExecutor(CALLERS) as pool:
            results = pool.map(self.callers.call, calls)
            for number, ((call, ident), told) in enumerate(zip(calls, results, strict=True)):
                if number == kill_after:
                    self.restarted = self.history.begin(Call.RESTART, *self.history.by_key)
                    self.server.kill()
                if call is CANCEL:
                    self.cancels[ident].append(told)

    def restart(self) -> None:
        """Callers of the next life."""
        self.callers.close()
        self.server.start()
        if self.restarted is not None:
            self.history.end(self.restarted, DONE)
        self.callers = Callers(self.server, self.history, self.finals)

    def check(self, ident: str) -> str:
        """How a response has ended: everything that was told of it agrees."""
        final = NOT_FOUND
        if self.callers.call((LOOK, ident)) != NOT_FOUND:
            ended = self.server.ended(ident)
            events = check_log(self.server.frames(ident))
            final = ended["status"]
            assert events[-1]["type"] == f"response.{final}"
            assert events[-1]["response"] == ended
            assert self.server.task(ident)["status"] == final
            assert self.callers.call((LOOK, ident)) == final
            assert set(self.cancels[ident]) & ENDS <= {final}
        assert all(each == self.finals[ident][0] for each in self.finals[ident])
        linearized(self.history.by_key[ident], response(OnRestart.RESUME))
        return final


@pytest.mark.proves("P5", "C-03", "C-04", "C-23")
def test_cancels_and_deletes_of_many_callers(tmp_path: Path, tiny_model: Path) -> None:
    """Sixty cancels and twenty deletes: one end each, all are told the same, and what is deleted stays away."""
    ends = Counter[str]()
    with Server(tmp_path / "data", tiny_model, slots=4).start() as server:
        for seed in range(5):
            race = Race(server, seed)
            idents = race.wave()
            wanted = {each: [LOOK, CANCEL, LOOK] for each in idents}
            for each in idents[::3]:
                wanted[each] += [DELETE, LOOK, LOOK]
            # There is always a cancel that comes too late, too.
            late = {idents[-2]: wanted.pop(idents[-2])}
            race.cancel_queued(idents[-1])
            race.made(race.calls(wanted))
            server.ended(idents[-2])
            race.made(race.calls(late))
            ends.update(race.check(ident) for ident in idents)
            race.callers.close()
        assert server.terminate() == 0
        assert '"level": "error"' not in server.errors.read_text()
    assert set(ends) == {"cancelled", "incomplete", NOT_FOUND}, ends


@pytest.mark.proves("P5", "P8", "C-03", "C-04")
def test_cancels_while_the_process_is_killed(tmp_path: Path, tiny_model: Path) -> None:
    """A cancel that was answered stays; one that was cut off was made or not; one after the restart works."""
    ends = Counter[str]()
    cut_off = 0
    with Server(tmp_path / "data", tiny_model, slots=4).start() as server:
        for seed in range(4):
            race = Race(server, seed)
            idents = race.wave()
            calls = race.calls(dict.fromkeys(idents[:-4], (LOOK, CANCEL)))
            race.cancel_queued(idents[-3])
            race.made(calls, kill_after=race.chance.randrange(len(calls) - 6))
            race.restart()
            cut_off += sum(told is UNKNOWN for each in race.cancels.values() for told in each)
            race.made(race.calls(dict.fromkeys(idents[:-2], (CANCEL, LOOK))))
            ends.update(race.check(ident) for ident in idents)
            race.callers.close()
        assert server.terminate() == 0
    assert set(ends) == {"cancelled", "incomplete"}, ends
    assert cut_off
