"""Whether a grammar can be drawn by, and if not, which place of which schema is to blame.

llguidance bounds most of its own work, but not all: a long chain of references overflows its stack, and patterns that
exclude each other keep it busy for hours. So it is tried in a process of its own, which may fail as it likes: forked,
with little time and memory. It builds what the engine child will build, over a vocabulary of single bytes.

Only what a schema itself brings about is held against it. A trial that somebody else ends (a person, the kernel where
memory is short, the clock on a machine that has no time for it) says nothing of any schema.
"""

import os
import resource
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import lru_cache
from typing import Any, NoReturn
from urllib.parse import unquote

import llguidance
import msgspec

from perdure.runtime.llamacpp.child import end_with_parent
from perdure.runtime.llamacpp.grammar import Held, NoGrammar

CPU_SECONDS_MAX = 3
SECONDS_MAX = 20  # of the clock on the wall; a schema may be tried three times while its caller waits
MEMORY_MAX_BYTES = 2 << 30
STACK_MAX_BYTES = 4 << 20  # half of what the engine child has
REMEMBERED_MAX = 64
SEARCH_SECONDS = 1.0
"""So much processor time may go before the search for a closer place ends."""

_MAPS = ("$defs", "definitions", "properties", "patternProperties")  # first what others refer to
_LISTS = ("anyOf", "oneOf", "allOf", "prefixItems")
_SINGLE = ("items", "additionalProperties")
_SHARED = ("$schema", "$defs", "definitions")
COSTLY = "it takes more time or memory than there is to hold an answer to it; make it simpler"
_NOTHING = "no value satisfies it"
_UNCOUNTED = "so many properties cannot be asked for without naming them in `required`"

Fault = tuple[str, str]
"""A reason, and the place that it is about."""
Tell = Callable[[object], None]
"""Takes the words of a process that does not live long."""


_ITS_OWN = (signal.SIGXCPU, signal.SIGSEGV, signal.SIGABRT)
"""What ends a trial that takes too much time, stack or memory."""


class Untried(Exception):
    """A trial was not carried through for reasons that lie outside of it; says which. The next may be."""


class _SearchedEnough(Exception):
    """What is known of the place has to do."""


def check(grammar: str, held: tuple[Held, ...]) -> None:
    """Raise `NoGrammar`, with the deepest place that is known, if answers cannot be drawn by this grammar.

    Raises `Untried`. May be called by several threads at once.
    """
    word = last_word(lambda tell: _try(grammar, held, tell))
    if word is None:
        raise Untried("the trial ended before it began")
    fault = msgspec.json.decode(word, type=Fault | None)
    if fault is not None:
        raise NoGrammar(*fault)


def _try(grammar: str, held: tuple[Held, ...], tell: Tell) -> None:
    """Tell ever better what is wrong. Each word is told before the work that may be the end of this process."""
    for one in held:
        tell((COSTLY, one.place))
        schema = msgspec.json.decode(one.schema)
        flaw = _flaw(schema, one.place)
        if flaw is not None:
            tell(flaw)
            return
        message = fault_of(schema)
        if message:
            tell((message, one.place))
            with suppress(_SearchedEnough):
                for place in _deeper(schema, schema, one.place, message):
                    tell((message, place))
            return
    tell((COSTLY, _together(held)))
    message = _fault_of_grammar(grammar)
    tell((message, _together(held)) if message else None)


def _together(held: tuple[Held, ...]) -> str:
    """The place of all schemas."""
    return held[0].place.partition("[")[0]


def fault_of(schema: Any) -> str:
    """Why no value can be drawn by a schema; nothing if it can."""
    return _fault_of_grammar("%llguidance {}\nstart: %json " + msgspec.json.encode(schema).decode())


def _fault_of_grammar(grammar: str) -> str:
    matcher = llguidance.LLMatcher(byte_vocabulary(), grammar, log_level=0, limits=_limits())
    if not matcher.is_error():
        matcher.compute_logit_bias()
    return _plain(matcher.get_error())


def _plain(message: str) -> str:
    """What llguidance says, without the grammar it says it about. Messages of one cause are alike."""
    text = message.split("failed to compile JSON schema: ")[-1].split("\n   1 | ")[0].split("\n<")[0]
    if text == "NoExtensionBias":
        return _NOTHING
    return " ".join(text.split("  while processing ")[0].split())[:300]


def _deeper(root: dict[str, Any], schema: Any, place: str, message: str) -> Iterator[str]:
    """Places within the schema at `place` that fail for the same reason, each inside the one before."""
    shared = {key: root[key] for key in _SHARED if key in root}
    for inner, below in _inside(schema):
        if _same({**shared, **below} if isinstance(below, dict) else below, message):
            yield place + inner
            yield from _deeper(root, below, place + inner, message)
            return
    for key in sorted(schema, key=_blame) if isinstance(schema, dict) else ():
        rest = {other: value for other, value in schema.items() if other != key}
        if not _same({**shared, **rest}, message):
            yield f"{place}.{key}"
            return


def _blame(key: str) -> bool:
    """Last the keys that are not the client's, or that say what the others are about."""
    return key in ("type", "x-guidance")


def _flaw(root: dict[str, Any], place: str) -> Fault | None:
    """What llguidance lets pass: references that only lead back to themselves, where it would be stuck in the middle
    of an answer, and a number of names that it counts even if they are all the same."""
    for part_place, part in parts(root, place):
        if uncounted(part):
            return _UNCOUNTED, f"{part_place}.minProperties"
        if _endless(root, part):
            return _NOTHING, f"{part_place}.$ref"
    return None


def uncounted(schema: dict[str, Any]) -> bool:
    """Whether it asks for a number of properties that may not be kept to."""
    least, required = schema.get("minProperties"), schema.get("required")
    return isinstance(least, int) and least > max(1, len(required) if isinstance(required, list) else 0)


def parts(root: Any, place: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """A schema and all that are in it, each once, with its place. One may be changed when it comes: what is taken
    away does not come."""
    below: list[tuple[str, Any]] = [(place, root)]
    seen: set[int] = set()
    while below:
        at, schema = below.pop()
        if not isinstance(schema, dict) or id(schema) in seen:
            continue
        seen.add(id(schema))
        yield at, schema
        reference = schema.get("$ref")
        if isinstance(reference, str):  # it may lead to where no schemas are looked for
            way, target = _target(root, reference)
            below.append((place + way, target))
        below += reversed([(at + inner, one) for inner, one in _inside(schema)])


def _endless(root: dict[str, Any], schema: Any) -> bool:
    seen: set[str] = set()
    while isinstance(schema, dict) and isinstance(reference := schema.get("$ref"), str):
        if reference in seen:
            return True
        seen.add(reference)
        _, schema = _target(root, reference)
    return False


def _target(root: Any, reference: str) -> tuple[str, Any]:
    """What a reference within the same schema leads to, if it does, and the way there."""
    way = ""
    for name in reference.removeprefix("#").split("/")[1:]:
        key = unquote(name).replace("~1", "/").replace("~0", "~")
        if isinstance(root, list):
            root = root[int(key)] if key.isdecimal() and int(key) < len(root) else None
            way += f"[{key}]"
        else:
            root = root.get(key) if isinstance(root, dict) else None
            way += f".{key}"
    return (way, root) if reference.startswith("#") else ("", None)


def _same(schema: Any, message: str) -> bool:
    if time.process_time() > SEARCH_SECONDS:
        raise _SearchedEnough
    return fault_of(schema) == message


def _inside(schema: Any) -> Iterator[tuple[str, Any]]:
    """The schemas right below a schema, with the way to each."""
    if not isinstance(schema, dict):
        return
    for key in _MAPS:
        if isinstance(schema.get(key), dict):
            yield from ((f".{key}.{name}", below) for name, below in schema[key].items())
    for key in _LISTS:
        if isinstance(schema.get(key), list):
            yield from ((f".{key}[{number}]", below) for number, below in enumerate(schema[key]))
    yield from ((f".{key}", schema[key]) for key in _SINGLE if key in schema)


END_MARK = 256


class _Bytes:
    """A vocabulary of single bytes and an end mark, as llguidance asks for one."""

    eos_token_id = END_MARK
    bos_token_id = None
    tokens = (*(bytes([byte]) for byte in range(256)), b"<end>")
    special_token_ids = (eos_token_id,)

    def __call__(self, text: bytes | str) -> list[int]:
        return list(text if isinstance(text, bytes) else text.encode())


@lru_cache(1)
def byte_vocabulary() -> llguidance.LLTokenizer:
    """Each byte is the token of its number; after them comes `END_MARK`."""
    return llguidance.LLTokenizer(llguidance.TokenizerWrapper(_Bytes()))


def _limits() -> llguidance.LLParserLimits:
    return llguidance.LLParserLimits(verbose_errors=False)


def last_word(work: Callable[[Tell], None]) -> bytes | None:
    """Do work in a process of its own, and return the last that it told, as JSON, if it came to an end or to one of
    its bounds. Raises `Untried`."""
    byte_vocabulary()  # made once, here
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb") as pipe:
        try:
            child = os.fork()
            if child == 0:
                _work(work, writing)
        except OSError as error:
            raise Untried(f"no process can be started for the trial ({error.strerror})") from error
        finally:
            os.close(writing)
        words = pipe.read().split(b"\n")
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) not in _ITS_OWN:
        raise Untried(_how(os.WTERMSIG(status)))
    return words[-2] if len(words) > 1 else None


def _how(number: int) -> str:
    if number == signal.SIGALRM:
        return f"the trial had too little of the processor for {SECONDS_MAX} s"
    return f"the trial was ended from outside ({signal.strsignal(number)})"


def _work(work: Callable[[Tell], None], writing: int) -> NoReturn:
    """Be the child: hold nothing of the parent's but the pipe, and end whatever happens."""
    try:
        end_with_parent()
        os.closerange(0, writing)
        os.closerange(writing + 1, os.sysconf("SC_OPEN_MAX"))
        _bound()

        def tell(word: object) -> None:
            os.write(writing, msgspec.json.encode(word) + b"\n")

        work(tell)
    finally:
        os._exit(0)


def _bound() -> None:
    signal.alarm(SECONDS_MAX)
    bounds = {"CPU": CPU_SECONDS_MAX, "DATA": MEMORY_MAX_BYTES, "STACK": STACK_MAX_BYTES, "CORE": 0}
    for name, most in bounds.items():
        kind = getattr(resource, f"RLIMIT_{name}")
        hard = resource.getrlimit(kind)[1]
        resource.setrlimit(kind, (most if hard == resource.RLIM_INFINITY else min(most, hard), hard))
