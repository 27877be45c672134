"""What the service knows about a model."""

import msgspec


class Message(msgspec.Struct, frozen=True):
    """One turn of a conversation as a chat template takes it."""

    role: str
    content: str


class Sampling(msgspec.Struct, frozen=True):
    """How the next token is drawn. The draw is a function of (seed, position), so it needs no state."""

    temperature: float
    top_p: float
    seed: int


class ModelCard(msgspec.Struct, frozen=True):
    """A model that can be asked.

    `digest` is the SHA-256 of the file, in hex. `context_length` is the window of one response in tokens, prompt and
    output together. `exact` says whether a resumed text is bit for bit the undisturbed one; `fingerprint` is the
    canonical JSON of everything that decides it (library, processor, settings).
    """

    name: str
    digest: str
    size_bytes: int
    context_length: int
    exact: bool
    fingerprint: str
    created_at: int
