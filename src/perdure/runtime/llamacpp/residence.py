"""Which models are in memory. Pure: it is told what happens, and says what is to be done.

A model is in use from the moment at which somebody gets it until the last one has left, and is not unloaded
meanwhile. Who finds no room waits in line: for the first of the line the memory is taken from models that are idle,
the least recently used first, then from those in use, the longest loaded first. These end what they have begun and
take nobody new: newcomers stand in line behind. So of models that do not fit side by side each has its turn, which
lasts as long as what was begun when the next one came, and each load serves all who waited for it.
"""

from dataclasses import dataclass, field
from enum import Enum, auto
from typing import NamedTuple


class Place(Enum):
    """Where a model is. Its memory counts until its process is gone."""

    OUT = auto()
    IN = auto()
    LEAVING = auto()


class Moves(NamedTuple):
    """What is to be done now: the models to load, and those to unload."""

    load: list[str]
    unload: list[str]


@dataclass(slots=True)
class _Model:
    """`since` orders loads; `idle_since` is when the last user left, in seconds."""

    need: int = 0
    place: Place = Place.OUT
    users: set[str] = field(default_factory=set[str])
    waiting: set[str] = field(default_factory=set[str])
    since: int = 0
    idle_since: float = 0.0


class Residence:
    """The memory of all models together, `bytes_max` of it. An idle model goes after `idle_seconds`; None: only when
    another needs the room. Times are seconds of any clock that never steps.
    """

    def __init__(self, bytes_max: int, idle_seconds: float | None) -> None:
        self._bytes_max = bytes_max
        self._idle_seconds = idle_seconds
        self._models: dict[str, _Model] = {}
        self._loads = 0

    def want(self, name: str, user: str, need: int) -> None:
        """Somebody needs the model, which takes `need` bytes, at most `bytes_max`: the next `moves` looks for room.
        To ask again changes nothing."""
        model = self._model(name)
        model.need = need
        if user in model.users or user in model.waiting:
            return
        if not model.waiting:  # the order of the models is that of the line: to its end
            self._models[name] = self._models.pop(name)
        model.waiting.add(user)

    def leave(self, user: str, now: float) -> None:
        """The user needs no model any more."""
        for model in self._models.values():
            model.waiting.discard(user)
            if user in model.users:
                model.users.remove(user)
                model.idle_since = now

    def begin(self, name: str, need: int, now: float) -> bool:
        """Have a model in memory for whoever may come, if there is room and nobody waits; whether it is to be loaded
        now."""
        model = self._model(name)
        if model.place is not Place.OUT or self._line() or self._used() + need > self._bytes_max:
            return False
        model.need = need
        self._enter(model, now)
        return True

    def fail(self, name: str) -> bool:
        """The model cannot be kept in memory; whether it was there, and is to be unloaded now. Who used it has been
        told, and asks again if he likes."""
        model = self._model(name)
        if model.place is not Place.IN:
            return False
        model.place = Place.LEAVING
        model.users.clear()
        return True

    def gone(self, name: str) -> None:
        """The process of the model has ended: its memory is free."""
        self._model(name).place = Place.OUT

    def has(self, name: str, user: str) -> bool:
        """Whether the model is in memory for this user."""
        return user in self._model(name).users

    def is_in(self, name: str) -> bool:
        """Whether the model is in memory, or on its way there."""
        return self._model(name).place is Place.IN

    def waiting(self, name: str) -> int:
        """How many wait for room."""
        return len(self._model(name).waiting)

    def moves(self, now: float) -> Moves:
        """What is to be done after anything has happened, time included. It counts as done from here on."""
        load: list[str] = []
        unload = [name for name, model in self._models.items() if self._is_idle_too_long(model, now)]
        for name in unload:
            self._models[name].place = Place.LEAVING
        for name in self._line():
            if not self._has_room(name):
                unload += self._make_way(name)
                break
            model = self._models[name]
            if model.place is Place.OUT:
                self._enter(model, now)
                load.append(name)
            self._admit(model)
        return Moves(load, unload)

    # How.

    def _model(self, name: str) -> _Model:
        return self._models.setdefault(name, _Model())

    def _line(self) -> list[str]:
        """The models that somebody waits for, the one first that has been waited for longest."""
        return [name for name, model in self._models.items() if model.waiting]

    def _used(self) -> int:
        return sum(model.need for model in self._models.values() if model.place is not Place.OUT)

    def _has_room(self, name: str) -> bool:
        model = self._models[name]
        if model.place is Place.OUT:
            return self._used() + model.need <= self._bytes_max
        return model.place is Place.IN

    def _enter(self, model: _Model, now: float) -> None:
        self._loads += 1
        model.place, model.since, model.idle_since = Place.IN, self._loads, now

    def _admit(self, model: _Model) -> None:
        model.users |= model.waiting
        model.waiting.clear()

    def _is_idle_too_long(self, model: _Model, now: float) -> bool:
        idle = model.place is Place.IN and not model.users and not model.waiting
        return idle and self._idle_seconds is not None and now - model.idle_since >= self._idle_seconds

    def _make_way(self, first: str) -> list[str]:
        """Make room for the first of the line; the models to unload for it. Whoever waits for one that may stay need
        not wait."""
        going = self._in_the_way(first)
        for name in self._line():
            if name not in going and self._models[name].place is Place.IN:
                self._admit(self._models[name])
        idle = [name for name in going if not self._models[name].users]
        for name in idle:
            self._models[name].place = Place.LEAVING
        return idle

    def _in_the_way(self, first: str) -> list[str]:
        """The models whose memory the first of the line needs, in the order in which they go."""
        leaving = sum(model.need for model in self._models.values() if model.place is Place.LEAVING)
        lacking = self._used() - leaving + self._models[first].need - self._bytes_max
        if self._models[first].place is Place.LEAVING:
            return []  # it comes back as soon as it is gone
        there = [name for name, model in self._models.items() if model.place is Place.IN]
        going: list[str] = []
        for name in sorted(there, key=self._rank):
            if lacking <= 0:
                break
            going.append(name)
            lacking -= self._models[name].need
        return going

    def _rank(self, name: str) -> tuple[bool, float]:
        model = self._models[name]
        return (True, model.since) if model.users else (False, model.idle_since)
