"""Models, health and the service itself."""

import subprocess
import sys

import msgspec
import pytest
from prometheus_client.parser import text_string_to_metric_families

from perdure.ports.storage import Condition

from .harness import VERSION, application, call, error_of
from .scripted import MODEL, NOW, SOUND, ScriptedService

CARD = {
    "id": MODEL,
    "object": "model",
    "created": NOW,
    "owned_by": "local",
    "context_length": 4096,
    "size_bytes": 125_000,
    "digest": "ab" * 32,
    "exact_resume": True,
    "temperature": 0.6,
    "top_p": 0.8,
}


def test_models_are_listed_in_the_standard_shape() -> None:
    """With what is ours beside it."""
    answer = call(application(), "GET", "/v1/models")
    assert (answer.status_code, answer.json()) == (200, {"object": "list", "data": [CARD]})


def test_one_model_is_read_by_its_exact_name() -> None:
    """Another case is another name."""
    assert call(application(), "GET", f"/v1/models/{MODEL}").json() == CARD
    answer = call(application(), "GET", f"/v1/models/{MODEL.upper()}")
    assert answer.status_code == 404
    error = error_of(answer)
    assert (error["code"], error["param"]) == ("model_not_found", "model")


def test_a_living_process_says_ok_whatever_its_state() -> None:
    """Health is of the process, not of its model."""
    service = ScriptedService()
    service.unready = "The model is gone."
    answer = call(application(service), "GET", "/healthz", who=None)
    assert (answer.status_code, answer.json()) == (200, {"status": "ok"})


@pytest.mark.parametrize(
    ("reason", "status", "body"),
    [
        (None, 200, {"status": "ready"}),
        ("The model is gone.", 503, {"status": "unavailable", "reason": "The model is gone."}),
    ],
)
def test_readiness_is_a_status_with_a_reason(reason: str | None, status: int, body: dict[str, str]) -> None:
    """Good enough for a probe, and for the one who reads its log."""
    service = ScriptedService()
    service.unready = reason
    answer = call(application(service), "GET", "/readyz", who=None)
    assert (answer.status_code, answer.json()) == (status, body)


def test_the_service_tells_its_version_and_counters() -> None:
    """One entry a model."""
    body = call(application(), "GET", "/v1/service").json()
    assert (body["object"], body["version"]) == ("service", VERSION)
    (model,) = body["models"]
    assert (model["model"], model["tokens_drawn"], model["slots"]) == (MODEL, 3, 4)
    assert (model["tokens_read"], model["tokens_reused"]) == (4, 5)


def test_the_service_tells_how_its_store_stands() -> None:
    """As the store says it; a wait without a bound is null, since JSON has no infinity."""
    body = call(application(), "GET", "/v1/service").json()
    assert body["tasks"] == {"queued": 2, "running": 1}
    storage = body["storage"]
    assert storage["write_waits"] == [
        {"seconds_max": 0.001, "writes": 6},
        {"seconds_max": 0.1, "writes": 8},
        {"seconds_max": None, "writes": 9},
    ]
    told = SOUND.engine, SOUND.trouble, SOUND.reason, SOUND.commits, SOUND.writes, SOUND.writes_refused
    assert tuple(storage[name] for name in Condition.__struct_fields__[:6]) == told
    assert storage["wal"] == msgspec.to_builtins(SOUND.wal)


def metrics(service: ScriptedService) -> dict[tuple[str, str], float]:
    """Every sample that is served, by its name and the value of its label."""
    answer = call(application(service), "GET", "/metrics")
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    families = text_string_to_metric_families(answer.text)
    samples = [sample for family in families for sample in family.samples]
    return {(each.name, ",".join(each.labels.values())): each.value for each in samples}


def test_metrics_tell_the_same_as_the_service() -> None:
    """Number by number."""
    seen = metrics(ScriptedService())
    assert SOUND.wal is not None
    assert {name: value for (name, _), value in seen.items() if name.startswith("perdure_storage_wal_")} == {
        "perdure_storage_wal_state": 0,  # of the state that is named last
        "perdure_storage_wal_pages": SOUND.wal.pages,
        "perdure_storage_wal_checkpointed_pages": SOUND.wal.checkpointed_pages,
        "perdure_storage_wal_limit_pages": SOUND.wal.limit_pages,
        "perdure_storage_wal_size_bytes": SOUND.wal.size_bytes,
        "perdure_storage_wal_size_limit_bytes": SOUND.wal.size_limit_bytes,
        "perdure_storage_wal_last_checkpoint_timestamp_seconds": NOW,
        "perdure_storage_wal_checkpoints_total": SOUND.wal.checkpoints,
        "perdure_storage_wal_checkpoints_failed_total": SOUND.wal.checkpoints_failed,
        "perdure_storage_wal_checkpoints_unmeasured_total": SOUND.wal.checkpoints_unmeasured,
    }
    wait = "perdure_storage_write_wait_seconds"
    assert [seen[f"{wait}_bucket", bound] for bound in ("0.001", "0.1", "+Inf")] == [6, 8, 9]
    assert (seen[f"{wait}_count", ""], seen[f"{wait}_sum", ""]) == (9, 1.5)
    totals = [seen[f"perdure_storage_{name}_total", ""] for name in ("commits", "writes", "writes_refused")]
    assert totals == [SOUND.commits, SOUND.writes, SOUND.writes_refused]
    assert (seen["perdure_tasks_queued", ""], seen["perdure_tasks_running", ""]) == (2, 1)
    assert (seen["perdure_model_slots", MODEL], seen["perdure_model_tokens_drawn_total", MODEL]) == (4, 3)
    assert [seen[f"perdure_model_tokens_{name}_total", MODEL] for name in ("read", "reused")] == [4, 5]
    assert seen["perdure_ready", ""] == 1


@pytest.mark.proves("E-06")
def test_metrics_tell_which_database_is_in_use() -> None:
    """By its version, beside ours."""
    assert metrics(ScriptedService())["perdure_build_info", f"3.99.1,{VERSION}"] == 1


@pytest.mark.parametrize("code", ["storage_full", "storage_failed", "storage_damaged", None])
@pytest.mark.parametrize("state", ["ok", "held", "growing"])
def test_metrics_have_one_line_for_each_state(code: str | None, state: str) -> None:
    """1 for the one that is, 0 for those that are not."""
    service = ScriptedService()
    assert SOUND.wal is not None
    wal = msgspec.structs.replace(SOUND.wal, state=state)
    service.condition_now = msgspec.structs.replace(SOUND, trouble=code, wal=wal)
    seen = metrics(service)
    assert {label: value for (name, label), value in seen.items() if name == "perdure_storage_trouble"} == {
        each: float(each == code) for each in ("storage_full", "storage_failed", "storage_damaged")
    }
    assert {label: value for (name, label), value in seen.items() if name == "perdure_storage_wal_state"} == {
        each: float(each == state) for each in ("ok", "held", "growing")
    }


def test_what_is_not_known_is_no_number() -> None:
    """The length of the queue while the store cannot be read; the log before its first look, or without any."""
    service = ScriptedService()
    service.queued, service.unready = None, "Something is wrong."
    assert SOUND.wal is not None
    unknown = msgspec.structs.replace(
        SOUND.wal, pages=None, checkpointed_pages=None, limit_pages=None, last_checkpoint_at=None
    )
    service.condition_now = msgspec.structs.replace(SOUND, wal=unknown)
    names = {name for name, _ in metrics(service)}
    assert "perdure_tasks_queued" not in names
    assert {name for name in names if name.startswith("perdure_storage_wal_")} == {
        "perdure_storage_wal_state",
        "perdure_storage_wal_size_bytes",
        "perdure_storage_wal_size_limit_bytes",
        "perdure_storage_wal_checkpoints_total",
        "perdure_storage_wal_checkpoints_failed_total",
        "perdure_storage_wal_checkpoints_unmeasured_total",
    }
    assert metrics(service)["perdure_ready", ""] == 0
    service.condition_now = msgspec.structs.replace(SOUND, wal=None)
    assert not any(name.startswith("perdure_storage_wal_") for name, _ in metrics(service))


def test_a_start_does_not_load_what_only_metrics_need() -> None:
    """The library is loaded when somebody asks."""
    script = "import sys; import perdure.bootstrap; sys.exit('prometheus_client' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], timeout=60, check=False).returncode == 0


@pytest.mark.parametrize("path", ["/v1/models", f"/v1/models/{MODEL}", "/v1/service", "/metrics"])
def test_a_query_that_means_nothing_is_refused(path: str) -> None:
    """As everywhere."""
    answer = call(application(), "GET", f"{path}?limit=5")
    assert answer.status_code == 400
    assert error_of(answer)["code"] == "unknown_parameter"
