"""A create request after validation. Once it is settled every default is resolved, and nothing is left to guess.

It is stored as JSON beside the task, so that a restart builds the same draws and the same snapshots. The conversation
itself is kept apart: as items, and as the token ids of the prompt.
"""

from collections.abc import Sequence
from typing import Any, Literal

import msgspec

from perdure.domain.items import Item, conversation
from perdure.domain.model import (
    ModelCard,
    Places,
    PlainText,
    Prompt,
    Sampling,
    Shape,
    TextFormat,
    Tool,
    ToolChoice,
)
from perdure.domain.recovery import OnRestart


class CreateRequest(msgspec.Struct, frozen=True, omit_defaults=False):
    """What a caller asked for.

    `temperature` and `top_p` are None where the caller gave none, up to `settled`: never in what is kept or shown.
    `seed` is the caller's, or drawn once at submit. `max_output_tokens` is None when the caller set none: the text
    then ends at the window at the latest. `ignored` names the fields and items that had no effect. `tool_choice` and
    `reasoning` are shown as they came; `choice` is what the former means. `logprobs` says whether probabilities are
    told. `truncated` and `shape` are settled at submit: the ids of the items that were left out of the prompt, and
    what the answer looks like. `places` says how the caller's own request names functions and format.

    A field that comes later stands last and has a default: requests that were kept before it do not name it.
    """

    model: str
    instructions: str | None
    background: bool
    store: bool
    temperature: float | None
    top_p: float | None
    max_output_tokens: int | None
    metadata: dict[str, str]
    seed: int
    on_restart: OnRestart
    ignored: tuple[str, ...] = ()
    previous_response_id: str | None = None
    tools: tuple[Tool, ...] = ()
    tool_choice: Any = "auto"
    choice: ToolChoice = ToolChoice()
    parallel_tool_calls: bool = True
    max_tool_calls: int | None = None
    format: TextFormat = PlainText()
    verbosity: str = "medium"
    truncation: Literal["auto", "disabled"] = "disabled"
    logprobs: bool = False
    top_logprobs: int = 0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    stop: tuple[str, ...] = ()
    reasoning: dict[str, Any] | None = None
    safety_identifier: str | None = None
    prompt_cache_key: str | None = None
    user: str | None = None
    truncated: tuple[str, ...] = ()
    shape: Shape = Shape()
    places: Places = Places()

    def settled(self, card: ModelCard) -> "CreateRequest":
        """The same, with the model's own sampling where the caller gave none."""
        return msgspec.structs.replace(
            self,
            temperature=card.temperature if self.temperature is None else self.temperature,
            top_p=card.top_p if self.top_p is None else self.top_p,
        )

    def prompt(self, items: Sequence[Item]) -> Prompt:
        """What the model reads, after these items."""
        return Prompt(
            messages=conversation(self.instructions, items),
            tools=self.tools,
            choice=self.choice,
            parallel=self.parallel_tool_calls,
            format=self.format,
            places=self.places,
        )

    @property
    def sampling(self) -> Sampling:
        """How to draw. For a request that is settled."""
        if self.temperature is None or self.top_p is None:
            raise AssertionError("a request is settled at submit, before anything is shown or drawn")
        return Sampling(
            temperature=self.temperature,
            top_p=self.top_p,
            seed=self.seed,
            presence_penalty=self.presence_penalty,
            frequency_penalty=self.frequency_penalty,
            stop=self.stop,
            top_logprobs=self.top_logprobs if self.logprobs else None,
        )
