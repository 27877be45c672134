"""/openapi.json is true: to the routes, to the bounds, to the objects that are really sent."""

import json
import re
from typing import Any

import msgspec
import pytest
from litestar.routes import HTTPRoute

from perdure.api import fields
from perdure.api.operations import OPERATIONS
from perdure.domain import limits
from perdure.runtime.llamacpp.bundled import NAME as BUNDLED

from .harness import VERSION, application, call, create
from .scripted import MODEL, ScriptedService

APP = application()
DOCUMENT: dict[str, Any] = call(APP, "GET", "/openapi.json", who=None).json()
SCHEMAS = DOCUMENT["components"]["schemas"]


def operations() -> list[dict[str, Any]]:
    return [operation for path in DOCUMENT["paths"].values() for operation in path.values()]


def test_it_describes_every_route_and_no_other() -> None:
    """Paths and methods are those of the application, the document itself and the page that shows it apart."""
    served = {
        (route.path_format, str(method).lower())
        for route in APP.routes
        if isinstance(route, HTTPRoute) and route.path != "/openapi.json" and not route.path.startswith("/docs")
        for method in route.methods
        if method != "OPTIONS"
    }
    described = {(path, method) for path, methods in DOCUMENT["paths"].items() for method in methods}
    assert described == served


def test_every_operation_was_declared_and_is_used() -> None:
    """No entry is left over and none is missing."""
    assert sorted(operation["operationId"] for operation in operations()) == sorted(OPERATIONS)
    assert DOCUMENT["info"]["version"] == VERSION


def test_every_reference_leads_somewhere() -> None:
    """And every object is referred to."""
    found = set(re.findall(r'"#/components/schemas/([^"]+)"', json.dumps(DOCUMENT)))
    assert found == set(SCHEMAS)


def test_the_open_routes_are_the_ones_without_security() -> None:
    """All others ask for the bearer token."""
    assert DOCUMENT["security"] == [{"bearer": []}]
    assert DOCUMENT["components"]["securitySchemes"]["bearer"] == {"type": "http", "scheme": "bearer"}
    free = {operation["operationId"] for operation in operations() if operation.get("security") == []}
    assert free == {"healthz", "readyz"}


def test_the_create_body_has_every_served_field_with_its_bounds() -> None:
    """Fields and figures come from where they are enforced."""
    properties = SCHEMAS["CreateResponse"]["properties"]
    assert set(properties) == fields.SERVED | fields.NOT_SERVED.keys()
    assert properties["temperature"]["maximum"] == limits.TEMPERATURE_MAX
    assert properties["seed"]["maximum"] == limits.SEED_MAX
    assert properties["metadata"]["maxProperties"] == limits.METADATA_PAIRS_MAX
    for name in fields.NOT_SERVED:
        assert f"`{name}`" in SCHEMAS["CreateResponse"]["description"]


def bounded() -> list[str]:
    properties = SCHEMAS["CreateResponse"]["properties"]
    return [name for name, schema in properties.items() if "maximum" in schema]


@pytest.mark.parametrize("name", bounded())
def test_the_bounds_of_a_number_are_those_that_are_kept(name: str) -> None:
    """Both are accepted, one beyond each is refused, and the default is what is taken where nothing is given."""
    schema = SCHEMAS["CreateResponse"]["properties"][name]
    least, most = schema["minimum"], schema["maximum"]
    assert [create(APP, **{name: value}).status_code for value in (least, most)] == [200, 200]
    assert [create(APP, **{name: value}).status_code for value in (least - 1, most + 1)] == [400, 400]
    if "default" in schema:
        assert create(APP).json()[name] == schema["default"]


def test_create_answers_with_an_object_or_events() -> None:
    """Both are declared, and so is the accepted one."""
    answers = DOCUMENT["paths"]["/v1/responses"]["post"]["responses"]
    assert set(answers["200"]["content"]) == {"application/json", "text/event-stream"}
    assert set(answers["202"]["content"]) == {"application/json"}


@pytest.mark.parametrize(
    ("path", "schema"),
    [
        ("/v1/responses/resp_00000000000000000000000000", "Response"),
        ("/v1/tasks/task_00000000000000000000000000", "Task"),
        ("/v1/tasks", "TaskList"),
        ("/v1/responses", "ResponseList"),
        ("/v1/responses/resp_00000000000000000000000000/input_items", "ItemList"),
        ("/v1/tasks/task_00000000000000000000000000/events", "EventList"),
        ("/v1/models", "ModelList"),
        (f"/v1/models/{MODEL}", "Model"),
        ("/v1/service", "ServiceFacts"),
        ("/healthz", "Alive"),
        ("/readyz", "Ready"),
        ("/v1/nowhere", "Error"),
    ],
)
def test_answers_have_exactly_the_described_members(path: str, schema: str) -> None:
    """Every member that is sent is described, and every described one is sent."""
    app = application(ScriptedService())
    create(app)
    body = msgspec.json.decode(call(app, "GET", path).content)
    assert set(body) == set(SCHEMAS[schema]["properties"])
    assert set(body) - {"history"} == set(SCHEMAS[schema]["required"])


GUARDED_GETS = {
    methods["get"]["operationId"]: path
    for path, methods in DOCUMENT["paths"].items()
    if "get" in methods and methods["get"].get("security") != []
}


@pytest.mark.parametrize("operation", GUARDED_GETS)
def test_the_query_parameters_are_those_that_are_taken(operation: str) -> None:
    """A route that is asked for one that it has not says which it takes."""
    path = GUARDED_GETS[operation]
    told = call(APP, "GET", re.sub(r"{\w+}", "x", path) + "?zzz=1").json()["error"]["message"]
    taken = [] if "it takes none" in told else re.findall(r"[\w\[\]]+", told.split("it takes ")[1])
    parameters = DOCUMENT["paths"][path]["get"].get("parameters", [])
    declared = {each["name"] for each in parameters if each["in"] == "query"}
    assert set(taken) == declared


def test_it_needs_nothing_from_the_network() -> None:
    """No page, no script, no foreign address; the media type is plain JSON."""
    answer = call(APP, "GET", "/openapi.json", who=None)
    assert answer.headers["content-type"] == "application/json"
    assert "http://" not in answer.text
    assert "https://" not in answer.text


@pytest.mark.parametrize(
    "path", [path for path, methods in DOCUMENT["paths"].items() if "requestBody" in methods.get("post", {})]
)
def test_the_example_of_a_body_works_after_the_first_start(path: str) -> None:
    """It names the model that comes with the installation."""
    example = DOCUMENT["paths"][path]["post"]["requestBody"]["content"]["application/json"]["example"]
    assert example["model"] == BUNDLED
    assert call(APP, "POST", path, json={**example, "model": MODEL}).status_code == 200
