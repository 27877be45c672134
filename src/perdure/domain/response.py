"""The response object of the Responses API, with every key that the stricter open specification requires."""

from typing import Any, Literal

import msgspec

from perdure.domain.model import PlainText, TextFormat, Tool
from perdure.domain.parts import Logprob
from perdure.domain.request import CreateRequest

ItemStatus = Literal["in_progress", "completed", "incomplete"]


class OutputText(msgspec.Struct, frozen=True, tag_field="type", tag="output_text"):
    """A text part of a message."""

    text: str
    annotations: tuple[()] = ()
    logprobs: tuple[Logprob, ...] = ()


class OutputMessage(msgspec.Struct, frozen=True, tag_field="type", tag="message"):
    """A message that the model wrote."""

    id: str
    status: ItemStatus
    content: tuple[OutputText, ...] = ()
    role: Literal["assistant"] = "assistant"


class FunctionCall(msgspec.Struct, frozen=True, tag_field="type", tag="function_call"):
    """A call of a function that the model made. `arguments` is the text of a JSON object once it is `completed`."""

    id: str
    status: ItemStatus
    call_id: str
    name: str
    arguments: str = ""


class ReasoningText(msgspec.Struct, frozen=True, tag_field="type", tag="reasoning_text"):
    """The text of reasoning."""

    text: str


class ReasoningItem(msgspec.Struct, frozen=True, tag_field="type", tag="reasoning"):
    """What the model wrote for itself."""

    id: str
    status: ItemStatus
    content: tuple[ReasoningText, ...] = ()
    summary: tuple[()] = ()


OutputItem = OutputMessage | FunctionCall | ReasoningItem


class InputTokensDetails(msgspec.Struct, frozen=True):
    """Where the input tokens came from."""

    cached_tokens: int = 0
    cache_write_tokens: int = 0


class OutputTokensDetails(msgspec.Struct, frozen=True):
    """What the output tokens were used for."""

    reasoning_tokens: int = 0


class Usage(msgspec.Struct, frozen=True):
    """Token counts. Output tokens are the drawn ones, the model's end mark included."""

    input_tokens: int
    output_tokens: int
    total_tokens: int
    input_tokens_details: InputTokensDetails = InputTokensDetails()
    output_tokens_details: OutputTokensDetails = OutputTokensDetails()


class ResponseError(msgspec.Struct, frozen=True, omit_defaults=True):
    """Why a response failed. `detail` is ours: the finer reason, where there is one."""

    code: str
    message: str
    detail: str | None = None


class IncompleteDetails(msgspec.Struct, frozen=True):
    """Why a response is not complete."""

    reason: Literal["max_output_tokens"]


class TextSettings(msgspec.Struct, frozen=True):
    """The `text` field."""

    format: TextFormat = PlainText()
    verbosity: str = "medium"


class Extension(msgspec.Struct, frozen=True):
    """What Perdure adds: nothing that was left out or done differently stays unsaid.

    `ignored` names request fields, items and tools that had no effect, `truncated` the ids of the items that were
    left out of the prompt to make it fit, `resume` is `exact` when a resumed text is bit for bit the undisturbed one
    and `approximate` otherwise, `attempt` counts the starts of the text, resumes not counted.
    """

    ignored: tuple[str, ...]
    truncated: tuple[str, ...]
    resume: Literal["exact", "approximate"]
    attempt: int
    on_restart: str


class Response(msgspec.Struct, frozen=True):
    """The response object."""

    id: str
    created_at: int
    status: str
    model: str
    output: tuple[OutputItem, ...]
    error: ResponseError | None
    incomplete_details: IncompleteDetails | None
    completed_at: int | None
    usage: Usage | None
    instructions: str | None
    metadata: dict[str, str]
    temperature: float
    top_p: float
    max_output_tokens: int | None
    background: bool
    store: bool
    seed: int
    perdure: Extension
    object: Literal["response"] = "response"
    parallel_tool_calls: bool = True
    tool_choice: Any = "auto"
    tools: tuple[Tool, ...] = ()
    previous_response_id: str | None = None
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    top_logprobs: int = 0
    max_tool_calls: int | None = None
    truncation: str = "disabled"
    text: TextSettings = TextSettings()
    reasoning: dict[str, Any] | None = None
    service_tier: Literal["default"] = "default"
    safety_identifier: str | None = None
    prompt_cache_key: str | None = None
    user: str | None = None


def response_id(ident: str) -> str:
    """The outside name of a response."""
    return f"resp_{ident}"


def task_id(ident: str) -> str:
    """The outside name of the task behind it."""
    return f"task_{ident}"


class Progress(msgspec.Struct, frozen=True):
    """The part of a response that changes while it is worked on."""

    status: str
    attempt: int = 1
    exact: bool = True
    output: tuple[OutputItem, ...] = ()
    usage: Usage | None = None
    error: ResponseError | None = None
    incomplete: IncompleteDetails | None = None
    completed_at: int | None = None


_SETTLED = ("temperature", "top_p")
_ECHOED = tuple(
    name for name in CreateRequest.__struct_fields__ if name in Response.__struct_fields__ and name not in _SETTLED
)


def render(ident: str, created_at: int, request: CreateRequest, progress: Progress) -> Response:
    """The response object at this moment. `created_at` is in seconds since 1970; the request is settled."""
    sampling = request.sampling
    return Response(
        id=response_id(ident),
        created_at=created_at,
        status=progress.status,
        output=progress.output,
        error=progress.error,
        incomplete_details=progress.incomplete,
        completed_at=progress.completed_at,
        usage=progress.usage,
        temperature=sampling.temperature,
        top_p=sampling.top_p,
        text=TextSettings(request.format, request.verbosity),
        perdure=Extension(
            ignored=request.ignored,
            truncated=request.truncated,
            resume="exact" if progress.exact else "approximate",
            attempt=progress.attempt,
            on_restart=str(request.on_restart),
        ),
        **{name: getattr(request, name) for name in _ECHOED},
    )


def usage(input_tokens: int, output_tokens: int, reasoning_tokens: int) -> Usage:
    """Counts for a response."""
    return Usage(
        input_tokens,
        output_tokens,
        input_tokens + output_tokens,
        output_tokens_details=OutputTokensDetails(reasoning_tokens),
    )
