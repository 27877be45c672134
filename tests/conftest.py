"""What tests of every floor share."""

from collections import Counter
from collections.abc import Callable, Generator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.witness import WITNESS

# How long an example takes says more about the machine than about the program.
settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")

# Before their first import, so that a failing contract shows what it compared.
pytest.register_assert_rewrite("perdure.testing.contract", "perdure.testing.store_steps")

from perdure.runtime.llamacpp.bundled import MISSING, find_bundled  # noqa: E402 -- see above
from perdure.testing.tiny_gguf import write_tiny_model  # noqa: E402 -- see above


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The random model of 125 kB, written once."""
    path = tmp_path_factory.mktemp("model") / "tiny.gguf"
    write_tiny_model(path)
    return path


@pytest.fixture(scope="session")
def real_model() -> Path:
    """The bundled model of 135 million weights."""
    path = find_bundled()
    if path is None:
        pytest.skip(MISSING)
    return path


WITNESSED = Counter[str]()


@pytest.fixture(autouse=True)
def _keeps_to_the_types(  # pyright: ignore[reportUnusedFunction] -- pytest finds it
    request: pytest.FixtureRequest, record_property: Callable[[str, object], None]
) -> Generator[None]:
    """Whatever the test read over HTTP is as the published types have it."""
    yield
    seen, problems = WITNESS.take()
    record_property("witnessed", dict(seen))
    assert problems == [] or request.node.get_closest_marker("made_up_rows") is not None


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Add up what was held against the types; the test may run in another process than this."""
    for key, value in report.user_properties:
        if key == "witnessed" and isinstance(value, dict):
            WITNESSED.update(value)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Tell it."""
    if WITNESSED:
        events = sum(count for kind, count in WITNESSED.items() if kind.startswith("response."))
        terminalreporter.write_line(
            f"held against the published types: {events} events, {WITNESSED.total() - events} objects"
        )


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """A whole run that held nothing against the types proves nothing."""
    controls = session.config.getoption("--conformance") and not hasattr(session.config, "workerinput")
    if controls and exitstatus == pytest.ExitCode.OK and not {"response", "response.completed"} <= set(WITNESSED):
        print("\nNo response object or no event was held against the published types.")  # noqa: T201 -- pytest shows it
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
