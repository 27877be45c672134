"""From a conversation to token ids, through the chat template of the model file.

A template's own text may name control tokens (`<|im_start|>`); what people write must not. Three cases:

1. The conversation has the same control tokens, in the same order, as the same conversation with harmless marks in
   place of its texts. Then nobody wrote one, and the rendered conversation is tokenised as it stands. This is the
   usual case, and it gives exactly what plain tokenisation gives.
2. Somebody wrote a control token. Then the marks show which parts of the rendering are people's words: control
   tokens are cut out of the template's parts only, and all text between two of them is tokenised as text.
3. As 2, and the template rewrites texts (apart from trimming them), so that the marks do not show where they end up.
   The conversation is refused, with the reason.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from functools import cached_property, lru_cache

import jinja2
from jinja2.ext import loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

from perdure.domain.model import Message
from perdure.runtime.llamacpp.model import Model

# Private-use characters around a number. The space is one that `strip` takes off and templates do not write: whether
# it is still there tells whether the template trims.
_LEFT, _RIGHT, _SPACE = "\U000f5045", "\U000f5244", "\x1f"
_MARK = re.compile(f"({_SPACE}?){_LEFT}([0-9]+){_RIGHT}({_SPACE}?)")


Shape = tuple[tuple[str, bool], ...]
SHAPES_MAX = 64
"""So many shapes of conversations are remembered: most requests of a service have one of a few."""

_ROLES = frozenset(
    {"system", "developer", "user", "assistant", "tool"}
)  # a role is written as the template's own word


class TemplateUnusable(Exception):
    """The file has no chat template that can be used; says why."""


class TemplateRefused(Exception):
    """The template does not take this conversation; says why."""


def _raise(message: str) -> str:
    raise jinja2.TemplateError(message)


def _now(form: str) -> str:
    return datetime.now().astimezone().strftime(form)


class ChatTemplate:
    """The chat template of one model, `source` in Jinja. Raises `TemplateUnusable`."""

    def __init__(self, model: Model, source: str | None) -> None:
        if source is None:
            raise TemplateUnusable("it has no chat template, so it cannot take a conversation")
        if _LEFT in source or _RIGHT in source:
            raise TemplateUnusable("its chat template uses characters that Perdure keeps for itself")
        self._model = model
        self._marks = {f"{name}_token": model.mark(name) for name in ("bos", "eos")}
        self._harmless = lru_cache(SHAPES_MAX)(self._harmless_controls)
        environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols])
        helpers = {"raise_exception": _raise, "strftime_now": _now}
        try:
            self._template = environment.from_string(source, globals=helpers)
        except jinja2.TemplateError as error:
            raise TemplateUnusable(f"its chat template cannot be read: {error}") from error

    def encode(self, messages: Sequence[Message]) -> tuple[int, ...]:
        """The token ids up to where the answer starts. Raises `TemplateRefused`."""
        for message in messages:
            if message.role not in _ROLES:
                raise TemplateRefused(f"there is no role {message.role!r}")
        rendered = self._render(messages)
        tokens = self._model.tokenize(rendered, controls=True)
        if self._controls(tokens) != self._harmless(_shape(messages)):
            tokens = self._protected(messages, rendered)
        first = self._model.first_token
        return tuple(tokens) if first is None or tokens[:1] == [first] else (first, *tokens)

    def at_least(self, messages: Sequence[Message]) -> int:
        """So many tokens a conversation has at least: one a message, and one for each spelled-out control token."""
        return len(messages) + sum(message.content.count(text) for message in messages for text in self._spelled)

    @cached_property
    def _spelled(self) -> list[str]:
        """The control tokens as they would have to be written, the longest first."""
        names = (self._model.token_text(token) for token in self._model.controls)
        return sorted(filter(None, names), key=len, reverse=True)

    def _render(self, messages: Sequence[Message]) -> str:
        turns = [{"role": message.role, "content": message.content} for message in messages]
        try:
            return self._template.render(messages=turns, add_generation_prompt=True, **self._marks)
        except jinja2.TemplateError as error:
            raise TemplateRefused(error.message or type(error).__name__) from error
        except Exception as error:  # a template is a program of its file's author and may raise anything
            raise TemplateRefused(f"{type(error).__name__}: {error}") from error

    def _controls(self, tokens: Iterable[int]) -> list[int]:
        return [token for token in tokens if token in self._model.controls]

    def _harmless_controls(self, shape: Shape) -> list[int]:
        """The control tokens of a conversation of this shape in which nobody wrote one."""
        return self._controls(self._model.tokenize(self._render(_marked(shape)), controls=True))

    def _protected(self, messages: Sequence[Message], rendered: str) -> list[int]:
        parts = list(_parts(messages, self._render(_marked(_shape(messages)))))
        if "".join(text for text, _ in parts) != rendered:
            raise TemplateRefused(
                "a text spells out a control token of this model, and the model's chat template rewrites texts; "
                "leave the control token out"
            )
        tokens: list[int] = []
        plain = ""
        for text, own in self._cut(parts):
            if own:
                tokens += self._model.tokenize(plain, controls=False)
                tokens += self._model.tokenize(text, controls=True)
                plain = ""
            else:
                plain += text
        return tokens + self._model.tokenize(plain, controls=False)

    def _cut(self, parts: Iterable[tuple[str, bool]]) -> Iterator[tuple[str, bool]]:
        """Single control tokens out of the template's parts (true), and the text between them (false)."""
        pattern = re.compile("|".join(map(re.escape, self._spelled)) or "(?!)")
        for text, own in parts:
            at = 0
            for found in pattern.finditer(text) if own else ():
                yield text[at : found.start()], False
                yield found.group(), True
                at = found.end()
            yield text[at:], False


def _shape(messages: Sequence[Message]) -> Shape:
    """A conversation without its texts. Whether one is empty stays, since templates ask for that."""
    return tuple((message.role, bool(message.content)) for message in messages)


def _marked(shape: Shape) -> list[Message]:
    """A conversation of this shape with a mark in place of each text."""
    return [
        Message(role=role, content=f"{_SPACE}{_LEFT}{n}{_RIGHT}{_SPACE}" if has_text else "")
        for n, (role, has_text) in enumerate(shape)
    ]


def _parts(messages: Sequence[Message], marked: str) -> Iterator[tuple[str, bool]]:
    """The rendering in parts, with the texts back in: the template's own words (true) and people's (false)."""
    at = 0
    for mark in _MARK.finditer(marked):
        yield marked[at : mark.start()], True
        left, number, right = mark.groups()
        text = messages[int(number)].content
        text = text if left else text.lstrip()
        yield text if right else text.rstrip(), False
        at = mark.end()
    yield marked[at:], True
