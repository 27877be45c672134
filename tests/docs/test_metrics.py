"""docs/reference/metrics.md has every metric that is served, with its type and labels, and no other."""

import re
import sys

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.docs.repository import REFERENCE, codes, rows
from tests.unit.api.harness import application, call

PAGE = (REFERENCE / "metrics.md").read_text()


def served() -> dict[str, tuple[str, set[str]]]:
    """The type and the labels of each metric, by the name under which it is asked for."""
    found: dict[str, tuple[str, set[str]]] = {}
    for family in text_string_to_metric_families(call(application(), "GET", "/metrics").text):
        name = family.name + {"counter": "_total", "info": "_info"}.get(family.type, "")
        labels = {label for sample in family.samples for label in sample.labels} - {"le"}
        found[name] = family.type, labels
    return found


@pytest.mark.skipif(sys.platform != "linux", reason="only there the system tells of the process")
def test_the_metrics_are_those_that_are_served() -> None:
    """With their types."""
    assert {name: cells[0] for name, cells in rows(PAGE).items()} == {
        name: kind for name, (kind, _) in served().items()
    }


def test_the_labels_are_those_that_are_served() -> None:
    """In the row of the metric, or above the table of the models."""
    for name, (_, labels) in served().items():
        of_models = name.startswith("perdure_model_")
        assert labels <= ({"model"} if of_models else set(codes(rows(PAGE)[name][1]))), name


def test_every_name_that_the_page_mentions_is_served() -> None:
    """In examples too."""
    names = set(re.findall(r"\b(?:perdure|process)_[a-z_]+\b", PAGE))
    assert {name.removesuffix("_bucket") for name in names} <= served().keys()
