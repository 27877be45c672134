"""A model file in memory: what it says about itself, its vocabulary and its tokenizer. Child processes only."""

import ctypes as c
import os
from functools import cached_property
from pathlib import Path

from perdure.runtime.llamacpp import library as lib
from perdure.runtime.llamacpp import plan

_MAGIC = b"GGUF"
_META_MAX_BYTES = 4096
_PIECE_BYTES = 256


class ModelRefused(Exception):
    """The file cannot be used as a model; the message is the reason, for people. It names no path: it is told to
    everybody who asks for the model."""


def check_file(path: Path) -> None:
    """Raise `ModelRefused` for what needs no library to see."""
    try:
        with path.open("rb") as file:
            head = file.read(len(_MAGIC))
    except OSError as error:
        raise ModelRefused(f"its file cannot be read ({error.strerror})") from error
    if head != _MAGIC:
        raise ModelRefused("its file is not a GGUF file")


class Model:
    """An open model. `vocab_only` leaves the weights out; otherwise every tensor is checked for valid numbers."""

    def __init__(self, library: c.CDLL, path: Path, *, vocab_only: bool = False) -> None:
        check_file(path)
        self.library = library
        self.path = path
        self._log = lib.Log(library)
        library.llama_backend_init()
        params = library.llama_model_default_params()
        params.vocab_only = vocab_only
        params.check_tensors = True  # 20 ms for 100 MB; without it a damaged file draws from NaN
        self.handle: int | None = library.llama_model_load_from_file(os.fsencode(path), params)
        if self.handle is None:
            raise self._refusal()
        self._vocabulary: int = library.llama_model_get_vocab(self.handle)
        self.tokens: int = library.llama_vocab_n_tokens(self._vocabulary)

    def _refusal(self) -> ModelRefused:
        reason = self._log.reason().replace(str(self.path), "the file")
        return ModelRefused(f"its file cannot be loaded ({reason or 'llama.cpp gives no reason'})")

    def close(self) -> None:
        """Give the memory back. May be repeated."""
        if self.handle is not None:
            self.library.llama_model_free(self.handle)
            self.handle = None

    # What the file says.

    def meta(self, key: str) -> str | None:
        """A value of the file's metadata as text; `None` where it is missing or a list."""
        buffer = c.create_string_buffer(_META_MAX_BYTES)
        size = self.library.llama_model_meta_val_str(self.handle, key.encode(), buffer, _META_MAX_BYTES)
        return buffer.value.decode("utf-8", "replace") if size >= 0 else None

    def _number(self, key: str) -> int | None:
        text = self.meta(key)
        return int(text) if text is not None and text.isdecimal() else None

    @cached_property
    def architecture(self) -> str:
        """The name of the network's design, such as `llama`."""
        return self.meta("general.architecture") or ""

    @property
    def file_type(self) -> int | None:
        """`general.file_type`: the number of the quantisation that most weights have."""
        return self._number("general.file_type")

    @property
    def context_train(self) -> int:
        """The window in tokens that the model was trained for; 0 if the file does not say."""
        return self._number(f"{self.architecture}.context_length") or 0

    @cached_property
    def chat_template(self) -> str | None:
        """The Jinja source of the chat template."""
        source: bytes | None = self.library.llama_model_chat_template(self.handle, None)
        return source.decode("utf-8", "replace") if source else None

    def kv_bytes_per_token(self) -> int:
        """The key/value memory of one token in bytes, never too little.

        Where the file gives other numbers for each layer, every head counts. Raises `ModelRefused` where it gives
        no numbers at all.
        """
        layers = self._number(f"{self.architecture}.block_count")
        width = self._number(f"{self.architecture}.embedding_length")
        heads = self._number(f"{self.architecture}.attention.head_count")
        if not layers or not width:
            raise ModelRefused(f"the architecture {self.architecture!r} has no layers that Perdure knows of")
        heads_kv = self._number(f"{self.architecture}.attention.head_count_kv") or heads
        share = width // heads if heads else width
        key = self._number(f"{self.architecture}.attention.key_length") or share
        value = self._number(f"{self.architecture}.attention.value_length") or share
        return layers * (heads_kv or 1) * (key + value) * plan.KV_ELEMENT_BYTES

    def weight_types(self) -> tuple[str, ...]:
        """The number formats that occur among the tensors, by name, sorted."""
        file = self.library.gguf_init_from_file(os.fsencode(self.path), lib.GgufParams(no_alloc=True))
        if file is None:
            raise self._refusal()
        try:
            count = self.library.gguf_get_n_tensors(file)
            kinds = {self.library.gguf_get_tensor_type(file, index) for index in range(count)}
        finally:
            self.library.gguf_free(file)
        return tuple(sorted(self.library.ggml_type_name(kind).decode() for kind in kinds))

    # The vocabulary.

    def token_text(self, token: int) -> str:
        """A token as the vocabulary spells it."""
        return self.library.llama_vocab_get_text(self._vocabulary, token).decode("utf-8", "replace")

    @cached_property
    def controls(self) -> frozenset[int]:
        """The tokens that steer the model and stand for no text."""
        mask = lib.TOKEN_CONTROL | lib.TOKEN_UNKNOWN
        attributes = self.library.llama_vocab_get_attr
        return frozenset(token for token in range(self.tokens) if attributes(self._vocabulary, token) & mask)

    @property
    def first_token(self) -> int | None:
        """The token that every prompt of this model starts with, if it has one."""
        if not self.library.llama_vocab_get_add_bos(self._vocabulary):
            return None
        token = self.library.llama_vocab_bos(self._vocabulary)
        return token if token >= 0 else None

    def mark(self, which: str) -> str:
        """The text of the token `bos` or `eos`, as chat templates name it; empty if there is none."""
        token = getattr(self.library, f"llama_vocab_{which}")(self._vocabulary)
        return self.token_text(token) if token >= 0 else ""

    def ends(self, token: int) -> bool:
        """Whether the token closes the model's turn."""
        return bool(self.library.llama_vocab_is_eog(self._vocabulary, token))

    def bytes_of(self, token: int) -> bytes:
        """The bytes a token stands for; none for control tokens."""
        size = _PIECE_BYTES
        while True:
            buffer = c.create_string_buffer(size)
            length = self.library.llama_token_to_piece(self._vocabulary, token, buffer, size, 0, False)
            if length >= 0:
                return buffer.raw[:length]
            size = -length

    def tokenize(self, text: str, *, controls: bool) -> list[int]:
        """The token ids of a text. Spelled-out control tokens become what they name only where `controls` is true."""
        if not text:
            return []
        data = text.encode()
        room = len(data) + 8
        buffer = (c.c_int32 * room)()
        count = self.library.llama_tokenize(self._vocabulary, data, len(data), buffer, room, False, controls)
        if count < 0:
            raise ModelRefused(f"its tokenizer gave {-count} tokens for {len(data)} bytes")
        return buffer[:count]
