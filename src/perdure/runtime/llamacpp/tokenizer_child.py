"""The child that knows a model's words: chat template, tokenizer, and what the file says about itself.

Run as `python -m perdure.runtime.llamacpp.tokenizer_child`; speaks `wire` over standard input and output.
"""

import os
from pathlib import Path

from perdure.domain.model import Shape
from perdure.runtime.llamacpp import wire
from perdure.runtime.llamacpp.child import Pipes, library_path, run
from perdure.runtime.llamacpp.library import LibraryUnusable, open_library
from perdure.runtime.llamacpp.model import Model, ModelRefused
from perdure.runtime.llamacpp.template import ChatTemplate, TemplateRefused, TemplateUnusable


def _facts(model: Model) -> wire.TokenizerReady:
    library = model.library
    return wire.TokenizerReady(
        architecture=model.architecture,
        file_type=model.file_type,
        weight_types=model.weight_types(),
        context_train=model.context_train,
        kv_bytes_per_token=model.kv_bytes_per_token(),
        token_bytes_max=max(len(model.bytes_of(token)) for token in range(model.tokens)),
        library_version=library.llama_version().decode(),
        system_info=library.llama_print_system_info().decode().strip(),
    )


def _encode(template: ChatTemplate, order: wire.Encode) -> wire.Encoded | wire.TooLong | wire.NotEncoded:
    messages = order.prompt.messages
    least = template.at_least(messages)
    if least >= order.tokens_max:  # found out before the work: tokenising takes the longer the more there is
        return wire.TooLong(order.number, least)
    try:
        return wire.Encoded(order.number, template.encode(messages), Shape())
    except TemplateRefused as error:
        return wire.NotEncoded(order.number, str(error), "input")


def main() -> None:
    """Open the model that the first order names, then encode until the parent goes."""
    pipes = Pipes()  # without a thread that reads: to hand each order over would cost as much as to encode it
    opening = pipes.receive()
    assert isinstance(opening, wire.OpenTokenizer)  # noqa: S101 - a broken invariant of the parent
    try:
        model = Model(open_library(library_path(opening)), Path(os.fsdecode(opening.path)), vocab_only=True)
        template = ChatTemplate(model, model.chat_template)
        pipes.send(_facts(model))
    except (LibraryUnusable, ModelRefused, TemplateUnusable) as error:
        pipes.send(wire.Refused(str(error)))
        os._exit(0)
    while True:
        order = pipes.receive()
        assert isinstance(order, wire.Encode)  # noqa: S101 - as above
        pipes.send(_encode(template, order))


if __name__ == "__main__":
    run(main)
