"""A helper: llama.cpp's own server, as the `xllamacpp` wheel brings it, in a process of its own.

Everything that decides the work is set as the service has it: rows a call, threads, slots, window, flash attention,
key/value type, memory apart for each slot. What would let it skip work (prompt caches) is off,
unless `cache` is said.
"""

import importlib
import json
import os
import sys
from typing import Any

from benchmarks.processes import say
from perdure.runtime.llamacpp.plan import ROWS_MAX

library: Any = importlib.import_module("xllamacpp")  # compiled, and says nothing about its types


def main() -> None:
    """Serve until standard input ends."""
    settings = json.loads(sys.argv[2])
    params = library.CommonParams()
    params.model.path = sys.argv[1]
    params.n_parallel = settings["slots"]
    params.n_ctx = settings["slots"] * settings["window"]
    params.n_batch = params.n_ubatch = ROWS_MAX
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = settings["threads"]
    params.flash_attn_type = library.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_ENABLED
    params.cache_type_k = params.cache_type_v = library.ggml_type.GGML_TYPE_F16
    params.kv_unified = False
    if not settings.get("cache"):
        params.cache_prompt = False
        params.cache_ram_mib = 0
        params.cache_idle_slots = False
    params.fit_params = False
    params.use_jinja = True
    params.verbosity = 0
    params.port = 0
    server = library.Server(params)
    say(
        {
            "address": server.listening_address,
            "pid": os.getpid(),
            "threads": params.cpuparams.n_threads,
            "slots": params.n_parallel,
            "window": params.n_ctx // params.n_parallel,
        }
    )
    sys.stdin.read()  # ends when the benchmark does
    os._exit(0)


if __name__ == "__main__":
    main()
