"""/docs: the page to try the API comes from this service alone, and talks to it alone."""

import re

import httpx
import pytest

from perdure.api import page

from .harness import application, call, error_of

APP = application()
FILES = {
    "/docs": "text/html",
    "/docs/start.js": "text/javascript",
    "/docs/swagger-ui-bundle.js": "text/javascript",
    "/docs/swagger-ui.css": "text/css",
}


def fetched(path: str) -> httpx.Response:
    """A file as a browser without a token gets it."""
    answer = call(APP, "GET", path, who=None, headers={"Sec-Fetch-Site": "same-origin"})
    assert answer.status_code == 200, answer.text
    return answer


@pytest.mark.parametrize("path", FILES)
def test_every_part_is_sent_with_the_policy(path: str) -> None:
    """Nothing is loaded from elsewhere, nothing inline is run, nobody may frame it."""
    answer = fetched(path)
    assert answer.headers["content-type"] == f"{FILES[path]}; charset=utf-8"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["referrer-policy"] == "no-referrer"
    policy = dict(part.split(maxsplit=1) for part in answer.headers["content-security-policy"].split(";"))
    assert policy.pop("img-src") == "'self' data:"
    own = {name for name, source in policy.items() if source == "'self'"}
    assert own == {"script-src", "style-src", "connect-src"}
    assert {name for name, source in policy.items() if source == "'none'"} == policy.keys() - own
    assert {"default-src", "base-uri", "form-action", "frame-ancestors"} <= policy.keys()


def test_the_page_loads_what_is_served_here() -> None:
    """Every script and style is one of its own files, and nothing stands inline."""
    html = fetched("/docs").text
    loaded = set(re.findall(r'(?:src|href)="([^"]+)"', html)) - {"data:,"}
    assert loaded == FILES.keys() - {"/docs"}
    assert re.findall(r"<script[^>]*>([^<]+)", html) == []
    assert "style=" not in html
    assert "<style" not in html


def test_it_shows_the_document_of_this_service() -> None:
    """And keeps no token, asks no validator, takes no other document from its address."""
    start = fetched("/docs/start.js").text
    options = dict(re.findall(r"^  (\w+): (.+),$", start, re.MULTILINE))
    assert options["url"] == '"/openapi.json"'
    assert fetched("/openapi.json").json()["info"]["title"] == "Perdure"
    assert options["validatorUrl"] == "null"
    assert {options[name] for name in ("persistAuthorization", "queryConfigEnabled", "withCredentials")} == {"false"}
    assert "://" not in start


def test_the_script_knows_the_options_and_the_version_of_the_document() -> None:
    """An option that it does not know would be ignored, and one of OpenAPI 3.0 only would show nothing."""
    script = fetched("/docs/swagger-ui-bundle.js").text
    for name in re.findall(r"^  (\w+):", fetched("/docs/start.js").text, re.MULTILINE):
        assert name in script, name
    assert fetched("/openapi.json").json()["openapi"].startswith("3.1")
    assert "OAS 3.1" in script or '"3.1"' in script or "oas31" in script.lower()


def test_its_address_takes_no_parameters() -> None:
    """Whatever the library would make of them."""
    answer = call(APP, "GET", "/docs?url=http://evil.example/openapi.json", who=None)
    assert (answer.status_code, error_of(answer)["code"]) == (400, "unknown_parameter")


def test_without_the_files_it_names_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    """The service itself needs none of them."""
    monkeypatch.setattr(page, "_PACKAGE", "perdure_has_no_such_package")
    page._files.cache_clear()  # pyright: ignore[reportPrivateUsage] -- what an earlier test has read
    answer = call(APP, "GET", "/docs", who=None)
    assert answer.status_code == 404
    assert "make setup" in error_of(answer)["message"]
