"""The tokenizer of one model as the service sees it, over a child that may die at any time."""

import asyncio
from collections.abc import Awaitable, Callable

from perdure.domain.errors import InvalidRequest, ModelUnavailable
from perdure.domain.model import Encoded, Prompt
from perdure.ports.runtime import PromptTooLong
from perdure.runtime.llamacpp import wire
from perdure.runtime.llamacpp.keeper import Keeper

ENCODE_SECONDS_MAX = 90.0  # more than an order waits for its turn, and all its trials may take

_MODULE = "perdure.runtime.llamacpp.tokenizer_child"
_Reply = wire.Encoded | wire.TooLong | wire.NotEncoded | wire.Busy


class Tokenizer:
    """Encodes conversations in the tokenizer child of the model `name`. `opening` and `log` are as in `Keeper`."""

    def __init__(
        self, name: str, *, opening: Callable[[], Awaitable[wire.Order]], log: Callable[[str], None]
    ) -> None:
        self._name = name
        self._waiting: dict[int, asyncio.Future[_Reply]] = {}
        self._last_number = 0
        self.keeper = Keeper(
            _MODULE,
            wire.TokenizerReady,
            opening=opening,
            receive=self._receive,
            lost=self._lose,
            log=log,
        )

    async def encode(self, prompt: Prompt, tokens_max: int) -> Encoded:
        """See the port. A conversation of `tokens_max` tokens or more may be refused instead.

        Raises `UnicodeEncodeError` for half a surrogate pair, `OverflowError` for a number of more than 64 bits.
        """
        await self.keeper.ready()
        child = self.keeper.child
        if child is None:
            raise ModelUnavailable(f"The tokenizer of {self._name} is not running; try again.")
        self._last_number += 1
        number = self._last_number
        reply = self._waiting[number] = asyncio.get_running_loop().create_future()
        try:
            child.send(wire.Encode(number, prompt, tokens_max))
            async with asyncio.timeout(ENCODE_SECONDS_MAX):
                answer = await reply
        except TimeoutError as error:
            child.kill()
            raise ModelUnavailable(f"The tokenizer of {self._name} did not answer in time.") from error
        finally:
            self._waiting.pop(number, None)
        if isinstance(answer, wire.TooLong):
            raise PromptTooLong(f"at least {answer.least} tokens")
        if isinstance(answer, wire.NotEncoded):
            asked = answer.param != "input"
            what = "No answer can be held to this" if asked else f"The model {self._name} refuses this input"
            raise InvalidRequest(f"{what}: {answer.reason}", param=answer.param)
        if isinstance(answer, wire.Busy):
            raise ModelUnavailable(f"The schemas of the request could not be tried: {answer.reason}; try again.")
        return Encoded(answer.tokens, answer.shape, answer.dropped)

    def _receive(self, answer: wire.Answer) -> None:
        if not isinstance(answer, _Reply):
            raise wire.Nonsense(f"{type(answer).__name__} from a tokenizer")
        reply = self._waiting.get(answer.number)
        if reply is not None and not reply.done():
            reply.set_result(answer)

    def _lose(self, how: str) -> None:
        for reply in self._waiting.values():
            if not reply.done():
                reply.set_exception(ModelUnavailable(f"The tokenizer of {self._name} ended with {how}; try again."))
