"""A create request after validation: every default resolved, nothing left to guess.

It is stored as JSON beside the task, so that a restart builds the same prompt, the same draws and the same snapshots.
"""

import msgspec

from perdure.domain.model import Message, Sampling
from perdure.domain.recovery import OnRestart


class CreateRequest(msgspec.Struct, frozen=True, omit_defaults=False):
    """What a caller asked for.

    `seed` is the caller's, or drawn once at submit. `max_output_tokens` is None when the caller set none: the text
    then ends at the window at the latest. `ignored` names the fields that had no effect.

    A field that comes later stands last and has a default: requests that were kept before it do not name it.
    """

    model: str
    messages: tuple[Message, ...]
    instructions: str | None
    background: bool
    store: bool
    temperature: float
    top_p: float
    max_output_tokens: int | None
    metadata: dict[str, str]
    seed: int
    on_restart: OnRestart
    ignored: tuple[str, ...] = ()

    @property
    def conversation(self) -> tuple[Message, ...]:
        """The messages as the chat template takes them, the instructions first as a system message."""
        if self.instructions is None or not self.instructions:
            return self.messages
        return (Message("system", self.instructions), *self.messages)

    @property
    def sampling(self) -> Sampling:
        """How to draw."""
        return Sampling(temperature=self.temperature, top_p=self.top_p, seed=self.seed)
