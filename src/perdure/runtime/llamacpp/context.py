"""The working memory of a model: one slot a text, and the call that reads rows and gives logits.

The settings are the ones in which a text's logits do not depend on what else is computed beside it, or on how its
tokens were divided over calls (measured for what `exactness.is_exact` accepts):

- at most 32 rows a call: from 64 rows of one text on, flash attention sums in another order;
- flash attention on, and one thread: with more, the split over threads changes the order for long texts;
- memory apart for each slot: in a shared one a text's cells scatter over reused places, and the sum follows them.

That is also why another text may have left the beginning of a text in its slot: in memory of its own, a token's cell
is the one of its position, and what is in it does not depend on how it was read. Of memory that is apart, only the
whole of a slot can be copied.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from perdure.runtime.llamacpp import library as lib
from perdure.runtime.llamacpp.model import Model, ModelRefused
from perdure.runtime.llamacpp.plan import ROWS_MAX


class DecodeFailed(Exception):
    """The library could not compute; the memory of the slots cannot be trusted any more."""


class Row(NamedTuple):
    """One token to read: its place in its text, its slot, and whether the logits after it are wanted."""

    token: int
    position: int
    slot: int
    wanted: bool


class Context:
    """Working memory for `slots` texts of `window` tokens each. Raises `ModelRefused` where it cannot be had."""

    def __init__(self, model: Model, *, slots: int, window: int, threads: int) -> None:
        self._library = model.library
        self._vocabulary = model.tokens
        params = self._library.llama_context_default_params()
        params.n_ctx, params.n_seq_max = slots * window, slots
        params.n_batch = params.n_ubatch = ROWS_MAX
        params.n_threads = params.n_threads_batch = threads
        params.flash_attn_type = lib.FLASH_ATTENTION_ON
        params.type_k = params.type_v = lib.KV_TYPE_F16
        params.kv_unified = False
        self._handle: int | None = self._library.llama_init_from_model(model.handle, params)
        if self._handle is None:
            raise ModelRefused(f"llama.cpp makes no room for {slots} texts of {window} tokens")
        self._memory: int = self._library.llama_get_memory(self._handle)
        self._batch = self._library.llama_batch_init(ROWS_MAX, 0, 1)
        if self._library.llama_n_ctx_seq(self._handle) < window:
            self.close()
            raise ModelRefused(f"llama.cpp gives a slot less than {window} tokens")

    def decode(self, rows: Sequence[Row]) -> None:
        """Read the rows, at most `ROWS_MAX`. Raises `DecodeFailed`.

        Every token must be one of the vocabulary, and a text's positions must follow one another from 0. Rows in the
        order of their slots are computed together as far as the slots are neighbours; others slot after slot.
        """
        if not 0 < len(rows) <= ROWS_MAX:  # the library aborts the process over one row too many
            raise AssertionError(f"{len(rows)} rows in one call")
        batch = self._batch
        batch.n_tokens = len(rows)
        for index, row in enumerate(rows):
            batch.token[index] = row.token
            batch.pos[index] = row.position
            batch.n_seq_id[index] = 1
            batch.seq_id[index][0] = row.slot
            batch.logits[index] = row.wanted
        code = self._library.llama_decode(self._handle, batch)
        if code != 0:
            raise DecodeFailed(f"llama_decode gave {code} for {len(rows)} rows")

    def logits(self, index: int) -> NDArray[np.float32]:
        """The logits after the wanted row `index` of the last call: a view that the next call overwrites."""
        pointer = self._library.llama_get_logits_ith(self._handle, index)
        if not pointer:
            raise DecodeFailed(f"llama_get_logits_ith has nothing for row {index}")
        return np.ctypeslib.as_array(pointer, shape=(self._vocabulary,))

    def cut(self, slot: int, length: int) -> int:
        """Forget the text in a slot from the position `length` on. Gives how much of it is left: `length`, or 0.

        A text that is not there from its beginning (a sliding window has moved on) is no good for another one, and
        the state of a recurrent model cannot be taken back. Raises `DecodeFailed`.
        """
        there = self._library.llama_memory_seq_pos_min(self._memory, slot) == 0
        if length and there and self._library.llama_memory_seq_rm(self._memory, slot, length, -1):
            return length
        if not self._library.llama_memory_seq_rm(self._memory, slot, -1, -1):
            raise DecodeFailed(f"slot {slot} cannot be cleared")
        return 0

    def copy(self, source: int, slot: int) -> None:
        """Replace what is in `slot` by all that is in `source` now. The work is done by the next call of `decode`."""
        self._library.llama_memory_seq_cp(self._memory, source, slot, -1, -1)

    def close(self) -> None:
        """Give the memory back. May be repeated."""
        if self._handle is not None:
            self._library.llama_batch_free(self._batch)
            self._library.llama_free(self._handle)
            self._handle = None
