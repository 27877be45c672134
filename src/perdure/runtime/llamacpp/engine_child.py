"""The child that draws: one model, its slots, and a loop that reads orders between two decode calls.

Run as `python -m perdure.runtime.llamacpp.engine_child`; speaks `wire` over standard input and output.
"""

import os
from pathlib import Path

from perdure.runtime.llamacpp import wire
from perdure.runtime.llamacpp.batch import Batch
from perdure.runtime.llamacpp.child import Channel, library_path, run
from perdure.runtime.llamacpp.context import Context
from perdure.runtime.llamacpp.library import LibraryUnusable, open_library
from perdure.runtime.llamacpp.model import Model, ModelRefused
from perdure.runtime.llamacpp.plan import DoesNotFit, make_plan


def _open(opening: wire.OpenEngine) -> tuple[Batch, wire.EngineReady]:
    model = Model(open_library(library_path(opening)), Path(os.fsdecode(opening.path)))
    plan = make_plan(
        bytes_per_token=model.kv_bytes_per_token(),
        context_train=model.context_train,
        slots=opening.slots,
        window=opening.window,
        memory_max_bytes=opening.memory_max_bytes,
    )
    context = Context(model, slots=plan.slots, window=plan.window, threads=opening.threads)
    batch = Batch(context, model, slots=plan.slots, window=plan.window)
    return batch, wire.EngineReady(slots=plan.slots, window=plan.window)


def _take(batch: Batch, order: wire.Order) -> None:
    match order:
        case wire.Draw():
            batch.add(order)
        case wire.Stop(run=run):
            batch.stop(run)
        case _:
            raise AssertionError(f"an engine takes no {type(order).__name__}")


def _turn(channel: Channel, batch: Batch) -> None:
    """Take every order that waits (or wait for one when there is nothing to draw), decode once, report once."""
    order = channel.receive_now() if batch.busy else channel.receive()
    while order is not None:
        _take(batch, order)
        order = channel.receive_now()
    if batch.busy:
        batch.step()
    channel.send(batch.report())


def main() -> None:
    """Open the model that the first order names, then draw until the parent goes."""
    channel = Channel()
    opening = channel.receive()
    assert isinstance(opening, wire.OpenEngine)  # noqa: S101 - a broken invariant of the parent
    try:
        batch, ready = _open(opening)
    except (LibraryUnusable, ModelRefused, DoesNotFit) as error:
        channel.send(wire.Refused(str(error)))
        os._exit(0)
    channel.send(ready)
    while True:
        _turn(channel, batch)


if __name__ == "__main__":
    run(main)
