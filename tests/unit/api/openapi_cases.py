"""Requests that are made up from /openapi.json, fitting ones and others: `test_schemathesis.py` runs this by itself.

All that is not drawn at random is made up where the tests are collected. That takes seconds, which each process that
collects would pay, so it has no name that pytest looks for.
"""

from http import HTTPStatus
from typing import Any
from zlib import crc32

import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis.config import SchemathesisConfig
from schemathesis.specs.openapi.checks import positive_data_acceptance
from tests.unit.api.harness import application, call, create
from tests.unit.api.scripted import OWNER_TOKEN, ScriptedService

from perdure.domain.errors import NotServed

BASE = "http://localhost:8383"
HEADERS = {"Authorization": f"Bearer {OWNER_TOKEN}"}
SERVICE = ScriptedService()
APP = application(SERVICE)
DOCUMENT: dict[str, Any] = call(APP, "GET", "/openapi.json", who=None).json()
# It takes the same body as a create, whose systematic cases are enough.
COUNTING = {"include-operation-id": "count_input_tokens", "phases": {"coverage": {"enabled": False}}}
SCHEMA: Any = schemathesis.openapi.from_dict(
    DOCUMENT, config=SchemathesisConfig.from_dict({"operations": [COUNTING]})
)
SCHEMA.app = APP
SLOW = [HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large]
MODERATE = settings(max_examples=5, deadline=None, derandomize=True, database=None, suppress_health_check=SLOW)


def aimed(case: Any) -> None:
    """Send half of the requests for a response to one that there is, or each would meet the same 404."""
    names = case.path_parameters or {}
    for noun, prefix in (("response", "resp"), ("task", "task")):
        if noun in names and crc32(repr((names, case.query, case.headers)).encode()) % 2:
            if not SERVICE.kept:
                assert create(APP).status_code == HTTPStatus.OK
            names[noun] = f"{prefix}_{next(reversed(SERVICE.kept))}"


@SCHEMA.parametrize()
@MODERATE
def test_the_answer_is_one_that_the_document_has(case: Any) -> None:
    """Status, media type and shape; nothing that cannot fit is accepted; no fault of the service; token asked for."""
    aimed(case)
    answer = case.call(base_url=BASE, headers=HEADERS)
    if answer.status_code == HTTPStatus.NOT_IMPLEMENTED:  # a method that the API has elsewhere
        assert case.method.lower() not in DOCUMENT["paths"][case.operation.path]
        assert answer.json()["error"]["code"] == NotServed.code
    else:
        # What fits may still name a model that is not there, or hold no text.
        case.validate_response(answer, headers=HEADERS, excluded_checks=[positive_data_acceptance])
