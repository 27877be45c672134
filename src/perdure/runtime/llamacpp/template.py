"""From a prompt to token ids, through the chat template of the model file.

A template's own text may name control tokens (`<|im_start|>`); what people write must not: messages, descriptions of
functions and their schemas, arguments and results. Three cases:

1. The conversation has the same control tokens, in the same order, as the same conversation with harmless marks in
   place of its texts. Then nobody wrote one, and the rendered conversation is tokenised as it stands. This is the
   usual case, and it gives exactly what plain tokenisation gives.
2. Somebody wrote a control token. Then the marks show which parts of the rendering are people's words: control
   tokens are cut out of the template's parts only, and all text between two of them is tokenised as text.
3. As 2, and the template rewrites texts (apart from trimming them), so that the marks do not show where they end up.
   The conversation is refused, with the reason.

Templates look into functions and calls (what type a property has), so there marks cannot stand for whole texts. In
place of every character that control tokens are spelled with comes a letter for case 1; for case 2 a mark for each
spelled-out control token. In all cases the control tokens in the end are those of the harmless conversation.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from perdure.domain.model import Message, Prompt, ToolCall
from perdure.runtime.llamacpp import notation
from perdure.runtime.llamacpp.grammar import Reasoning
from perdure.runtime.llamacpp.model import Model
from perdure.runtime.llamacpp.prompts import texts
from perdure.runtime.llamacpp.turns import (
    PROBE_CALL,
    PROBE_SYSTEM,
    PROBE_TEXT,
    Abilities,
    Conversation,
    conversation,
    turns,
    writes_calls,
)

# Private-use characters around a number. The space is one that `strip` takes off and templates do not write: whether
# it is still there tells whether the template trims.
_LEFT, _RIGHT, _SPACE = "\U000f5045", "\U000f5244", "\x1f"
_MARK = re.compile(f"({_SPACE}?){_LEFT}([0-9]+){_RIGHT}({_SPACE}?)")

CONVERSATIONS_MAX = 64
"""So many harmless conversations are remembered: most requests of a service are like one of a few."""

_ROLES = frozenset(
    {"system", "developer", "user", "assistant", "tool"}
)  # a role is written as the template's own word


class TemplateUnusable(Exception):
    """The file has no chat template that can be used; says why."""


class TemplateRefused(Exception):
    """The template does not take this conversation; says why."""


class Words(NamedTuple):
    """A prompt as token ids up to where the answer starts, and where the model will write for itself."""

    tokens: tuple[int, ...]
    reasoning: Reasoning


def _raise(message: str) -> str:
    raise jinja2.TemplateError(message)


def _now(form: str) -> str:
    return datetime.now().astimezone().strftime(form)


def _tojson(value: Any, ensure_ascii: bool = False, **options: Any) -> str:
    """As `transformers` has it: Jinja's own writes `<` and `>` for web pages."""
    return json.dumps(value, ensure_ascii=ensure_ascii, **options)


class _Generation(Extension):
    """Training marks in a template what the model itself says; here that is text like any other."""

    tags = {"generation"}  # noqa: RUF012 -- Jinja's own way

    def parse(self, parser: Parser) -> list[nodes.Node]:
        """The statements between `{% generation %}` and its end."""
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


_EXTENSIONS = [loopcontrols, _Generation]


class ChatTemplate:
    """The chat template of one model, `source` in Jinja. Raises `TemplateUnusable`."""

    def __init__(self, model: Model, source: str | None) -> None:
        if source is None:
            raise TemplateUnusable("it has no chat template, so it cannot take a conversation")
        if _LEFT in source or _RIGHT in source:
            raise TemplateUnusable("its chat template uses characters that Perdure keeps for itself")
        self._model = model
        self._marks = {f"{name}_token": model.mark(name) for name in ("bos", "eos")}
        self._thinks = notation.THINK_OPEN in source
        self._harmless = lru_cache(CONVERSATIONS_MAX)(self._harmless_controls)
        environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=_EXTENSIONS)
        environment.filters["tojson"] = _tojson
        helpers = {"raise_exception": _raise, "strftime_now": _now}
        try:
            self._template = environment.from_string(source, globals=helpers)
        except jinja2.TemplateError as error:
            raise TemplateUnusable(f"its chat template cannot be read: {error}") from error
        self.able = Abilities(
            calls=self._passes(PROBE_CALL, writes_calls),
            system=self._passes(PROBE_SYSTEM, lambda rendered: PROBE_TEXT in rendered),
        )

    def encode(self, prompt: Prompt) -> Words:
        """The token ids up to where the answer starts. Raises `TemplateRefused`."""
        asked = conversation(prompt, self.able)
        for message in asked.messages:
            if message.role not in _ROLES:
                raise TemplateRefused(f"there is no role {message.role!r}")
        rendered = self._render(asked)
        tokens = self._model.tokenize(rendered, controls=True)
        harmless = self._harmless(_mapped(asked, _Marks().whole, self._soften))
        if self._controls(tokens) != harmless:
            tokens = self._protected(asked, rendered)
            if self._controls(tokens) != harmless:
                raise TemplateRefused(_REWRITTEN)
        first = self._model.first_token
        whole = tuple(tokens) if first is None or tokens[:1] == [first] else (first, *tokens)
        return Words(whole, self._reasoning(rendered))

    def at_least(self, prompt: Prompt) -> int:
        """So many tokens a prompt has at least: one a message, and one for each spelled-out control token."""
        written = sum(text.count(control) for text in texts(prompt) for control in self._spelled)
        return len(prompt.messages) + written

    def _reasoning(self, rendered: str) -> Reasoning:
        if not self._thinks:
            return "none"
        return "open" if rendered.rstrip().endswith(notation.THINK_OPEN) else "marked"

    def _passes(self, probe: Conversation, test: Callable[[str], bool]) -> bool:
        try:
            return test(self._render(probe))
        except TemplateRefused:
            return False

    @cached_property
    def _spelled(self) -> list[str]:
        """The control tokens as they would have to be written, the longest first."""
        names = (self._model.token_text(token) for token in self._model.controls)
        return sorted(filter(None, names), key=len, reverse=True)

    @cached_property
    def _spelling(self) -> re.Pattern[str]:
        return re.compile("|".join(map(re.escape, self._spelled)) or "(?!)")

    @cached_property
    def _signs(self) -> dict[int, str]:
        """Letters for the characters that make a control token one, and for those of marks."""
        signs = {sign for text in self._spelled for sign in text if not sign.isalnum() and sign != "_"}
        return str.maketrans(dict.fromkeys(signs | {_LEFT, _RIGHT}, "x"))

    def _soften(self, text: str) -> str:
        return text.translate(self._signs)

    def _render(self, asked: Conversation) -> str:
        messages, tools = turns(asked)
        try:
            return self._template.render(messages=messages, tools=tools, add_generation_prompt=True, **self._marks)
        except jinja2.TemplateError as error:
            raise TemplateRefused(error.message or type(error).__name__) from error
        except Exception as error:  # a template is a program of its file's author and may raise anything
            raise TemplateRefused(f"{type(error).__name__}: {error}") from error

    def _controls(self, tokens: Iterable[int]) -> list[int]:
        return [token for token in tokens if token in self._model.controls]

    def _harmless_controls(self, harmless: Conversation) -> list[int]:
        """The control tokens of a conversation in which nobody wrote one."""
        return self._controls(self._model.tokenize(self._render(harmless), controls=True))

    def _protected(self, asked: Conversation, rendered: str) -> list[int]:
        marks = _Marks()
        # A mark that somebody wrote gets a mark of its own, so that it stands for itself.
        spelling = re.compile(f"{self._spelling.pattern}|[{_LEFT}{_RIGHT}]")
        marked = _mapped(asked, marks.whole, lambda text: spelling.sub(lambda found: marks.bare(found[0]), text))
        parts = list(marks.parts(self._render(marked)))
        if "".join(text for text, _ in parts) != rendered:
            raise TemplateRefused(_REWRITTEN)
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
        for text, own in parts:
            at = 0
            for found in self._spelling.finditer(text) if own else ():
                yield text[at : found.start()], False
                yield found.group(), True
                at = found.end()
            yield text[at:], False


_REWRITTEN = (
    "a text spells out a control token of this model, and the model's chat template rewrites texts; "
    "leave the control token out"
)


class _Marks:
    """Marks, each a number, and the texts that they stand for."""

    def __init__(self) -> None:
        self._texts: list[str] = []

    def bare(self, text: str) -> str:
        """A mark for a text."""
        self._texts.append(text)
        return f"{_LEFT}{len(self._texts) - 1}{_RIGHT}"

    def whole(self, text: str) -> str:
        """A mark that shows whether it was trimmed. An empty text stays one, since templates ask for that."""
        return f"{_SPACE}{self.bare(text)}{_SPACE}" if text else ""

    def parts(self, marked: str) -> Iterator[tuple[str, bool]]:
        """A rendering in parts, with the texts back in: the template's own words (true) and people's (false)."""
        at = 0
        for mark in _MARK.finditer(marked):
            yield marked[at : mark.start()], True
            left, number, right = mark.groups()
            text = self._texts[int(number)]
            text = text if left else text.lstrip()
            yield text if right else text.rstrip(), False
            at = mark.end()
        yield marked[at:], True


def _mapped(asked: Conversation, whole: Callable[[str], str], inner: Callable[[str], str]) -> Conversation:
    """A conversation with its messages' texts changed by `whole`, those in functions and calls by `inner`."""
    messages = (
        Message(
            message.role,
            whole(message.content),
            tuple(
                ToolCall(inner(call.call_id), inner(call.name), _within(call.arguments, inner))
                for call in message.calls
            ),
            inner(message.call_id) if message.call_id else message.call_id,
        )
        for message in asked.messages
    )
    return Conversation(tuple(messages), tuple(_within(tool, inner) for tool in asked.tools))


def _within(text: str, change: Callable[[str], str]) -> str:
    """JSON with its names and texts changed; what is no JSON is one text."""
    try:
        return json.dumps(_changed(json.loads(text), change), ensure_ascii=False)
    except (ValueError, RecursionError):
        return change(text)


def _changed(value: Any, change: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return change(value)
    if isinstance(value, list):
        return [_changed(one, change) for one in value]
    if isinstance(value, dict):
        return {change(name): _changed(one, change) for name, one in value.items()}
    return value
