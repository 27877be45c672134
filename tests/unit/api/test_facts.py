"""Models, health and the service itself."""

import pytest

from .harness import VERSION, application, call, error_of
from .scripted import MODEL, NOW, ScriptedService

CARD = {
    "id": MODEL,
    "object": "model",
    "created": NOW,
    "owned_by": "local",
    "context_length": 4096,
    "size_bytes": 125_000,
    "digest": "ab" * 32,
    "exact_resume": True,
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


@pytest.mark.parametrize("path", ["/v1/models", f"/v1/models/{MODEL}", "/v1/service"])
def test_a_query_that_means_nothing_is_refused(path: str) -> None:
    """As everywhere."""
    answer = call(application(), "GET", f"{path}?limit=5")
    assert answer.status_code == 400
    assert error_of(answer)["code"] == "unknown_parameter"
