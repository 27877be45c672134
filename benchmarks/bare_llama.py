"""A helper: the same library with nothing around it. One process, one loop: decode, take the likeliest token, again.

No HTTP, no store, no events, no texts while it runs; rows are written into the library's batch through numpy views.
The settings are those of `perdure.runtime.llamacpp.context`.
"""

import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.processes import heard, say
from perdure.domain.model import Message, Prompt
from perdure.runtime.llamacpp import library as lib
from perdure.runtime.llamacpp.model import Model
from perdure.runtime.llamacpp.plan import ROWS_MAX
from perdure.runtime.llamacpp.template import ChatTemplate


class Bare:
    """A model and its working memory, decoded greedily."""

    def __init__(self, path: Path, *, slots: int, window: int, threads: int) -> None:
        self.model = Model(lib.open_library(), path)
        self.template = ChatTemplate(self.model, self.model.chat_template)
        self._library = library = self.model.library
        params = library.llama_context_default_params()
        params.n_ctx, params.n_seq_max = slots * window, slots
        params.n_batch = params.n_ubatch = ROWS_MAX
        params.n_threads = params.n_threads_batch = threads
        params.flash_attn_type = lib.FLASH_ATTENTION_ON
        params.type_k = params.type_v = lib.KV_TYPE_F16
        params.kv_unified = False
        self._context = library.llama_init_from_model(self.model.handle, params)
        self._memory = library.llama_get_memory(self._context)
        self._batch = batch = library.llama_batch_init(ROWS_MAX, 0, 1)
        view = np.ctypeslib.as_array
        self._token, self._pos = view(batch.token, (ROWS_MAX,)), view(batch.pos, (ROWS_MAX,))
        self._wanted = view(batch.logits, (ROWS_MAX,))
        view(batch.n_seq_id, (ROWS_MAX,))[:] = 1
        self._seq = [batch.seq_id[row] for row in range(ROWS_MAX)]

    def read(self, slot: int, prompt: tuple[int, ...]) -> int:
        """Read a prompt, 32 rows a call; the first token."""
        last = 0
        for at in range(0, len(prompt), ROWS_MAX):
            rows = prompt[at : at + ROWS_MAX]
            last = len(rows) - 1
            self._token[: len(rows)], self._pos[: len(rows)] = rows, range(at, at + len(rows))
            self._wanted[:] = 0
            self._wanted[last] = 1
            for row in range(len(rows)):
                self._seq[row][0] = slot
            self._decode(len(rows))
        return int(self._logits(last).argmax())

    def step(self, tokens: NDArray[np.int32], positions: NDArray[np.int32]) -> None:
        """Read one token of each slot and put the next one in its place."""
        count = len(tokens)
        self._token[:count], self._pos[:count] = tokens, positions
        self._decode(count)
        for row in range(count):
            tokens[row] = self._logits(row).argmax()
        positions += 1

    def run(self, prompts: list[tuple[int, ...]], count: int) -> dict[str, Any]:
        """`count` tokens for each prompt."""
        drawn = np.zeros((len(prompts), count), np.int32)
        first: list[float] = []
        began, cpu = time.perf_counter(), time.process_time()
        for slot, prompt in enumerate(prompts):
            drawn[slot, 0] = self.read(slot, prompt)
            first.append(time.perf_counter() - began)
        tokens = drawn[:, 0].copy()
        positions = np.array([len(prompt) for prompt in prompts], np.int32)
        self._wanted[:] = 1
        for slot in range(len(prompts)):
            self._seq[slot][0] = slot
        for number in range(1, count):
            self.step(tokens, positions)
            drawn[:, number] = tokens
        seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
        for slot in range(len(prompts)):
            self._library.llama_memory_seq_rm(self._memory, slot, -1, -1)
        texts = [b"".join(map(self.model.bytes_of, row.tolist())).decode("utf-8", "replace") for row in drawn]
        streams = [
            {"first": at, "tokens": count, "prompt_tokens": len(prompt), "text": text}
            for at, prompt, text in zip(first, prompts, texts, strict=True)
        ]
        return {"seconds": seconds, "cpu": cpu, "streams": streams}

    def _decode(self, count: int) -> None:
        self._batch.n_tokens = count
        if code := self._library.llama_decode(self._context, self._batch):
            raise RuntimeError(f"llama_decode gave {code}")

    def _logits(self, row: int) -> NDArray[np.float32]:
        pointer = self._library.llama_get_logits_ith(self._context, row)
        return np.ctypeslib.as_array(pointer, (self.model.tokens,))


def main() -> None:
    """Answer questions until there are no more."""
    settings = json.loads(sys.argv[2])
    bare = Bare(Path(sys.argv[1]), **settings)
    say(settings)
    while question := heard():
        prompts = [
            tuple(bare.template.encode(Prompt((Message("system", system), Message("user", text)))).tokens)
            for system, text in question["prompts"]
        ]
        say(bare.run(prompts, question["tokens"]))


if __name__ == "__main__":
    main()
