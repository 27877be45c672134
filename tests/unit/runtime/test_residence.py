"""Which models are in memory: who gets room, who makes room, and when."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.runtime.llamacpp.residence import Moves, Residence

NEEDS = {"a": 4, "b": 5, "c": 6}
ROOM = 10
NOTHING = Moves([], [])


def start(bytes_max: int = ROOM, idle_seconds: float | None = None) -> Residence:
    return Residence(bytes_max, idle_seconds)


def ask(residence: Residence, name: str, user: str, now: float = 0) -> Moves:
    residence.want(name, user, NEEDS[name])
    return residence.moves(now)


def leave(residence: Residence, user: str, now: float = 0) -> Moves:
    residence.leave(user, now)
    return residence.moves(now)


def gone(residence: Residence, name: str, now: float = 0) -> Moves:
    residence.gone(name)
    return residence.moves(now)


def test_a_model_is_loaded_for_the_first_who_needs_it() -> None:
    """And once: the next one finds it there."""
    residence = start()
    assert ask(residence, "a", "one") == (["a"], [])
    assert ask(residence, "a", "two") == NOTHING
    assert residence.has("a", "one")
    assert residence.has("a", "two")


def test_models_that_fit_stay_side_by_side() -> None:
    """Nothing goes while there is room."""
    residence = start()
    assert ask(residence, "a", "one") == (["a"], [])
    leave(residence, "one")
    assert ask(residence, "b", "two") == (["b"], [])
    assert residence.is_in("a")


def test_the_least_recently_used_idle_model_goes_first_and_no_more_than_needed() -> None:
    """`a` was loaded last and used first."""
    residence = start()
    ask(residence, "b", "one")
    ask(residence, "a", "two")
    leave(residence, "two", now=1)
    leave(residence, "one", now=2)
    assert ask(residence, "c", "three", now=3) == ([], ["a", "b"])
    assert not residence.has("c", "three")
    assert gone(residence, "b") == NOTHING._replace(load=["c"])
    assert residence.has("c", "three")

    residence = start(bytes_max=11)
    ask(residence, "b", "one")
    ask(residence, "a", "two")
    leave(residence, "one", now=1)
    leave(residence, "two", now=2)
    assert ask(residence, "c", "three", now=3) == ([], ["b"])
    assert residence.is_in("a")


def test_memory_is_free_only_when_the_process_is_gone() -> None:
    """Until then the next one is not loaded."""
    residence = start()
    ask(residence, "c", "one")
    leave(residence, "one")
    assert ask(residence, "b", "two") == ([], ["c"])
    assert residence.moves(9) == NOTHING
    assert ask(residence, "b", "three") == NOTHING
    assert gone(residence, "c") == (["b"], [])
    assert residence.has("b", "two")
    assert residence.has("b", "three")


def test_a_model_in_use_is_not_unloaded_and_takes_nobody_new_while_another_waits_for_its_memory() -> None:
    """They have their turns, however many come."""
    residence = start()
    ask(residence, "c", "old")
    assert ask(residence, "b", "waiting") == NOTHING
    assert ask(residence, "c", "newcomer") == NOTHING
    assert not residence.has("c", "newcomer")
    assert residence.waiting("b") == residence.waiting("c") == 1
    assert leave(residence, "old") == ([], ["c"])
    assert gone(residence, "c") == (["b"], [])
    assert not residence.has("c", "newcomer")
    assert leave(residence, "waiting") == ([], ["b"])
    assert gone(residence, "b") == (["c"], [])
    assert residence.has("c", "newcomer")


def test_a_user_who_asks_again_keeps_his_place() -> None:
    """A run loads its model at each pass: it would else wait for itself, or never come to the front."""
    residence = start()
    ask(residence, "c", "user")
    ask(residence, "b", "first")
    ask(residence, "a", "second")
    assert ask(residence, "c", "user") == NOTHING
    assert residence.has("c", "user")
    assert residence.waiting("c") == 0
    ask(residence, "b", "first")
    leave(residence, "user")
    assert gone(residence, "c") == (["b", "a"], [])


def test_newcomers_are_taken_again_when_nobody_waits_any_more() -> None:
    """Who waited has left: the model stays, and goes on."""
    residence = start()
    ask(residence, "c", "old")
    ask(residence, "b", "waiting")
    ask(residence, "c", "newcomer")
    assert leave(residence, "waiting") == NOTHING
    assert residence.has("c", "newcomer")


def test_whoever_is_not_in_the_way_need_not_wait() -> None:
    """`c` wants the memory of the model that was loaded first."""
    residence = start(bytes_max=11)
    ask(residence, "b", "one")
    ask(residence, "a", "two")
    assert ask(residence, "c", "three") == NOTHING
    ask(residence, "a", "four")
    ask(residence, "b", "five")
    assert residence.has("a", "four")
    assert not residence.has("b", "five")


def test_the_line_is_kept() -> None:
    """A small model does not pass a large one that waits: it might for ever."""
    residence = start()
    ask(residence, "b", "one")
    ask(residence, "c", "large")
    ask(residence, "a", "small")
    assert not residence.is_in("a")
    leave(residence, "one")
    assert gone(residence, "b") == (["c", "a"], [])


@pytest.mark.parametrize("users", [0, 1])
def test_an_idle_model_goes_after_its_time(users: int) -> None:
    """Counted from the last use, or from the load where there was none."""
    residence = start(idle_seconds=5)
    if users:
        ask(residence, "a", "one", now=0)
        assert residence.moves(100) == NOTHING
        leave(residence, "one", now=100)
    else:
        assert residence.begin("a", NEEDS["a"], now=100)
    assert residence.moves(104.9) == NOTHING
    assert residence.moves(105) == ([], ["a"])
    assert residence.moves(200) == NOTHING
    assert ask(residence, "a", "two", now=201) == NOTHING
    assert gone(residence, "a", now=202) == (["a"], [])


def test_without_a_time_nothing_goes_by_itself() -> None:
    """However long it is idle."""
    residence = start()
    residence.begin("a", NEEDS["a"], now=0)
    assert residence.moves(1e9) == NOTHING


def test_loading_ahead_takes_only_what_is_free() -> None:
    """Nobody is unloaded or passed for who may come."""
    residence = start()
    assert residence.begin("a", NEEDS["a"], now=0)
    assert not residence.begin("a", NEEDS["a"], now=0)
    assert not residence.begin("c", 7, now=0)
    ask(residence, "b", "one")
    ask(residence, "c", "two")
    assert not residence.begin("d", 1, now=0)
    assert residence.moves(0) == NOTHING


def test_a_model_that_fails_makes_room() -> None:
    """And can be asked for again."""
    residence = start()
    ask(residence, "c", "one")
    ask(residence, "b", "two")
    assert residence.fail("c")
    assert not residence.fail("c")
    assert not residence.has("c", "one")
    assert gone(residence, "c") == (["b"], [])
    assert not residence.fail("a")


EVENTS = st.lists(
    st.tuples(st.sampled_from("abc"), st.integers(0, 5), st.sampled_from(["ask", "leave", "gone", "fail"]))
)


@given(EVENTS)
def test_whatever_happens_the_memory_suffices_nobody_in_use_goes_and_everybody_has_his_turn(
    events: list[tuple[str, int, str]],
) -> None:
    """A user needs one model at a time."""
    world = World()
    for name, number, event in events:
        world.happens(name, f"user {number}", event)
    for _ in range(20):
        world.settle()
    assert world.asked == {}


class World:
    """Does what it is told to, and checks it."""

    def __init__(self) -> None:
        self.residence = start(idle_seconds=50)
        self.there: set[str] = set()
        self.leaving: set[str] = set()
        self.asked: dict[str, str] = {}
        self.now = 0.0

    def happens(self, name: str, user: str, event: str) -> None:
        self.now += 1
        if event == "ask" and user not in self.asked:
            self.asked[user] = name
            self.residence.want(name, user, NEEDS[name])
        elif event == "leave":
            self.asked.pop(user, None)
            self.residence.leave(user, self.now)
        elif event == "gone" and name in self.leaving:
            self.leaving.remove(name)
            self.residence.gone(name)
        elif event == "fail" and self.residence.fail(name):
            self.there.remove(name)
            self.leaving.add(name)
            self.ask_again(name)
        self.move()

    def ask_again(self, name: str) -> None:
        """They have been told of the failure, and some try once more."""
        for user in [user for user, asked in self.asked.items() if asked == name]:
            self.residence.want(name, user, NEEDS[name])

    def move(self) -> None:
        moves = self.residence.moves(self.now)
        for name in moves.unload:
            assert name in self.there
            assert not [user for user in self.asked if self.residence.has(name, user)]
            self.there.remove(name)
            self.leaving.add(name)
        for name in moves.load:
            assert name not in self.there | self.leaving
            self.there.add(name)
        assert sum(NEEDS[name] for name in self.there | self.leaving) <= ROOM
        for user, name in self.asked.items():
            assert not self.residence.has(name, user) or name in self.there

    def settle(self) -> None:
        """Processes end that are to end, and whoever has his model leaves after a while."""
        for name in sorted(self.leaving):
            self.happens(name, "", "gone")
        for user, name in list(self.asked.items()):
            if self.residence.has(name, user):
                self.happens(name, user, "leave")
