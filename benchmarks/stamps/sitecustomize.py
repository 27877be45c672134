"""Put on PYTHONPATH by the benchmark `seen`, never by the product: notes when tokens are drawn and commits are made.

Python imports this module at the start of every process. In the child that draws it wraps the function that draws a
token, in the service the one that commits; each call appends one record to a file. The clock is the system's
monotonic one, which all processes share.
"""

import os
import struct
import sys
import time
from pathlib import Path
from typing import Any

DRAWN = struct.Struct("<qqii")
"""When, in nanoseconds; the seed of the text; the position in it; the token."""
COMMITTED = struct.Struct("<qi")
"""How long, in nanoseconds; how many operations."""


def _record(name: str) -> int:
    return os.open(Path(os.environ["BENCH_STAMPS"]) / name, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)


def _stamp_draws() -> None:
    from perdure.runtime.llamacpp import batch

    file, draw = _record("drawn"), batch.draw

    def stamped(logits: Any, sampling: Any, position: int) -> int:
        token = draw(logits, sampling, position)
        os.write(file, DRAWN.pack(time.monotonic_ns(), sampling.seed, position, token))
        return token

    batch.draw = stamped


def _stamp_commits() -> None:
    from perdure.storage.sqlite import writer

    file, commit_all = _record("committed"), writer.commit_all

    def stamped(connection: Any, operations: Any) -> Any:
        began = time.monotonic_ns()
        outcomes = commit_all(connection, operations)
        os.write(file, COMMITTED.pack(time.monotonic_ns() - began, len(operations)))
        return outcomes

    writer.commit_all = stamped


if "BENCH_STAMPS" in os.environ:
    if "perdure.runtime.llamacpp.engine_child" in sys.orig_argv:
        _stamp_draws()
    elif "serve" in sys.orig_argv:
        _stamp_commits()
