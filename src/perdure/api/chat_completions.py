"""Chat completions: the same work as a response, asked for and answered in the older shapes."""

from functools import partial
from typing import Any

from litestar import Request, post
from litestar.handlers import HTTPRouteHandler
from litestar.types import ASGIApp

from perdure.api import chat_answer, errors, lingering
from perdure.api.answers import location
from perdure.api.auth import needs
from perdure.api.awaited import Awaited
from perdure.api.chat_body import ChatBody, renamed
from perdure.api.chat_stream import Chunks, error_frame
from perdure.api.errors import LeftRunning
from perdure.api.lingering import Lingering
from perdure.api.query import Query
from perdure.api.sse import Stream
from perdure.domain.errors import InvalidRequest
from perdure.domain.principal import Principal, Scope
from perdure.engine.service import Service


class ChatCompletions:
    """The route `/v1/chat/completions`."""

    def __init__(self, service: Service, body: ChatBody, body_max_bytes: int) -> None:
        self._service = service
        self._body = body
        self._body_max_bytes = body_max_bytes

    def routes(self) -> list[HTTPRouteHandler]:
        """The handlers."""
        write = needs(Scope.RESPONSES_WRITE)
        return [post("/v1/chat/completions", operation_id="create_chat_completion", opt=write)(self.create)]

    async def create(self, request: Request[Principal, Any, Any]) -> ASGIApp:
        """Accept work in the foreground: who leaves stops it."""
        Query(request)
        asked = await lingering.read(request, self._body_max_bytes, self._body.read)
        if isinstance(asked, Lingering):
            return asked
        principal = request.user
        try:
            accepted = await self._service.submit(principal, asked.request, asked.items)
        except InvalidRequest as error:
            raise renamed(error, asked.places) from error
        errors.mark_kept(request)
        name = accepted.ident
        # From here to the follower nothing is awaited that could end this request with nobody attending.
        if asked.stream:
            chunks = Chunks(include_usage=asked.include_usage)
            following = self._service.follow(principal, name, -1)
            return Stream(following, [location(name)], render=chunks, cut=error_frame(LeftRunning(name)))
        answer = partial(chat_answer.answer, logprobs=asked.request.logprobs)
        return Awaited(self._service, principal, name, answer)
