"""Whether what clients saw of one thing can be told as a story in which one step follows the other.

A history is a list of operations, each with the moment at which it was asked for and the moment at which it was
answered. It is linearizable if every operation can be given one instant between the two, so that the operations, made
in the order of these instants on a thing that does one at a time, are answered as they were. The search is that of
Wing and Gong, with Lowe's memory of what has been tried: a state is entered once for each set of operations made so
far. It is meant for many short histories: one for each response, or for each key.

What the thing does is given as a `Model`: for a state and a call, the answers that are right and the states that
follow. A model may also move by itself (`drift`), as a response does that a machine works on.

An operation without an answer (`UNKNOWN`: its caller was cut off) was made at some instant before the end of its
time, or never.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import count
from typing import Generic, TypeVar

S = TypeVar("S", bound=Hashable)
C = TypeVar("C")


class _Answer(Enum):
    UNKNOWN = "unknown"


UNKNOWN = _Answer.UNKNOWN


@dataclass
class Operation(Generic[C]):
    """A call and what came of it. Moments are numbers that grow; two operations with `a.answered < b.invoked` were
    made one after the other, all others at the same time."""

    call: C
    invoked: float
    answered: float = math.inf
    answer: object = UNKNOWN


def _still(_state: object) -> tuple[()]:
    return ()


@dataclass(frozen=True)
class Model(Generic[S, C]):
    """A thing that does one operation at a time.

    `answers` gives each right answer to a call in a state, with the state after it; none if the call cannot be made
    there at all. `drift` gives the states that the thing may come to by itself, one step away.
    """

    start: S
    answers: Callable[[S, C], Iterable[tuple[object, S]]]
    drift: Callable[[S], Iterable[S]] = _still


class NotLinearizable(AssertionError):
    """No order of the operations explains their answers."""


class History(Generic[C]):
    """Notes operations as they happen, in one order of moments, by the key of the thing that they are about. Tasks
    and threads may share it."""

    def __init__(self) -> None:
        self._moments = count()
        self._by_key: defaultdict[Hashable, list[Operation[C]]] = defaultdict(list)

    @property
    def by_key(self) -> Mapping[Hashable, Sequence[Operation[C]]]:
        """The histories so far."""
        return self._by_key

    def moment(self) -> int:
        """This moment."""
        return next(self._moments)

    def begin(self, call: C, *keys: Hashable) -> Operation[C]:
        """Note that a call is made now. A key that only the answer tells is given by `file`."""
        operation = Operation(call, self.moment())
        for key in keys:
            self.file(operation, key)
        return operation

    def end(self, operation: Operation[C], answer: object = UNKNOWN) -> None:
        """Note that it was answered now, or that its time is over without an answer."""
        operation.answered, operation.answer = self.moment(), answer

    def file(self, operation: Operation[C], key: Hashable) -> None:
        """Say what an operation was about."""
        self._by_key[key].append(operation)


def linearized(history: Iterable[Operation[C]], model: Model[S, C]) -> list[Operation[C]]:
    """The operations in an order that explains their answers. Raises `NotLinearizable` when there is none."""
    search = _Search(sorted(history, key=lambda each: each.invoked), model)
    return search.run()


@dataclass(frozen=True)
class _Point(Generic[S]):
    """A place of the search: which operations have been made (bits, by their order), and the state they led to."""

    made: int
    state: S


class _Search(Generic[S, C]):
    def __init__(self, history: list[Operation[C]], model: Model[S, C]) -> None:
        self._history = history
        self._model = model

    def run(self) -> list[Operation[C]]:
        first = _Point(0, self._model.start)
        came: dict[_Point[S], tuple[_Point[S], Operation[C]] | None] = {first: None}
        waiting = [first]
        while waiting:
            here = waiting.pop()
            if here.made.bit_count() == len(self._history):
                return _way_to(here, came)
            for there, operation in self._steps(here):
                if there not in came:
                    came[there] = came[here] if operation is None else (here, operation)
                    waiting.append(there)
        raise NotLinearizable(self._story(came))

    def _steps(self, here: _Point[S]) -> Iterator[tuple[_Point[S], Operation[C] | None]]:
        for state in self._model.drift(here.state):
            yield _Point(here.made, state), None
        left = [number for number in range(len(self._history)) if not here.made >> number & 1]
        # Whoever was asked for after somebody else had his answer cannot have been made before him.
        horizon = min(self._history[number].answered for number in left)
        for number in left:
            operation = self._history[number]
            if operation.invoked < horizon:
                for state in self._after(here.state, operation):
                    yield _Point(here.made | 1 << number, state), operation

    def _after(self, state: S, operation: Operation[C]) -> Iterator[S]:
        if operation.answer is UNKNOWN:
            yield state  # it was never made
        for answer, after in self._model.answers(state, operation.call):
            if operation.answer in (answer, UNKNOWN):
                yield after

    def _story(self, came: Iterable[_Point[S]]) -> str:
        furthest = max(came, key=lambda point: point.made.bit_count())
        marks = [" " if furthest.made >> number & 1 else "!" for number in range(len(self._history))]
        lines = [
            f"{mark} {each.invoked}-{each.answered}: {each.call}, {each.answer}"
            for mark, each in zip(marks, self._history, strict=True)
        ]
        states = sorted({str(point.state) for point in came if point.made == furthest.made})
        return "\n".join([f"no order explains what is marked with ! (it stood at {' or '.join(states)})", *lines])


def _way_to(point: _Point[S], came: Mapping[_Point[S], tuple[_Point[S], Operation[C]] | None]) -> list[Operation[C]]:
    way: list[Operation[C]] = []
    while (step := came[point]) is not None:
        point, operation = step
        way.append(operation)
    return way[::-1]
