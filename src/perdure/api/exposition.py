"""The numbers of the service in the text format of Prometheus.

Everything is counted where it happens and only read here. Loaded when somebody asks first: a start need not pay for
the library.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from perdure.domain.errors import StorageDamaged, StorageFailed, StorageFull
from perdure.engine.service import Workload
from perdure.ports.runtime import Statistics
from perdure.ports.storage import Condition, WalCondition

MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"
TROUBLES = (StorageFull.code, StorageFailed.code, StorageDamaged.code)
WAL_STATES = ("ok", "held", "growing")
MICROSECONDS = 1_000_000


@dataclass(frozen=True)
class Seen:
    """The service at one moment."""

    version: str
    ready: bool
    workload: Workload
    models: Iterable[Statistics]
    condition: Condition


def exposed(seen: Seen) -> bytes:
    """The whole page, with what the operating system says of the process."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Ours(seen))
    ProcessCollector(registry=registry)
    return generate_latest(registry)


class _Ours(Collector):
    def __init__(self, seen: Seen) -> None:
        self._seen = seen

    def collect(self) -> Iterator[Metric]:
        """Every metric of ours that has a value now."""
        seen = self._seen
        parts = [_service(seen), _models(list(seen.models)), _storage(seen.condition)]
        if seen.condition.wal is not None:
            parts.append(_wal(seen.condition.wal))
        return chain(*parts)


def _service(seen: Seen) -> Iterator[Metric]:
    database, _, version = seen.condition.engine.partition(" ")
    facts = {"version": seen.version, database.lower(): version}
    yield InfoMetricFamily("perdure_build", "What runs.", value=facts)
    yield _gauge("perdure_ready", "1 while work can be taken, as /readyz says.", seen.ready)
    yield from _known("perdure_tasks_queued", "Tasks that wait for a slot.", seen.workload.queued)
    yield _gauge("perdure_tasks_running", "Tasks that are worked on.", seen.workload.running)


_OF_MODELS: dict[str, tuple[str, Callable[[Statistics], float | None]]] = {
    "loaded": ("1 while a process has the model.", lambda each: each.loaded),
    "usable": ("1 while nothing speaks against the model.", lambda each: each.fault is None),
    "memory_bytes": ("What the model takes while it is loaded.", lambda each: each.memory_bytes),
    "waiting": ("Tasks that wait for memory for the model.", lambda each: each.waiting),
    "slots": ("Texts that can be drawn at once.", lambda each: each.slots),
    "slots_used": ("Texts that are drawn now.", lambda each: each.slots_used),
    "loads": ("How often the model was loaded.", lambda each: each.loads),
    "starts": ("Starts of the model's process.", lambda each: each.starts),
    "tokens_drawn": ("Tokens drawn by that process.", lambda each: each.tokens_drawn),
    "tokens_read": ("Tokens read by that process.", lambda each: each.tokens_read),
    "tokens_reused": ("Tokens that need not be read.", lambda each: each.tokens_reused),
}
_COUNTERS = {"loads", "starts", "tokens_drawn", "tokens_read", "tokens_reused"}


def _models(models: list[Statistics]) -> Iterator[Metric]:
    for name, (what, of) in _OF_MODELS.items():
        kind = CounterMetricFamily if name in _COUNTERS else GaugeMetricFamily
        family = kind(f"perdure_model_{name}", what, labels=["model"])
        for each in models:
            if (value := of(each)) is not None:
                family.add_metric([each.model], value)
        yield family


def _storage(condition: Condition) -> Iterator[Metric]:
    trouble = {code: condition.trouble == code for code in TROUBLES}
    yield _states("perdure_storage_trouble", "1 for the error that writes meet now.", "code", trouble)
    yield _counter("perdure_storage_commits", "Commits made, the store's own included.", condition.commits)
    yield _counter("perdure_storage_writes", "Writes made; many share a commit.", condition.writes)
    yield _counter("perdure_storage_writes_refused", "Writes that the disk refused.", condition.writes_refused)
    yield HistogramMetricFamily(
        "perdure_storage_write_wait_seconds",
        "How long writes waited for their commit.",
        buckets=[(floatToGoString(bound), count) for bound, count in condition.write_waits],
        sum_value=condition.write_wait_seconds_sum,
    )


def _wal(wal: WalCondition) -> Iterator[Metric]:
    at = None if wal.last_checkpoint_at is None else wal.last_checkpoint_at / MICROSECONDS
    states = {state: wal.state == state for state in WAL_STATES}
    yield _states("perdure_storage_wal_state", "1 for how the write-ahead log stands.", "state", states)
    yield from _known("perdure_storage_wal_pages", "Pages in it at the last checkpoint.", wal.pages)
    yield from _known("perdure_storage_wal_checkpointed_pages", "Those copied by then.", wal.checkpointed_pages)
    yield from _known("perdure_storage_wal_limit_pages", "More pages than this are too many.", wal.limit_pages)
    yield _gauge("perdure_storage_wal_size_bytes", "Size of its file.", wal.size_bytes)
    yield _gauge("perdure_storage_wal_size_limit_bytes", "To this the file is cut.", wal.size_limit_bytes)
    yield from _known("perdure_storage_wal_last_checkpoint_timestamp_seconds", "When that was.", at)
    yield _counter("perdure_storage_wal_checkpoints", "Checkpoints, one a minute.", wal.checkpoints)
    yield _counter("perdure_storage_wal_checkpoints_failed", "Those that failed.", wal.checkpoints_failed)
    yield _counter(
        "perdure_storage_wal_checkpoints_unmeasured", "Those that measured nothing.", wal.checkpoints_unmeasured
    )


def _gauge(name: str, what: str, value: float) -> Metric:
    return GaugeMetricFamily(name, what, value=value)


def _counter(name: str, what: str, value: float) -> Metric:
    return CounterMetricFamily(name, what, value=value)


def _known(name: str, what: str, value: float | None) -> Iterator[Metric]:
    """A number that is not always known: it is left out then, since 0 would be a lie."""
    if value is not None:
        yield _gauge(name, what, value)


def _states(name: str, what: str, label: str, states: Mapping[str, bool]) -> Metric:
    """One line for each state, so that a rule can name one that has never come."""
    family = GaugeMetricFamily(name, what, labels=[label])
    for state, now in states.items():
        family.add_metric([state], now)
    return family
