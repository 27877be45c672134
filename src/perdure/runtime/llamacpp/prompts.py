"""What a prompt asks for, and the texts in it. Used by the service and its children alike, so it needs no library."""

from collections.abc import Iterator

import msgspec

from perdure.domain.model import JsonSchema, Prompt, Tool


def offered(prompt: Prompt) -> tuple[tuple[int, Tool], ...]:
    """The functions that may be called, with their places in the prompt. The model is shown these and no others."""
    choice = prompt.choice
    if choice.mode == "none":
        return ()
    tools = enumerate(prompt.tools)
    return tuple((place, tool) for place, tool in tools if choice.names is None or tool.name in choice.names)


def must_call(prompt: Prompt) -> bool:
    """Whether the answer is calls and nothing else."""
    return prompt.choice.mode == "required"


def texts(prompt: Prompt) -> Iterator[str]:
    """Everything that people wrote and the model reads. Schemas are written out, as shortly as can be."""
    for message in prompt.messages:
        yield message.content
        for call in message.calls:
            yield call.name
            yield call.arguments
    for _, tool in offered(prompt):
        yield tool.name
        yield tool.description or ""
        yield written(tool.parameters)
    if isinstance(prompt.format, JsonSchema) and not must_call(prompt):
        yield prompt.format.description or ""
        yield written(prompt.format.schema)


def written(value: object) -> str:
    """JSON as it is, in its order. `None` is no text."""
    return "" if value is None else msgspec.json.encode(value).decode()
