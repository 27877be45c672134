"""The fields of a chat request: which are served, and what becomes of the others, by the rules of `fields`."""

from collections.abc import Mapping

from perdure.api.fields import NotServed, one_of

SAME = frozenset(
    {
        "frequency_penalty",
        "metadata",
        "model",
        "on_restart",
        "parallel_tool_calls",
        "presence_penalty",
        "prompt_cache_key",
        "prompt_cache_options",
        "safety_identifier",
        "seed",
        "temperature",
        "top_p",
        "truncation",
        "user",
    }
)
"""Fields that mean the same in a create of a response, and are read by the same functions. `on_restart` and
`truncation` are no part of the interface elsewhere."""

SERVED = SAME | {
    "logprobs",
    "max_completion_tokens",
    "max_tokens",
    "messages",
    "reasoning_effort",
    "response_format",
    "stop",
    "store",
    "stream",
    "stream_options",
    "tool_choice",
    "tools",
    "top_logprobs",
    "verbosity",
}
"""Read by `chat_body`, which also names what of them has no effect."""

HINTS = frozenset({"prompt_cache_retention"})
"""They steer a hosted service and change no text."""

NOT_SERVED: NotServed = {
    "audio": (one_of(), "null; every answer is text"),
    "function_call": (one_of("none", "auto"), "`tool_choice`"),
    "functions": (one_of([]), "`tools`"),
    "logit_bias": (one_of({}), "{}"),
    "modalities": (one_of(["text"]), '["text"]'),
    "moderation": (one_of({}), "null"),
    "n": (one_of(1), "1; send the request again for another answer"),
    "prediction": (one_of(), "null"),
    "service_tier": (one_of("auto", "default"), '"auto" or "default"'),
    "web_search_options": (one_of(), "null; a search would be one of the `tools`"),
}
"""Fields of this API that are not served: the test for a value that asks for nothing else, and what to send."""

_RESPONSES = "use POST /v1/responses for it"

ELSEWHERE: Mapping[str, str] = {
    "background": _RESPONSES,
    "background_options": _RESPONSES,
    "conversation": "here all `messages` are sent each time",
    "include": "here probabilities are asked for with `logprobs`",
    "input": "here it is `messages`",
    "instructions": "here it is a message of the role `system`",
    "max_new_tokens": "here it is `max_completion_tokens`",
    "max_output_tokens": "here it is `max_completion_tokens`",
    "max_tool_calls": "here the caller makes all calls",
    "num_predict": "here it is `max_completion_tokens`",
    "options": "here each option is a field of its own",
    "previous_response_id": "here all `messages` are sent each time",
    "prompt": "here text is in `messages`",
    "reasoning": "here it is `reasoning_effort`",
    "stop_sequences": "here it is `stop`",
    "system": "here it is a message of the role `system`",
    "text": "here it is `response_format`",
}
"""Fields of other endpoints and other servers, and what stands for them here."""
