"""Callers at once, on threads. Nothing here needs more than Python: the peers' environment has none of ours."""

import threading
import time
from collections.abc import Callable
from typing import Any

from benchmarks.figures import percentiles


def threaded(callers: int, total: int, call: Callable[[], object]) -> dict[str, Any]:
    """`total` calls from so many threads: the time of all, the processor time of the process, and how long each
    took."""
    left, taken = threading.Semaphore(total), list[float]()

    def caller() -> None:
        while left.acquire(blocking=False):
            began = time.perf_counter()
            call()
            taken.append(time.perf_counter() - began)

    threads = [threading.Thread(target=caller) for _ in range(callers)]
    began, cpu = time.perf_counter(), time.process_time()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
    return {"seconds": seconds, "cpu": cpu, "calls": len(taken), **percentiles(taken)}
