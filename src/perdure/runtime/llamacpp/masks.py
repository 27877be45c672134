"""Which tokens a grammar allows next: llguidance over the vocabulary of one model. Child processes only.

What a guide allows is a function of its grammar and the tokens that it was fed, so a text that goes on after a
restart is fed what was drawn before. Where the grammar leaves only one way to go on, llguidance allows one token: the
one that the model's own tokenizer would choose there. It is drawn like any other, in a decode call of its own.

Importing this takes a twentieth of a second and 12 MB, which only an engine that meets a grammar spends.

The library reports trouble by a state that must be asked for: a matcher in trouble allows the end marks.
"""

from collections.abc import Iterable
from functools import cached_property
from typing import Protocol

import llguidance
import numpy as np
from numpy.typing import NDArray

from perdure.runtime.llamacpp.text import TextFailed

_SPECIAL = b"\xff"  # how llguidance is told that a token stands for no text
_ASTRAY = "the answer cannot be held to its grammar"
_FREE, _FORBIDDEN = np.float32(0), np.float32(-np.inf)


class Vocabulary(Protocol):
    """What is asked of a model's vocabulary."""

    tokens: int

    def ends(self, token: int) -> bool: ...
    def bytes_of(self, token: int) -> bytes: ...
    def tokenize(self, text: str, *, controls: bool) -> list[int]: ...


class _Words:
    """A vocabulary as llguidance asks for it. After its last token comes an end mark that no model can draw, so that
    there is one in any case.
    """

    bos_token_id = None

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary
        tokens = range(vocabulary.tokens)
        self.ends = [token for token in tokens if vocabulary.ends(token)] or [vocabulary.tokens]
        self.eos_token_id = self.ends[0]
        marks = set(self.ends)
        self.bytes = [b"" if token in marks else vocabulary.bytes_of(token) for token in tokens]
        named = enumerate([*self.bytes, b""])
        self.tokens = [data or _SPECIAL + b"<%d>" % token for token, data in named]
        self.special_token_ids = [token for token in tokens if not self.bytes[token]]
        self.tokenizer: llguidance.LLTokenizer | None = None

    def __call__(self, text: bytes) -> list[int]:
        """The token ids of a text inside another. Some tokenizers put a space before every text: then not theirs."""
        tokens = self._vocabulary.tokenize(text.decode(), controls=False)
        if self.tokenizer is not None and b"".join(self.bytes[token] for token in tokens) != text:
            return self._greedy(text)
        return tokens

    def _greedy(self, text: bytes) -> list[int]:
        assert self.tokenizer is not None  # noqa: S101 -- the caller asked
        return self.tokenizer.greedy_tokenize(text.decode())


class Grammars:
    """Makes guides for one vocabulary. Asking it for the first takes a quarter of a second."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary

    @cached_property
    def tokenizer(self) -> llguidance.LLTokenizer:
        """The vocabulary as llguidance holds it."""
        words = _Words(self._vocabulary)
        wrapped = llguidance.TokenizerWrapper(words)
        words.tokenizer = llguidance.LLTokenizer(wrapped, n_vocab=len(words.tokens), eos_token=words.ends)
        return words.tokenizer

    def guide(self, grammar: str, done: Iterable[int]) -> "Guide":
        """A guide by the grammar, after the tokens that were drawn before. Raises `TextFailed`."""
        limits = llguidance.LLParserLimits(verbose_errors=False)
        matcher = llguidance.LLMatcher(self.tokenizer, grammar, log_level=0, limits=limits)
        guide = Guide(matcher, self._vocabulary.tokens)
        for token in done:
            guide.add(token)
        return guide


class Guide:
    """Says what one text may go on with."""

    def __init__(self, matcher: llguidance.LLMatcher, tokens: int) -> None:
        self._matcher = matcher
        self._tokens = tokens
        self._check("the grammar cannot be used")

    @property
    def complete(self) -> bool:
        """Whether nothing can follow but the end."""
        return self._matcher.is_stopped()

    def add(self, token: int) -> None:
        """Take the next token, which is no end mark. Raises `TextFailed`."""
        if self.complete:
            raise TextFailed(f"{_ASTRAY} (nothing may follow it)")
        self._matcher.consume_token(token)
        self._check(_ASTRAY)

    def bias(self) -> NDArray[np.float32]:
        """What is to be added to the logits: nothing to allowed tokens, minus infinity to others.

        Raises `TextFailed`.
        """
        bits = np.frombuffer(self._matcher.compute_bitmask(), np.uint8)
        self._check(_ASTRAY)
        allowed = np.unpackbits(bits, count=self._tokens, bitorder="little")
        return np.where(allowed, _FREE, _FORBIDDEN)

    def _check(self, words: str) -> None:
        if self._matcher.is_error():
            reason, _, _ = self._matcher.get_error().partition("\n")
            raise TextFailed(f"{words} ({reason})")
