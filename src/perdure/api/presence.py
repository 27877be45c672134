"""Whether the client is still there, for answers that take long."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from litestar.types import Receive


class ClientGone(Exception):
    """The client closed the connection; nobody is left to be answered."""


@asynccontextmanager
async def present(receive: Receive) -> AsyncGenerator[None]:
    """Run the block while the client is there. Once it leaves, the block is cancelled and `ClientGone` raised.

    The body of the request has been read, or there is none: what `receive` gives here is looked at for the end only.
    """
    stay = asyncio.timeout(None)
    try:
        async with stay:
            watcher = asyncio.create_task(_watch(receive, stay))
            try:
                yield
            finally:
                watcher.cancel()
    except TimeoutError:
        if stay.expired():
            raise ClientGone from None
        raise


async def _watch(receive: Receive, stay: asyncio.Timeout) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    stay.reschedule(asyncio.get_running_loop().time())
