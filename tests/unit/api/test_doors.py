"""Who gets in: tokens, scopes, hosts, origins, on every route that exists and on those that do not."""

from collections.abc import Iterator

import pytest
from litestar.routes import HTTPRoute

from perdure.api import auth
from perdure.api.hosts import Hosts
from perdure.domain.errors import Forbidden
from perdure.domain.principal import ALL_SCOPES, Scope

from .harness import HELLO, application, call, calls, error_of
from .scripted import OWNER_TOKEN, ScriptedService

PAGE = {"/docs", "/docs/start.js", "/docs/swagger-ui-bundle.js", "/docs/swagger-ui.css"}
OPEN = {"/healthz", "/readyz", "/openapi.json"} | PAGE
ANY = "0.0.0.0"  # noqa: S104 -- compared with, not bound to
LOOPBACK = ["localhost", "localhost:8383", "LOCALHOST:1", "127.0.0.1", "127.0.0.1:9", "[::1]", "[::1]:8383"]


def routes() -> Iterator[tuple[str, str, Scope | None]]:
    """Every served method and path, with the scope that it declares (None: open)."""
    for route in application().routes:
        assert isinstance(route, HTTPRoute)
        for handler in route.route_handlers:
            for method in handler.http_methods:
                if method != "OPTIONS":
                    path = route.path.replace("{response:str}", "resp_x").replace("{task:str}", "task_x")
                    yield str(method), path.replace("{model:str}", "m"), _scope(handler.opt, route.path)


def _scope(opt: dict[str, object], path: str) -> Scope | None:
    if opt.get("open"):
        return None
    scope = opt.get("scope")
    assert isinstance(scope, Scope), f"{path} declares no scope"
    return scope


GUARDED = [(method, path, scope) for method, path, scope in routes() if scope is not None]


def test_every_route_declares_what_it_needs() -> None:
    """Open are exactly those that say nothing of anybody's work."""
    assert {path for _, path, scope in routes() if scope is None} == OPEN
    assert auth.open_paths(application()) == OPEN
    assert len(GUARDED) == 16


def test_the_scopes_are_the_ones_meant() -> None:
    """Reading asks for read, changing for write, each for its own noun."""
    for method, path, scope in GUARDED:
        noun = path.removeprefix("/v1").split("/")[1]
        if noun in ("models", "service", "metrics"):
            expected = Scope.MODELS_READ if noun == "models" else Scope.SERVICE_READ
        else:
            expected = Scope.RESPONSES_READ if method == "GET" else Scope.RESPONSES_WRITE
        assert scope is expected, path


ANY_PATH = [(method, path) for method, path, _ in GUARDED] + [
    ("GET", "/"),
    ("GET", "/v1"),
    ("GET", "/nowhere"),
    ("POST", "/v1/chat/completions"),
    ("PUT", "/v1/responses"),
    ("OPTIONS", "/v1/responses"),
    ("HEAD", "/v1/models"),
    ("GET", "/healthz/"),
    ("GET", "/healthz/x"),
    ("GET", "//healthz"),
    ("GET", "/openapi.json/x"),
    ("GET", "/schema"),
    ("GET", "/docs/"),
    ("GET", "/docs/index.html"),
    ("GET", "/docs/../v1/tasks"),
    ("POST", "/v1/embeddings"),
    ("GET", "/v1/conversations"),
    ("TRACE", "/v1/responses"),
]


@pytest.mark.parametrize(
    "authorization",
    [
        None,
        "",
        "Bearer",
        "Bearer ",
        "Bearer wrong",
        "Basic b3duZXI6dG9rZW4=",
        f"Token {OWNER_TOKEN}",
        OWNER_TOKEN,
        f"Bearer {OWNER_TOKEN} x",
        "Bearer " + "x" * 513,
        "Bearer \xff",
    ],
)
def test_without_a_good_token_every_other_path_is_401(authorization: str | None) -> None:
    """Before routing: a stranger cannot tell a route from none."""
    service = ScriptedService()
    headers = {} if authorization is None else {"Authorization": authorization.encode("latin-1")}
    app = application(service)
    for label, answer in calls(app, ANY_PATH, who=None, headers=headers, json=dict(HELLO)):
        assert answer.status_code == 401, label
        assert answer.headers["www-authenticate"] == "Bearer"
        assert answer.request.method == "HEAD" or error_of(answer)["code"] == "invalid_api_key"
    assert not service.kept


def test_a_token_is_looked_for_once() -> None:
    """Two headers are no choice for a proxy to make."""
    good = ("Authorization", f"Bearer {OWNER_TOKEN}")
    answer = call(application(), "GET", "/v1/models", who=None, headers=[good, ("Authorization", "Bearer x")])
    assert answer.status_code == 401


@pytest.mark.parametrize("scheme", ["Bearer", "bearer", "BEARER"])
def test_the_scheme_has_no_case(scheme: str) -> None:
    """As HTTP says."""
    answer = call(application(), "GET", "/v1/models", who=None, headers={"Authorization": f"{scheme} {OWNER_TOKEN}"})
    assert answer.status_code == 200


@pytest.mark.parametrize("path", sorted(OPEN))
def test_open_routes_need_no_token(path: str) -> None:
    """Nor a good one."""
    assert call(application(), "GET", path, who=None).status_code == 200
    assert call(application(), "GET", path, who="wrong").status_code == 200


@pytest.mark.parametrize(("method", "path", "scope"), GUARDED)
def test_a_missing_scope_is_403_and_named(method: str, path: str, scope: Scope) -> None:
    """All scopes but the one do not open the route; the one alone does."""
    service = ScriptedService()
    service.allow("all-but-one", *(ALL_SCOPES - {scope}))
    service.allow("only-one", scope)
    app = application(service)
    refused = call(app, method, path, who="all-but-one", json=dict(HELLO))
    assert refused.status_code == 403
    error = error_of(refused)
    assert error["code"] == "missing_scope"
    assert scope in error["message"]
    assert not service.kept
    assert call(app, method, path, who="only-one", json=dict(HELLO)).status_code in (200, 400, 404)


@pytest.mark.parametrize("host", LOOPBACK)
def test_loopback_names_get_in(host: str) -> None:
    """With any port: a forwarded one differs from ours."""
    assert call(application(), "GET", "/healthz", headers={"Host": host}).status_code == 200


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:8383",
        "localhost.evil.example",
        "localhost:evil",
        "127.0.0.1.evil.example",
        "evil.example:127.0.0.1",
        "192.168.1.5",
        "[::2]",
        ANY,
        "::1",
        "localhost.",
        "local host",
        "",
        ":8383",
        "localhost@evil.example",
    ],
)
def test_a_foreign_host_is_403_on_every_path(host: str) -> None:
    """Also with a good token, and before routing."""
    service = ScriptedService()
    anywhere = [("GET", "/healthz"), ("POST", "/v1/responses"), ("GET", "/nowhere")]
    for label, answer in calls(application(service), anywhere, headers={"Host": host}, json=dict(HELLO)):
        assert answer.status_code == 403, label
        assert error_of(answer)["code"] == "forbidden_host"
    assert not service.kept


@pytest.mark.parametrize("hosts", [[], [(b"host", b"localhost"), (b"host", b"localhost")]])
def test_a_host_is_named_once(hosts: list[tuple[bytes, bytes]]) -> None:
    """Neither none nor two."""
    with pytest.raises(Forbidden):
        Hosts("127.0.0.1").check(hosts)


@pytest.mark.parametrize(
    ("bound", "host", "known"),
    [
        ("192.168.1.5", "192.168.1.5:8383", True),
        ("192.168.1.5", "192.168.1.6", False),
        ("Box.lan", "box.LAN:80", True),
        ("fd00::5", "[fd00::5]:8383", True),
        (ANY, "192.168.1.6:8383", True),
        (ANY, "[fd00::5]", True),
        (ANY, "evil.example", False),
        (ANY, "1.2.3.4.evil.example", False),
        ("::", "10.0.0.1", True),
        ("::", "evil.example:10", False),
        ("::", "localhost", True),
    ],
)
def test_the_bound_address_is_a_name_of_the_service(bound: str, host: str, known: bool) -> None:
    """Bound to every address, any address will do, since no page can make one its name."""
    hosts = Hosts(bound)
    if known:
        hosts.check([(b"host", host.encode())])
    else:
        with pytest.raises(Forbidden):
            hosts.check([(b"host", host.encode())])


@pytest.mark.parametrize(
    "origin", ["https://evil.example", "null", "http://localhost:3000", "http://127.0.0.1:8383", ""]
)
def test_a_foreign_origin_is_403(origin: str) -> None:
    """No page but our own may call, and no answer carries a CORS header."""
    service = ScriptedService()
    anywhere = [("GET", "/healthz"), ("POST", "/v1/responses"), ("OPTIONS", "/v1/responses")]
    for label, answer in calls(application(service), anywhere, headers={"Origin": origin}, json=dict(HELLO)):
        assert answer.status_code == 403, label
        assert error_of(answer)["code"] == "forbidden_origin"
        assert not any(name.startswith("access-control") for name in answer.headers)
    assert not service.kept


def test_our_own_origin_gets_in() -> None:
    """A page that this service served itself."""
    headers = {"Host": "localhost:8383", "Origin": "http://localhost:8383"}
    assert call(application(), "GET", "/v1/models", headers=headers).status_code == 200
