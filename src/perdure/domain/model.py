"""What the service knows about a model, and what it asks of one."""

from typing import Any, Literal

import msgspec

from perdure.domain.limits import TEMPERATURE_DEFAULT, TOP_P_DEFAULT


class ToolCall(msgspec.Struct, frozen=True):
    """A call of a function in a conversation. `arguments` is the text of a JSON object."""

    call_id: str
    name: str
    arguments: str


class Message(msgspec.Struct, frozen=True):
    """One turn of a conversation as a chat template takes it.

    `role` is `system`, `user`, `assistant` or `tool`. `calls` are those that an assistant made; a tool's turn is the
    result of the call `call_id`.
    """

    role: str
    content: str
    calls: tuple[ToolCall, ...] = ()
    call_id: str | None = None


class Tool(msgspec.Struct, frozen=True, tag_field="type", tag="function"):
    """A function that the model may call. `parameters` is the JSON Schema of its arguments, None for no arguments."""

    name: str
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class ToolChoice(msgspec.Struct, frozen=True):
    """Whether functions are called: `none`, if the model wants to (`auto`), or in any case (`required`).

    `names` are the only ones that may be called; None stands for all.
    """

    mode: Literal["none", "auto", "required"] = "auto"
    names: tuple[str, ...] | None = None


class PlainText(msgspec.Struct, frozen=True, tag_field="type", tag="text"):
    """Text as the model likes it."""


class JsonObject(msgspec.Struct, frozen=True, tag_field="type", tag="json_object"):
    """One JSON object."""


class JsonSchema(msgspec.Struct, frozen=True, tag_field="type", tag="json_schema"):
    """One JSON value of a schema."""

    name: str
    schema: dict[str, Any]
    description: str | None = None
    strict: bool | None = None


TextFormat = PlainText | JsonObject | JsonSchema


class Places(msgspec.Struct, frozen=True):
    """Where functions and the format stand in the caller's own request, so that he is told of them by his own paths.

    `tools` has a path for each function of the prompt, None where they are all the tools that there are.
    """

    tools: tuple[str, ...] | None = None
    format: str = "text.format"

    def tool(self, number: int) -> str:
        """The path of a function, by its place in the prompt."""
        return f"tools[{number}]" if self.tools is None else self.tools[number]


class Prompt(msgspec.Struct, frozen=True):
    """Everything that decides what a model reads, and what its answer may look like."""

    messages: tuple[Message, ...]
    tools: tuple[Tool, ...] = ()
    choice: ToolChoice = ToolChoice()
    parallel: bool = True
    format: TextFormat = PlainText()
    places: Places = Places()


class Shape(msgspec.Struct, frozen=True):
    """What an answer must look like, and how it is read. Kept beside the task, so that a restart goes on by the same.

    `grammar` is the text of an llguidance grammar, None where anything may be drawn. `calls` names the notation in
    which this model writes calls of functions, None where no call is looked for. `reasoning` says where the model
    writes for itself: nowhere, between its marks (`marked`), or from the start up to the closing mark (`open`, where
    the prompt holds the opening one). `call_bias` is added to the logit of the token that a call begins with, at the
    first place of the answer. `forced` says that it is calls or JSON, and that nothing else can be in it.
    """

    grammar: str | None = None
    calls: str | None = None
    reasoning: Literal["none", "marked", "open"] = "none"
    call_bias: float = 0.0
    forced: bool = False


class Encoded(msgspec.Struct, frozen=True):
    """A prompt as token ids, and the shape of the answer.

    `dropped` are the places of what the schemas ask for and the answer is not held to, by the caller's paths.
    """

    tokens: tuple[int, ...]
    shape: Shape = Shape()
    dropped: tuple[str, ...] = ()


class Sampling(msgspec.Struct, frozen=True):
    """How the next token is drawn. The draw is a function of (seed, position, tokens before), so it needs no state.

    The penalties count the answer's own tokens. `stop` are texts that end the answer and are not shown.
    `top_logprobs` is how many likely tokens are told for each place, None for no probabilities at all.
    """

    temperature: float
    top_p: float
    seed: int
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    stop: tuple[str, ...] = ()
    top_logprobs: int | None = None


class ModelCard(msgspec.Struct, frozen=True):
    """A model that can be asked.

    `digest` is the SHA-256 of the file, in hex. `context_length` is the window of one response in tokens, prompt and
    output together. `exact` says whether a resumed text is bit for bit the undisturbed one; `fingerprint` is the
    canonical JSON of everything that decides it (library, processor, settings). `temperature` and `top_p` are what a
    request gets that names none.
    """

    name: str
    digest: str
    size_bytes: int
    context_length: int
    exact: bool
    fingerprint: str
    created_at: int
    temperature: float = TEMPERATURE_DEFAULT
    top_p: float = TOP_P_DEFAULT
