"""What the clients of this folder ask for."""

from typing import Any, Literal

from openai.types.chat import ChatCompletionFunctionToolParam
from openai.types.responses import FunctionToolParam
from pydantic import BaseModel, ConfigDict

REAL = "smollm2-135m-instruct"
TINY = "tiny"
SHORT = 24
"""Tokens: enough to see that there is a text."""


class Fruit(BaseModel):
    """An answer with a shape; whatever the model, it is short."""

    model_config = ConfigDict(extra="forbid")

    colour: Literal["red", "green", "yellow"]
    ripe: bool


class Weather(BaseModel):
    """The weather in a city."""

    model_config = ConfigDict(extra="forbid")

    city: Literal["Paris", "Lima"]


PARAMETERS: dict[str, Any] = {
    "type": "object",
    "properties": {"city": {"type": "string", "enum": ["Paris", "Lima"]}},
    "required": ["city"],
    "additionalProperties": False,
}
WEATHER: FunctionToolParam = {
    "type": "function",
    "name": "get_weather",
    "description": "The weather in a city.",
    "parameters": PARAMETERS,
    "strict": True,
}
CHAT_WEATHER: ChatCompletionFunctionToolParam = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather in a city.",
        "parameters": PARAMETERS,
        "strict": True,
    },
}
