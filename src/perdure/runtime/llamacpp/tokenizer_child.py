"""The child that knows a model's words: chat template, tokenizer, and what the file says about itself.

Run as `python -m perdure.runtime.llamacpp.tokenizer_child`; speaks `wire` over standard input and output.
"""

import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import msgspec

from perdure.domain.model import Prompt, Shape
from perdure.runtime.llamacpp import defaults, wire
from perdure.runtime.llamacpp.child import Pipes, failing_whole, library_path, run
from perdure.runtime.llamacpp.grammar import Calling, NoGrammar, Reasoning
from perdure.runtime.llamacpp.lenient import settled
from perdure.runtime.llamacpp.library import LibraryUnusable, open_library
from perdure.runtime.llamacpp.model import Model, ModelRefused
from perdure.runtime.llamacpp.schemas import REMEMBERED_MAX, Untried
from perdure.runtime.llamacpp.template import ChatTemplate, TemplateRefused, TemplateUnusable, Words

TRIED_AT_ONCE = 2
WAIT_SECONDS_MAX = 20.0  # for the turn of an order; with what trying may take, its caller still waits then


def _facts(model: Model) -> wire.TokenizerReady:
    library = model.library
    return wire.TokenizerReady(
        architecture=model.architecture,
        file_type=model.file_type,
        weight_types=model.weight_types(),
        context_train=model.context_train,
        kv_bytes_per_token=model.kv_bytes_per_token(),
        token_bytes_max=max(len(model.bytes_of(token)) for token in range(model.tokens)),
        library_version=library.llama_version().decode(),
        system_info=library.llama_print_system_info().decode().strip(),
        sampling_temp=model.meta(defaults.TEMPERATURE_KEY),
        sampling_top_p=model.meta(defaults.TOP_P_KEY),
    )


class _Tokenizer:
    """Answers orders: at once, but for one with schemas that are new. These are tried beside the others, which do not
    wait for it."""

    def __init__(self, template: ChatTemplate, calling: Calling, send: Callable[[wire.Answer], None]) -> None:
        self._template = template
        self._calling = calling
        self._send = send
        self._lock = threading.Lock()
        self._tried: dict[bytes, _Verdict] = {}  # of late: clients send the same schemas again and again
        self._trying = ThreadPoolExecutor(TRIED_AT_ONCE)  # no thread is there before the first schema

    def take(self, order: wire.Encode) -> None:
        """Answer the order, now or later."""
        least = self._template.at_least(order.prompt)
        if least >= order.tokens_max:  # found out before the work: tokenising takes the longer the more there is
            self._tell(wire.TooLong(order.number, least))
            return
        try:
            words = self._template.encode(order.prompt)
        except TemplateRefused as error:
            self._tell(wire.NotEncoded(order.number, str(error), "input"))
            return
        asked = self._asked(order.prompt, words.reasoning)
        verdict = asked.verdict(checked=False)
        if isinstance(verdict, NoGrammar) or verdict[0].grammar is None or len(words.tokens) >= order.tokens_max:
            self._answer(order, words, verdict)  # what cannot be run in any case need not be tried
        elif (tried := self._recall(asked.key)) is not None:
            self._answer(order, words, tried)
        else:
            self._trying.submit(self._try, order, words, asked, time.monotonic())

    def _asked(self, prompt: Prompt, reasoning: Reasoning) -> "_Asked":
        """After the result of a call an answer is wanted rather than another call: only to users there is a bias."""
        by_user = bool(prompt.messages) and prompt.messages[-1].role == "user"
        calling = self._calling if by_user else self._calling._replace(bias=0.0)
        return _Asked(msgspec.structs.replace(prompt, messages=()), reasoning, calling)

    def _try(self, order: wire.Encode, words: Words, asked: "_Asked", since: float) -> None:
        """Answer an order whose schemas have to be tried first: the work of a thread of its own."""
        with failing_whole():
            if time.monotonic() - since > WAIT_SECONDS_MAX:
                self._tell(wire.Busy(order.number, "so many others are tried that their turn did not come"))
                return
            try:
                verdict = asked.verdict(checked=True)
            except Untried as error:
                self._tell(wire.Busy(order.number, str(error)))
                return
            with self._lock:
                self._tried[asked.key] = verdict
                if len(self._tried) > REMEMBERED_MAX:
                    del self._tried[next(iter(self._tried))]
            self._answer(order, words, verdict)

    def _recall(self, asked: bytes) -> "_Verdict | None":
        with self._lock:
            verdict = self._tried.pop(asked, None)
            if verdict is not None:
                self._tried[asked] = verdict  # the last that was asked for stands last
            return verdict

    def _answer(self, order: wire.Encode, words: Words, verdict: "_Verdict") -> None:
        if isinstance(verdict, NoGrammar):
            self._tell(wire.NotEncoded(order.number, str(verdict), verdict.param))
        else:
            self._tell(wire.Encoded(order.number, words.tokens, *verdict))

    def _tell(self, answer: wire.Answer) -> None:
        with self._lock:
            self._send(answer)


_Verdict = tuple[Shape, tuple[str, ...]] | NoGrammar


class _Asked(NamedTuple):
    """All that a verdict depends on. The prompt is without its messages."""

    prompt: Prompt
    reasoning: Reasoning
    calling: Calling

    @property
    def key(self) -> bytes:
        return msgspec.msgpack.encode(self)

    def verdict(self, *, checked: bool) -> _Verdict:
        """Raises `Untried`."""
        try:
            return settled(*self, checked=checked)
        except NoGrammar as error:
            return error.with_traceback(None)


def main() -> None:
    """Open the model that the first order names, then encode until the parent goes."""
    pipes = Pipes()  # without a thread that reads: to hand each order over would cost as much as to encode it
    opening = pipes.receive()
    assert isinstance(opening, wire.OpenTokenizer)  # noqa: S101 - a broken invariant of the parent
    try:
        model = Model(open_library(library_path(opening)), Path(os.fsdecode(opening.path)), vocab_only=True)
        tokenizer = _Tokenizer(ChatTemplate(model, model.chat_template), opening.calling, pipes.send)
        pipes.send(_facts(model))
    except (LibraryUnusable, ModelRefused, TemplateUnusable) as error:
        pipes.send(wire.Refused(str(error)))
        os._exit(0)
    while True:
        order = pipes.receive()
        assert isinstance(order, wire.Encode)  # noqa: S101 - as above
        tokenizer.take(order)


if __name__ == "__main__":
    run(main)
