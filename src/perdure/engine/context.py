"""Context: the conversation that a response answers, from what its caller sent and what it goes on from.

With `previous_response_id` it is the parent's input, the parent's output and the caller's own items, in this order. A
child keeps all of it, so each turn reads one response, however long the chain is, and nothing that happens to the
parent later changes what the child has answered. Instructions are not inherited.
"""

import asyncio
from collections.abc import Collection, Sequence

from perdure.domain.errors import InvalidRequest, NotFound
from perdure.domain.items import Item, conversation, home, is_json_object, named
from perdure.domain.lifecycle import TERMINAL
from perdure.domain.limits import INPUT_ITEMS_MAX, REFERENCED_RESPONSES_MAX
from perdure.domain.principal import Principal
from perdure.domain.request import CreateRequest
from perdure.domain.response import response_id
from perdure.engine.kept import input_of, output_of
from perdure.engine.read import Read
from perdure.ports.storage import Store, TaskRecord


class Gathered:
    """Items in their order, each with an id of its own. `left_out` names those that no model can read: by their place
    in the request, or by their id where they are inherited."""

    def __init__(self) -> None:
        self.items: list[Item] = []
        self.left_out: list[str] = []
        self._ids: set[str] = set()
        self._calls: set[str] = set()
        self._broken: set[str] = set()

    def inherit(self, items: Sequence[Item]) -> None:
        """Take the items of the response before."""
        for item in items:
            if _is_broken_call(item):
                self._leave_out(item, item["id"])
            else:
                self._keep(item)

    def take(self, item: Item, where: str) -> None:
        """Take an item of the request. Raises `InvalidRequest` where it cannot stand there."""
        if item["id"] in self._ids:
            raise InvalidRequest(
                f"An item of this id stands in the conversation already ({where}); leave it out, or its id.",
                param=f"{where}.id",
                code="duplicate_item",
            )
        if item["type"] == "function_call_output" and item["call_id"] not in self._calls:
            raise _no_call(where, broken=item["call_id"] in self._broken)
        if not _is_broken_call(item):
            self._keep(item)
        elif item["status"] == "incomplete":
            self._leave_out(item, where)
        else:
            raise InvalidRequest(
                f"`{where}.arguments` must be the text of a JSON object.",
                param=f"{where}.arguments",
                code="invalid_value",
            )

    def _leave_out(self, call: Item, name: str) -> None:
        self.left_out.append(name)
        self._broken.add(call["call_id"])

    def _keep(self, item: Item) -> None:
        self.items.append(item)
        self._ids.add(item["id"])
        if item["type"] == "function_call":
            self._calls.add(item["call_id"])


class Context:
    """Finds what a request goes on from. `read` says what its caller may see."""

    def __init__(self, store: Store, read: Read) -> None:
        self._store = store
        self._read = read

    async def __call__(
        self, principal: Principal, request: CreateRequest, items: Sequence[Item], ident: str
    ) -> Gathered:
        """The conversation of the response `ident`. Raises `InvalidRequest`."""
        found, previous = Gathered(), request.previous_response_id
        if previous is not None:
            found.inherit(await self._parent(principal, previous))
        own = named(await self._resolved(principal, items), ident)
        if len(found.items) + len(own) > INPUT_ITEMS_MAX:
            raise InvalidRequest(
                f"The conversation has more than {INPUT_ITEMS_MAX} items; begin a new one.",
                param="input" if previous is None else "previous_response_id",
                code="out_of_range",
            )
        for place, item in enumerate(own):
            found.take(item, f"input[{place}]")
        if not conversation(request.instructions, found.items):
            raise InvalidRequest("There is nothing to answer; send some text.", param="input", code="empty_input")
        return found

    async def _parent(self, principal: Principal, previous: str) -> list[Item]:
        """All items of the response before."""
        record = await self._visible(principal, previous.removeprefix(response_id("")))
        if record is None or previous != response_id(record.ident):
            raise _no_parent()
        if record.status not in TERMINAL:
            raise InvalidRequest(
                "The previous response has not ended yet; wait for its end, or cancel it.",
                param="previous_response_id",
                code="previous_response_not_finished",
            )
        received, snapshot = await self._store.received(record.id), await self._store.snapshot(record.id)
        if not received or snapshot is None:
            raise _no_parent()  # it was deleted after the look at its record
        return [*input_of(received, record.ident), *output_of(snapshot)]

    async def _visible(self, principal: Principal, ident: str) -> TaskRecord | None:
        """The response, where it is the caller's own and there to stay."""
        try:
            record = await self._read.record(principal, ident)
        except NotFound:
            return None
        return record if record.stored else None

    async def _resolved(self, principal: Principal, items: Sequence[Item]) -> list[Item]:
        """The items with what they refer to in the place of references."""
        wanted = [item["id"] for item in items if item["type"] == "item_reference"]
        if not wanted:
            return list(items)
        found = await self._referenced(principal, wanted)
        resolved: list[Item] = []
        for place, item in enumerate(items):
            if item["type"] == "item_reference":
                if item["id"] not in found:
                    raise _no_item(place)
                resolved.append(found[item["id"]])
            else:
                resolved.append(item)
        return resolved

    async def _referenced(self, principal: Principal, wanted: Sequence[str]) -> dict[str, Item]:
        """Those of the wanted items that there are, by id. Each response is read once, for its items alone."""
        homes = {place for item_id in wanted if (place := home(item_id)) is not None}
        if len(homes) > REFERENCED_RESPONSES_MAX:
            raise InvalidRequest(
                f"The items belong to more than {REFERENCED_RESPONSES_MAX} responses; send some of them whole.",
                param="input",
                code="out_of_range",
            )
        ids, found = frozenset(wanted), dict[str, Item]()
        for ident, of_input in homes:
            for item in await self._items_of(principal, ident, of_input=of_input):
                if item["id"] in ids:
                    found[item["id"]] = item
            await asyncio.sleep(0)  # others have their turn between two reads
        return found

    async def _items_of(self, principal: Principal, ident: str, *, of_input: bool) -> Collection[Item]:
        record = await self._visible(principal, ident)
        if record is None:
            return ()
        if of_input:
            received = await self._store.received(record.id)
            return input_of(received, ident) if received else ()
        snapshot = await self._store.snapshot(record.id)
        return output_of(snapshot) if snapshot else ()


def _is_broken_call(item: Item) -> bool:
    """Whether it is a call whose arguments were never finished: no template could show it."""
    return item["type"] == "function_call" and not is_json_object(item["arguments"])


def _no_call(where: str, *, broken: bool) -> InvalidRequest:
    """The error for a result without a call. One that was sent and left out is told from one that is not there."""
    reason = (
        "The function call with this `call_id` is left out, since its `arguments` are not the text of a JSON object; "
        "leave out its output too, or send whole arguments."
        if broken
        else "No function call with this `call_id` stands before its output; send the call too, or the "
        "`previous_response_id` of the response that made it."
    )
    return InvalidRequest(reason, param=f"{where}.call_id", code="call_not_found")


def _no_parent() -> InvalidRequest:
    return InvalidRequest(
        "There is no stored response of this id that this token may see: it may have been deleted, have expired, or "
        "not be stored (`store: false`). Send the whole conversation as `input` instead.",
        param="previous_response_id",
        code="previous_response_not_found",
    )


def _no_item(place: int) -> InvalidRequest:
    return InvalidRequest(
        "There is no stored item of this id that this token may see; send the item itself instead. Only ids that "
        "this service has given out can be referred to.",
        param=f"input[{place}].id",
        code="item_not_found",
    )
