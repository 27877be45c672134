"""What a round of kills shall do: which texts, and whom to kill at which moment. Drawn from a seed."""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Literal

Model = Literal["tiny", "real"]
Request = dict[str, Any]


class Victim(StrEnum):
    """Who is killed: the service alone, the process that draws while the service lives, or all processes at once."""

    SERVICE = "service"
    CHILD = "child"
    BOTH = "both"


class Moment(StrEnum):
    """When. The first three open a round; the last three come while the service is down after a kill."""

    QUEUED = "queued"
    LOADING = "loading"
    PROMPT = "prompt"
    TEXT = "text"
    START = "start"
    SCAN = "scan"
    LISTENING = "listening"


OPENING = (Moment.QUEUED, Moment.LOADING, Moment.PROMPT)
RECOVERY = (Moment.START, Moment.SCAN, Moment.LISTENING)


class Sampling(StrEnum):
    """How the texts of a round are drawn."""

    GREEDY = "greedy"
    SAMPLED = "sampled"
    MIXED = "mixed"


@dataclass(frozen=True)
class Aim:
    """One kill as it is meant. What it hit is found out afterwards."""

    victim: Victim
    moment: Moment


@dataclass(frozen=True)
class Plan:
    """A round: `streams` texts at once, and kills one after the other while they are written."""

    model: Model
    streams: int
    sampling: Sampling
    requests: tuple[Request, ...]
    aims: tuple[Aim, ...]

    def __post_init__(self) -> None:
        for before, aim in zip((None, *self.aims), self.aims, strict=False):
            if aim.moment in OPENING and before is not None:
                raise AssertionError(f"{aim.moment} opens a round")
            if aim.moment in RECOVERY and not _leaves_it_down(before):
                raise AssertionError(f"{aim.moment} needs a service that was killed just before")


def _leaves_it_down(aim: Aim | None) -> bool:
    return aim is not None and aim.victim is not Victim.CHILD


PROMPTS = (
    "Tell me of the sea.",
    "Why is the sky blue?",
    "What is a good day?",
    "Name seven fruits.",
    "How does a clock work?",
    "Write a letter to an old friend.",
    "What do bees do in winter?",
    "Explain rain to a child.",
    "Where do rivers begin?",
    "Give me a recipe for bread.",
    "Who built the first bridge?",
    "What is a number?",
)
SEEDS = 8  # so few that undisturbed texts are used more than once
_WORDS = ("old", "boat", "quiet", "river", "past", "green", "hills", "where", "nobody", "had", "been", "for", "years")
# A word and its space: five letters on average, one token each in the tiny model, a little over one in the real one.
_WORDS_A_TOKEN = {"tiny": 1 / 5, "real": 1 / 1.05}


def prompt(model: Model, number: int, tokens: int) -> str:
    """A prompt of roughly so many tokens; 0 for a short one."""
    text = PROMPTS[number]
    words = round(max(0, tokens - 40) * _WORDS_A_TOKEN[model])
    return text + " " + " ".join(random.Random(number).choices(_WORDS, k=words)) if words else text


def requests(
    model: Model,
    sampling: Sampling,
    count: int,
    rng: random.Random,
    *,
    lengths: Sequence[int],
    prompt_tokens: int = 0,
) -> tuple[Request, ...]:
    """So many different requests, each of one of these lengths."""
    found: list[Request] = []
    for n, number in enumerate(rng.sample(range(len(PROMPTS)), count)):
        greedy = n % 2 == 0 if sampling is Sampling.MIXED else sampling is Sampling.GREEDY
        drawn: Request = {"temperature": 0} if greedy else {"temperature": 0.9, "top_p": 0.95}
        text = prompt(model, number, prompt_tokens)
        seed = rng.randrange(SEEDS)
        found.append({"text": text, "max_output_tokens": rng.choice(lengths), "seed": seed, **drawn})
    return tuple(found)


# How long the texts are, by model and streams: the real model draws some 50 tokens a second in all.
LENGTHS: dict[tuple[Model, int], tuple[int, ...]] = {
    ("tiny", 1): (400, 900, 1500),
    ("tiny", 4): (300, 600, 1200),
    ("tiny", 8): (200, 400, 800),
    ("real", 1): (48, 96, 320),
    ("real", 4): (16, 32, 64),
    ("real", 8): (12, 24, 36),
}
LENGTHS_LONG_PROMPT: dict[Model, tuple[int, ...]] = {"tiny": (100, 300), "real": (16, 32)}
REAL_SHARE = 0.25
STREAMS: dict[Model, tuple[int, ...]] = {"tiny": (1, 4, 8), "real": (1, 4, 8)}
KILLS_A_ROUND = (4, 8)
KILLS_LONG_PROMPT = (2, 3)  # fewer, as each restart reads the prompts again


def draw_plan(rng: random.Random, kills: int) -> Plan:
    """A round of at most so many kills."""
    model: Model = "real" if rng.random() < REAL_SHARE else "tiny"
    streams = rng.choice(STREAMS[model])
    sampling = rng.choice(tuple(Sampling))
    opening = rng.choice((None, None, *OPENING))
    count = max(2, streams) if opening is Moment.QUEUED else streams  # somebody has to be waited for
    if opening is Moment.PROMPT:
        tokens = _prompt_tokens(model, streams, rng)
        asked = requests(model, sampling, count, rng, lengths=LENGTHS_LONG_PROMPT[model], prompt_tokens=tokens)
    else:
        asked = requests(model, sampling, count, rng, lengths=LENGTHS[model, streams])
    count = rng.randint(*(KILLS_LONG_PROMPT if opening is Moment.PROMPT else KILLS_A_ROUND))
    return Plan(model, streams, sampling, asked, tuple(_aims(opening, min(kills, count), rng)))


def _prompt_tokens(model: Model, streams: int, rng: random.Random) -> int:
    """The real model reads some 70 tokens a second: eight long prompts would take minutes."""
    if model == "tiny":
        return rng.choice({1: (600, 1500), 4: (300, 600), 8: (150, 300)}[streams])
    return rng.choice({1: (200, 400, 600), 4: (100,), 8: (60,)}[streams])


def _aims(opening: Moment | None, count: int, rng: random.Random) -> list[Aim]:
    aims = [Aim(_victim(rng), opening)] if opening is not None else []
    while len(aims) < count:
        down = bool(aims) and _leaves_it_down(aims[-1])
        moment = rng.choice(RECOVERY) if down and rng.random() < 0.5 else Moment.TEXT
        aims.append(Aim(_victim(rng), moment))
    return aims


def _victim(rng: random.Random) -> Victim:
    return rng.choice(tuple(Victim))
