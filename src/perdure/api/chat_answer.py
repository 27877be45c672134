"""A response as a chat completion: the objects of that interface, and what becomes of a response that failed."""

from collections.abc import Iterable
from typing import Literal

import msgspec
from msgspec import UNSET, UnsetType

from perdure.api import errors
from perdure.api.answers import Answer, Header
from perdure.domain.errors import PerdureError
from perdure.domain.parts import Logprob
from perdure.domain.response import Extension, FunctionCall, OutputMessage, OutputText, ReasoningItem, Response, Usage

FinishReason = Literal["stop", "length", "tool_calls"]


class CalledFunction(msgspec.Struct, frozen=True):
    """What is called. `arguments` is the text of a JSON object once the call is whole."""

    name: str
    arguments: str


class ChatToolCall(msgspec.Struct, frozen=True):
    """A call that the model made."""

    id: str
    function: CalledFunction
    type: Literal["function"] = "function"


class ChatMessage(msgspec.Struct, frozen=True):
    """What the model wrote. `content` is null where it wrote calls and no text.

    `reasoning_content` is the name under which servers of open models hand out what a model writes for itself; the
    interface has none of its own.
    """

    content: str | None
    tool_calls: tuple[ChatToolCall, ...] | UnsetType = UNSET
    reasoning_content: str | UnsetType = UNSET
    refusal: None = None
    annotations: tuple[()] = ()
    role: Literal["assistant"] = "assistant"


class ChatLogprobs(msgspec.Struct, frozen=True):
    """An entry for each token of the content."""

    content: tuple[Logprob, ...] = ()
    refusal: None = None


class ChatChoice(msgspec.Struct, frozen=True):
    """The one answer of a completion."""

    message: ChatMessage
    finish_reason: FinishReason
    logprobs: ChatLogprobs | None
    index: Literal[0] = 0


class PromptTokensDetails(msgspec.Struct, frozen=True):
    """Where the prompt's tokens came from."""

    cached_tokens: int


class CompletionTokensDetails(msgspec.Struct, frozen=True):
    """What the drawn tokens were used for."""

    reasoning_tokens: int


class ChatUsage(msgspec.Struct, frozen=True):
    """Token counts, the same as those of the response."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptTokensDetails
    completion_tokens_details: CompletionTokensDetails


class ChatCompletion(msgspec.Struct, frozen=True):
    """The whole answer. From `temperature` to `perdure` it is ours, and says what it says in the response object."""

    id: str
    created: int
    model: str
    choices: tuple[ChatChoice, ...]
    usage: ChatUsage
    metadata: dict[str, str]
    temperature: float
    top_p: float
    seed: int
    perdure: Extension
    object: Literal["chat.completion"] = "chat.completion"
    service_tier: Literal["default"] = "default"


def answer(response: bytes, headers: Iterable[Header], *, logprobs: bool) -> Answer:
    """The HTTP answer for a response that has ended, given as JSON.

    The interface has no completion that failed: its clients read the text of every 200. So a failure is an error, and
    one that asks not to be repeated: the official clients repeat a 5xx by themselves, and a repeated create would be
    a second task, which does the whole work again.
    """
    ended = msgspec.json.decode(response, type=Response)
    error = failure(ended)
    if error is not None:
        refusal = errors.answer(error, kept=True)
        refusal.headers.extend(headers)
        return refusal
    told = completion(ended, logprobs=logprobs)
    return Answer(msgspec.json.encode(told), headers=headers)


def completion(response: Response, *, logprobs: bool) -> ChatCompletion:
    """The completion of a response that ended well. `logprobs` says whether the caller asked for them."""
    message = _message(response)
    told = tuple(each for part in _texts(response) for each in part.logprobs)
    choice = ChatChoice(message, finish_reason(response), ChatLogprobs(told) if logprobs else None)
    return ChatCompletion(
        id=completion_id(response),
        created=response.created_at,
        model=response.model,
        choices=(choice,),
        usage=usage(response),
        metadata=response.metadata,
        temperature=response.temperature,
        top_p=response.top_p,
        seed=response.seed,
        perdure=response.perdure,
    )


def completion_id(response: Response) -> str:
    """The outside name: the response's, with another prefix."""
    return "chatcmpl-" + response.id.removeprefix("resp_")


def finish_reason(response: Response) -> FinishReason:
    """Why the text ends. A call that was cut off is no call to be made, so the limit goes first."""
    if response.status == "incomplete":
        return "length"
    return "tool_calls" if any(isinstance(item, FunctionCall) for item in response.output) else "stop"


def failure(response: Response) -> PerdureError | None:
    """The error that stands for a response that failed or was cancelled."""
    if response.status == "cancelled":
        return PerdureError("The work was cancelled before it had ended.", code="response_cancelled")
    if response.status != "failed":
        return None
    assert response.error is not None  # noqa: S101 -- a response that failed says why
    detail = f" ({response.error.detail})" if response.error.detail else ""
    return PerdureError(response.error.message + detail, code=response.error.code)


def usage(response: Response) -> ChatUsage:
    """The counts under the names of this interface."""
    counted = response.usage
    assert isinstance(counted, Usage)  # noqa: S101 -- a response that has ended has counts
    return ChatUsage(
        prompt_tokens=counted.input_tokens,
        completion_tokens=counted.output_tokens,
        total_tokens=counted.total_tokens,
        prompt_tokens_details=PromptTokensDetails(counted.input_tokens_details.cached_tokens),
        completion_tokens_details=CompletionTokensDetails(counted.output_tokens_details.reasoning_tokens),
    )


def _message(response: Response) -> ChatMessage:
    calls = tuple(
        ChatToolCall(item.call_id, CalledFunction(item.name, item.arguments))
        for item in response.output
        if isinstance(item, FunctionCall)
    )
    texts = [part.text for part in _texts(response)]
    reasoning = "".join(
        part.text for item in response.output if isinstance(item, ReasoningItem) for part in item.content
    )
    return ChatMessage(
        content="".join(texts) if texts or not calls else None,
        tool_calls=calls or UNSET,
        reasoning_content=reasoning or UNSET,
    )


def _texts(response: Response) -> list[OutputText]:
    return [part for item in response.output if isinstance(item, OutputMessage) for part in item.content]
